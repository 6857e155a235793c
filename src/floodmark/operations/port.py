"""The verbs. What is refused raises a `FloodmarkError` with a hint and changes nothing."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from floodmark.model.job import Job, Priority
from floodmark.model.spec import JobSpec
from floodmark.rules.explain import Explanation

from .declared import AsyncOperations


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


class Office(AsyncOperations, Reading, Changing):
    """All of it."""
