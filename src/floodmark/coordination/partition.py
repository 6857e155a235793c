"""The share of this process among the workers of the installation. The worker role refreshes it."""

from collections.abc import Callable, Iterable

from floodmark.rules.partition import choose_owner


class Partition:
    """The workers that take executions, and which of them is preferred for a key."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.workers: frozenset[str] = frozenset()
        self._listeners: list[Callable[[], object]] = []

    @property
    def is_shared(self) -> bool:
        """Whether this process and at least one other take executions."""
        return len(self.workers) > 1 and self.me in self.workers

    def owner_of(self, key: str) -> str:
        """Return the preferred worker for a key. A process that knows no workers has everything to itself."""
        return choose_owner(key, self.workers) or self.me

    def is_mine(self, key: str) -> bool:
        """Return whether this process is the preferred worker for a key."""
        return self.owner_of(key) == self.me

    def listen(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever workers have joined or left."""
        self._listeners.append(changed)

    def update(self, workers: Iterable[str]) -> None:
        """Replace the workers."""
        now = frozenset(workers)
        if now != self.workers:
            self.workers = now
            for changed in self._listeners:
                changed()
