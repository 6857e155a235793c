"""The port of sources. A source only reads; it knows nothing of queues, retries or databases."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field

from floodmark.coordination.service import Service
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Watermark
from floodmark.model.completeness import Gap, GapKind
from floodmark.model.execution import Lease
from floodmark.model.notes import add_note
from floodmark.model.spec import JobSpec


class Target(Struct, frozen=True, kw_only=True, gc=False):
    """One channel, site, domain or function of a source."""

    name: str
    stream: str
    params: Mapping[str, Any]
    url: str | None = None
    account: str | None = None


class Context(Struct, frozen=True, kw_only=True, gc=False):
    """The execution for which a source collects."""

    execution_id: str
    job_name: str
    attempt: int
    scheduled_for: datetime
    trigger: str
    stopping: asyncio.Event
    """Set when the worker stops: end after the next complete batch; yielded batches are stored."""
    tenant_id: str | None = None
    user_id: str | None = None
    gaps: Sequence[Gap] = ()
    """In a run that fills gaps: the gaps of the target, to be read beside what is new. See `FillsGaps`."""
    result: dict[str, Any] = field(default_factory=dict)
    """The result of the execution: stored at its end, and after each slice of an interrupted execution."""

    def note(self, text: str) -> None:
        """Add a note to this run for people: a limit that was reached, input that was left out.

        Notes are stored for all slices of an execution, in order, each once.
        """
        add_note(self.result, text)


# The group of entry points. Each names a class or function that takes the settings and returns a `Source`.
SOURCES = "floodmark.sources"


class Source(Protocol):
    """A kind of system to collect from.

    It raises `SlowDown` (rate limit), `Transient` (a retry may help), `Permanent` (a retry will not help), `Gone` (the
    target no longer exists) and `AccountLost`. Any other exception counts as transient.

    It is created with the settings alone and can then check jobs. In a process that collects it gets the services
    (`UsesServices`) and, if it is an async context manager, is entered at the start and exited at the end.

    With `one_job_per_target = True`, a second job for a target needs an explicit name.
    """

    kind: str

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Yield batches, oldest first; each has the watermark that is valid once its items are stored."""
        ...

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` if this target cannot be collected.

        Called before a job is stored, and again by the worker before it collects. It ignores unknown names of params:
        see `NamesParams`.
        """
        ...


@runtime_checkable
class UsesServices(Protocol):
    """A source that uses guarded HTTP, rate limits, the clock or other services of its process."""

    def use_services(self, services: Services) -> None:
        """Store the services. Called once, before the source is entered and before it collects."""
        ...


@runtime_checkable
class NamesParams(Protocol):
    """A source that lists its params. A job with any other param is refused; without this, every name is accepted."""

    def param_names(self, target: str) -> frozenset[str] | None:
        """Return the known names; None if any name is accepted."""
        ...


@runtime_checkable
class PrefersWorkers(Protocol):
    """A source whose runs are cheaper in a certain process, such as the one that has a session open.

    An execution that another worker has leased is offered to the preferred worker for EXECUTION_AFFINITY. If it does
    not take it, any worker does: a preference never decides whether a run is possible.
    """

    async def preferred_workers(self, leases: Sequence[Lease]) -> Sequence[str | None]:
        """Return the preferred worker of each lease; None if any will do. Called once for a batch of leases.

        `Services.partition` says which worker is preferred for a key such as an account.
        """
        ...


@runtime_checkable
class FillsGaps(Protocol):
    """A source that can read gaps of the completeness ledger, if `Context.gaps` has any; then it collects as always.

    It yields each part with the coverage that closes the gap, and without a watermark.
    """

    fills: frozenset[GapKind]
    """The kinds of gaps that it can read."""


@runtime_checkable
class HasServices(Protocol):
    """A source with work of its own beside the runs, such as downloads. Each worker repeats its steps."""

    def services(self) -> Sequence[Service]:
        """Return the services, after `use_services`. A step may be cancelled at any point."""
        ...


@runtime_checkable
class CompletesJobs(Protocol):
    """A source that normalises new jobs: one spelling of a target, a default schedule or stream."""

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the normalised job, or raise `InvalidInput`. Completing it again changes nothing."""
        ...
