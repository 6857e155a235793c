"""Handlers of bulk requests: many jobs in one request."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from sqlalchemy.exc import DBAPIError

from floodmark.coordination.signals.port import Topic
from floodmark.errors import Conflict, Denied, InvalidInput
from floodmark.model.bulk import (
    MOST_OPERATIONS,
    Action,
    AddJob,
    BulkLine,
    BulkReport,
    JobAction,
    PauseJob,
    PutJob,
    RemoveJob,
    ResumeJob,
)
from floodmark.model.ids import new_id
from floodmark.model.shapes import job_shape
from floodmark.model.tokens import is_enough
from floodmark.operations.bulk import BulkOperations
from floodmark.operations.bulk_drafts import Decisions, Draft
from floodmark.operations.bulk_planning import BulkPlanner, changes_of_draft, line_of
from floodmark.repositories.audit import AuditEntry
from floodmark.repositories.many_jobs import ManyJobs, OutdatedError
from floodmark.store.dialects import chunks

from .base import Handlers

# The jobs of one transaction, unless the request is atomic: other writers need not wait long.
_PORTION = 500
_ATTEMPTS = 3
_OPERATED = (PauseJob, ResumeJob)
_OTHER_FAILED = "another operation failed, and the request is atomic"


class BulkHandlers(BulkOperations, Handlers):
    """Many jobs in the store."""

    async def bulk_jobs(
        self,
        operations: Sequence[Action | Mapping[str, Any]],
        *,
        atomic: bool = False,
        dry_run: bool = False,
        job_id: str | None = None,
        may_exist: bool = False,
    ) -> BulkReport:
        """Carry out a bulk request. Ids of new jobs follow from `job_id`, if an earlier request was promised that id.

        That request may have carried out a part of it (`may_exist`): those lines have the same results again.
        """
        actions = [_read_action(one) for one in operations]
        self._require_role(actions)
        if atomic and len(actions) > MOST_OPERATIONS:
            raise InvalidInput(
                f"an atomic request has {MOST_OPERATIONS:,} operations at most, and this one has {len(actions):,}",
                hint="send several requests, or one that is not atomic",
            )
        make_id = _make_ids(job_id)
        decisions = Decisions(self._jobs, self.resources.validation, self.resources.settings)
        planner = BulkPlanner(self._jobs, self.store.budgets, decisions, make_id=make_id)
        lines = dict(enumerate(actions, 1))
        results = await self._find_done(lines, make_id) if may_exist else {}
        left = [line for line in lines if line not in results]
        # Jobs that depend on each other are planned together.
        is_whole = atomic or any(_depends(action) for action in actions)
        is_applied = not dry_run
        for some in chunks(left, len(left) or 1 if is_whole else _PORTION):
            drafts = await self._carry_out({line: lines[line] for line in some}, planner, atomic, dry_run)
            is_applied = is_applied and not (atomic and any(draft.error for draft in drafts))
            results |= {draft.line: line_of(draft) for draft in drafts}
        found = tuple(results[line] for line in lines)
        failed = sum(line.status == "failed" for line in found)
        return BulkReport(applied=is_applied, dry_run=dry_run, failed=failed, results=found)

    async def _carry_out(
        self, lines: Mapping[int, JobAction], planner: BulkPlanner, atomic: bool, dry_run: bool
    ) -> list[Draft]:
        """Plan a portion and write it in one transaction. It is planned again if jobs were changed meanwhile."""
        for left in range(_ATTEMPTS - 1, -1, -1):
            drafts = [Draft(line, action) for line, action in lines.items()]
            writes = await planner.plan(drafts)
            if atomic and any(draft.error for draft in drafts):
                return _skip_others(drafts)
            if not dry_run:
                try:
                    async with self.transaction(Topic.JOBS):
                        await self._jobs.write(writes)
                        async with self.resources.database.writing() as connection:
                            await self.store.audit.record_within(connection, self.actor, _entries(drafts))
                except (OutdatedError, Conflict, InvalidInput, DBAPIError) as error:
                    # Another process has changed a job or taken a name since we have read them.
                    if left:
                        continue
                    if isinstance(error, DBAPIError):
                        raise
                    hint = "nothing was changed by this part of the request; send it again"
                    raise Conflict("the jobs are being changed by others", hint=hint) from error
                if writes.removed:
                    await self.resources.signals.notify(Topic.CANCEL)
            planner.keep()
            return drafts
        raise AssertionError("unreachable")

    async def _find_done(self, lines: Mapping[int, JobAction], make_id: Callable[[int], str]) -> dict[int, BulkLine]:
        """Return the results of operations that an earlier request with the same key has carried out."""
        ids = {make_id(line): line for line, action in lines.items() if isinstance(action, AddJob | PutJob)}
        done = {
            ids[job_id]: BulkLine(status="added", name=stored.job.name, job_id=job_id)
            for job_id, stored in (await self._jobs.find_named(ids)).items()
            if stored.job.job_id == job_id
        }
        removing = {line: action for line, action in lines.items() if isinstance(action, RemoveJob)}
        there = await self._jobs.find_named({action.name for action in removing.values()})
        gone = {line: action.name for line, action in removing.items() if action.name not in there}
        return done | {line: BulkLine(status="removed", name=name) for line, name in gone.items()}

    def _require_role(self, actions: Sequence[JobAction]) -> None:
        if is_enough(self.role, "admin"):
            return
        for action in actions:
            if not isinstance(action, _OPERATED):
                raise Denied(
                    f"the operation {action.__struct_config__.tag} needs the role admin, "
                    f"and {self.actor.who} has the role {self.role}",
                    hint="use a token with that role: floodmark tokens add NAME --role admin",
                )

    @cached_property
    def _jobs(self) -> ManyJobs:
        return ManyJobs(self.resources.database, self.resources.clock, self.store.budgets)


def _read_action(given: Action | Mapping[str, Any]) -> JobAction:
    if isinstance(given, JobAction):
        return given
    action: JobAction = msgspec.convert(given, JobAction)
    return action


def _make_ids(promised: str | None) -> Callable[[int], str]:
    if promised is None:
        return lambda _: new_id()
    # The time at the beginning stays, so that ids sort by creation.
    return lambda line: promised[:12] + hashlib.blake2b(f"{promised}:{line}".encode(), digest_size=10).hexdigest()


def _depends(action: JobAction) -> bool:
    columns = getattr(action, "job", None) or getattr(action, "columns", None) or {}
    return bool(columns.get("depends_on"))


def _skip_others(drafts: list[Draft]) -> list[Draft]:
    for draft in drafts:
        if draft.error is None:
            draft.leave("skipped", _OTHER_FAILED)
    return drafts


def _entries(drafts: Sequence[Draft]) -> list[AuditEntry]:
    return [_entry(draft) for draft in drafts if draft.status in ("added", "changed", "removed")]


def _entry(draft: Draft) -> AuditEntry:
    what = f"job:{draft.name}"
    if draft.stored is None:
        after = {name: value for name, value in draft.columns.items() if value is not None}
        return AuditEntry(action="job.added", what=what, after={"job_id": draft.job_id, **after})
    if draft.status == "removed":
        return AuditEntry(action="job.removed", what=what, before=job_shape(draft.stored.job))
    before, after = changes_of_draft(draft)
    action = draft.action
    verb = "paused" if isinstance(action, PauseJob) else "resumed" if isinstance(action, ResumeJob) else "changed"
    return AuditEntry(action=f"job.{verb}", what=f"job:{after.get('name', draft.name)}", before=before, after=after)
