"""The verbs. What is refused raises a `FloodmarkError` with a hint and changes nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from floodmark.model.execution import Execution, State
from floodmark.model.job import Job, Priority
from floodmark.model.spec import JobSpec
from floodmark.outbound.breakers import BreakerRow
from floodmark.outbound.limits import LimitRow
from floodmark.rules.explain import Explanation
from floodmark.sources.telegram.accounts import AccountRow, Person
from floodmark.store.audit import AuditRow
from floodmark.store.dead_letters import Group
from floodmark.store.events import ItemHistory, StoredItem
from floodmark.store.fleet import WorkerInfo
from floodmark.store.port import Event
from floodmark.store.watermarks import StreamState

from .doctor import Finding
from .overview import Overview


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs. `text` is looked for in name, target and url; `stale` is as in `store.staleness`."""

    source: str | None = None
    domain: str | None = None
    domain_config_id: str | None = None
    tag: str | None = None
    priority: Priority | None = None
    enabled: bool | None = None
    paused: bool | None = None
    stale: bool | None = None
    text: str | None = None


class Asked(Struct, frozen=True, kw_only=True):
    """An execution that was asked for; `reason` says why it does not start at once, if it does not."""

    execution_id: str
    scheduled_for: datetime
    reason: str | None = None


class Letters(Struct, frozen=True, kw_only=True):
    """Which dead letters: these executions, those of one error (`Group.fingerprint`), or of one job; at least one."""

    ids: tuple[str, ...] | None = None
    group: str | None = None
    job: str | None = None


class NewAccount(Struct, frozen=True, kw_only=True):
    """An account to be stored. `session` is as good as the account itself; `identity`: who it is, if that is known.

    What is left out is as it was, when an account is replaced, or as the settings have it.
    """

    name: str
    session: str = ""
    api_id: int | None = None
    api_hash: str | None = None
    phone: str | None = None
    identity: int | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    replace: bool = False
    is_checked: bool = True

    def __repr__(self) -> str:
        return f"NewAccount({self.name!r})"


class Tested(Struct, frozen=True, kw_only=True):
    """An account that works: who it is, and which jobs go on, if it was `activated`."""

    account: AccountRow
    person: Person
    activated: bool = False
    resumed: tuple[str, ...] = ()


class Reading(Protocol):
    """What can be asked. Jobs are named by name or id, or the beginning of one; streams also by a job's name."""

    async def jobs(self, which: JobFilter = ..., *, after: str | None = None, limit: int = 100) -> list[Job]:
        """In order of name. The next page is `after` the name of the last one."""
        ...

    async def job(self, text: str) -> Job:
        """One job."""
        ...

    async def explain(self, text: str) -> Explanation:
        """Why it is not running, or what it is doing."""
        ...

    async def executions(
        self,
        *,
        job: str | None = None,
        states: Sequence[State] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Newest first, also of jobs that are gone. The next page is `before` the id of the last one."""
        ...

    async def execution(self, execution_id: str) -> Execution:
        """One execution; the beginning of its id is enough."""
        ...

    async def statistics(self, days: float, job: str | None = None) -> dict[str, Any]:
        """How the executions of the last days went."""
        ...

    async def letters(
        self, *, job: str | None = None, before: Execution | None = None, limit: int = 50
    ) -> list[Execution]:
        """Executions that failed for good, newest first."""
        ...

    async def letter_groups(self, job: str | None = None) -> list[Group]:
        """The same by error, most frequent first."""
        ...

    async def watermarks(self, *, after: str | None = None, limit: int = 100) -> list[StreamState]:
        """How far each stream is collected, in order of name."""
        ...

    async def watermark(self, text: str) -> StreamState:
        """How far one stream is collected."""
        ...

    async def items_stream(self, text: str) -> str:
        """The stream that holds the items of a stream or job."""
        ...

    async def items(self, stream: str, *, after: str | None = None, limit: int = 100) -> list[StoredItem]:
        """Items of a stream in order of key. The next page is `after` the key of the last one."""
        ...

    async def newest_items(
        self, stream: str, *, since: datetime | None = None, before: str | None = None, limit: int = 100
    ) -> list[StoredItem]:
        """Items of a stream, newest first. The next page is `before` the key of the last one."""
        ...

    async def item(self, stream: str, key: str) -> ItemHistory:
        """One item with its revisions."""
        ...

    async def count_items(self, stream: str) -> int:
        """How many items a stream holds."""
        ...

    async def events(self, *, after: int = 0, limit: int = 100, stream: str | None = None) -> list[Event]:
        """Events behind a position, in order."""
        ...

    async def last_position(self) -> int:
        """The position of the newest event."""
        ...

    async def limits(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        """What has to wait, the longest first."""
        ...

    async def breakers(self, *, limit: int = 100) -> list[BreakerRow]:
        """The breakers that have ever had something to do."""
        ...

    async def accounts(self, *, after: str | None = None, limit: int = 100) -> list[AccountRow]:
        """The accounts that sources log in with, in order of name, without their secrets."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """The processes of the fleet."""
        ...

    async def leader(self) -> str | None:
        """Who schedules."""
        ...

    async def is_draining(self) -> bool:
        """Whether the workers were told to take no more work."""
        ...

    async def overview(self) -> Overview:
        """Everything at a glance; cheap enough to be asked every second."""
        ...

    async def health(self) -> dict[str, Any]:
        """Is everything well?"""
        ...

    async def examine(self) -> list[Finding]:
        """Does everything answer, does everything hold? In the order in which one would mend it."""
        ...

    async def audit(self, *, what: str | None = None, before: int | None = None, limit: int = 50) -> list[AuditRow]:
        """Who changed what, newest first."""
        ...


class Changing(Protocol):
    """What can be told. Every change is in the audit, with who, before and after."""

    async def add_job(self, spec: JobSpec) -> Job:
        """Make a job."""
        ...

    async def update_job(self, text: str, changes: Mapping[str, Any], *, version: int | None = None) -> Job:
        """Set columns of a job, if it is still at `version`."""
        ...

    async def remove_job(self, text: str) -> Job:
        """Delete a job; what it was. Its history and its items stay."""
        ...

    async def pause_job(self, text: str, reason: str | None = None) -> Job:
        """Let nothing of it start."""
        ...

    async def resume_job(self, text: str) -> Job:
        """Undo a pause."""
        ...

    async def cancel_job(self, text: str) -> int:
        """End what is unfinished of it; how many."""
        ...

    async def run_job(self, text: str, params: Mapping[str, Any] | None = None) -> Asked:
        """Run it now, whatever its schedule says."""
        ...

    async def cancel_execution(self, execution_id: str) -> Execution:
        """End one execution: at once if it has not started, else as soon as its worker hears of it."""
        ...

    async def cleanup_old_executions(self, days: float) -> int:
        """Delete executions that ended more than `days` ago; how many."""
        ...

    async def retry_letters(self, which: Letters) -> int:
        """Run dead letters again; how many."""
        ...

    async def drop_letters(self, which: Letters) -> int:
        """Take dead letters off the list; how many."""
        ...

    async def set_watermark(self, text: str, value: Mapping[str, Any]) -> StreamState:
        """Go on from there."""
        ...

    async def reset_watermark(self, text: str) -> StreamState:
        """Begin again."""
        ...

    async def clear_limit(self, key: str) -> LimitRow:
        """Lift a limit; what it was."""
        ...

    async def set_limit(self, key: str, seconds: float, reason: str) -> LimitRow:
        """Let everything under a key wait."""
        ...

    async def reset_breaker(self, key: str) -> BreakerRow:
        """Close a breaker; what it was."""
        ...

    async def drain(self) -> None:
        """Let workers take no more work."""
        ...

    async def undrain(self) -> None:
        """Let them work again."""
        ...


class Office(Reading, Changing, Protocol):
    """All of it."""
