"""Where items come from. A source knows how to read; it knows nothing of queues, retries or databases."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field

from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Watermark
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
    """What a source may know about the execution it serves."""

    execution_id: str
    job_name: str
    attempt: int
    scheduled_for: datetime
    trigger: str
    stopping: asyncio.Event
    """Set when the worker is leaving: end at the next good place; what was yielded is kept."""
    tenant_id: str | None = None
    user_id: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    """What the history of this execution shows: at its end, and after each slice of one that is put off."""

    def note(self, text: str) -> None:
        """Report something that people should know about this run: a bound that was reached, an input left out.

        Notes are kept over all slices of an execution, in the order they were made, each once.
        """
        add_note(self.result, text)


# The group of entry points. Each names a class or function that takes the settings and returns a `Source`.
SOURCES = "floodmark.sources"


class Source(Protocol):
    """One kind of thing to collect from.

    Errors it speaks in: `SlowDown` (told to wait), `Transient` (may work next time), `Permanent` (will not), `Gone`
    (this target will not come back), `AccountLost`. Any other exception counts as transient.

    It is made from the settings alone and can then check jobs. In a process that collects it gets the services
    (`UsesServices`) and, if it is an async context manager, is entered at the start and left at the end.

    With `one_job_per_target = True`, a second job for a target has to be given a name.
    """

    kind: str

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Yield batches oldest first; each carries the watermark that is true once its items are kept."""
        ...

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless this could be collected.

        Called before a job is stored, and again by the worker before it collects. Ignores names of params that the
        source does not know: see `NamesParams`.
        """
        ...


@runtime_checkable
class UsesServices(Protocol):
    """A source that uses guarded HTTP, rate limits, the clock or other services of its process."""

    def use_services(self, services: Services) -> None:
        """Keep the services. Called once, before the source is entered and before it collects."""
        ...


@runtime_checkable
class NamesParams(Protocol):
    """A source that lists its params. A job that names any other is refused; without this, every name is accepted."""

    def param_names(self, target: str) -> frozenset[str] | None:
        """The names it knows; None if it takes any."""
        ...


@runtime_checkable
class CompletesJobs(Protocol):
    """A source that brings new jobs into its own form: one spelling of a target, a default schedule or stream."""

    def complete(self, spec: JobSpec) -> JobSpec:
        """The same job in that form, or `InvalidInput`. Completing it again changes nothing."""
        ...
