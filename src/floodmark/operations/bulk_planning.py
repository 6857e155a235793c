"""Plans a bulk request: reads the jobs that it is about, and decides what to write. Writes nothing.

    names -> jobs -> each operation by itself (`bulk_drafts`) -> all together: targets, names, dependencies

A planner is made for one request and remembers what its earlier portions have planned: a dry run writes nothing that
later portions could find.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from floodmark.errors import Conflict, FloodmarkError, NotFound
from floodmark.model.bulk import AddJob, BulkLine, LineStatus, PutJob, RemoveJob
from floodmark.model.problems import problem_of
from floodmark.repositories.budgets import Budgets, unknown_budget
from floodmark.repositories.jobs import name_taken
from floodmark.repositories.many_jobs import JobWrites, ManyJobs, StoredJob
from floodmark.rules.cycles import find_cyclic

from .bulk_drafts import Decisions, Draft, compare, reference_of

# A name that we choose ourselves gets a number up to this if it is taken.
_HIGHEST_NUMBER = 999
_MORE_NUMBERS = 8


class BulkPlanner:
    """Plans the portions of one request. `make_id` returns the id of the job that a line creates."""

    def __init__(
        self, jobs: ManyJobs, budgets: Budgets, decisions: Decisions, *, make_id: Callable[[int], str]
    ) -> None:
        self._jobs, self._budgets, self._decisions, self._make_id = jobs, budgets, decisions, make_id
        self._new: dict[str, Draft] = {}
        self._streams: dict[tuple[str, str], Draft] = {}
        self._touched: dict[str, int] = {}
        self._planned = (dict(self._new), dict(self._streams), dict(self._touched))

    async def plan(self, drafts: Sequence[Draft]) -> JobWrites:
        """Decide about a portion, and return what to write for it. The decisions are in the drafts.

        A portion may be planned again with new drafts, until `keep` is called for it.
        """
        named = await self._jobs.find_named({name for draft in drafts if (name := reference_of(draft.action))})
        for draft in drafts:
            draft.stored = _find_stored(draft, named)
        # Sources check targets and params, which takes a while for thousands of jobs.
        await asyncio.to_thread(self._decisions.decide_all, drafts)
        await self._require_collectors(drafts)
        await self._require_budgets(drafts)
        touched = self._require_one_each(drafts)
        new, streams = await self._find_twins([draft for draft in drafts if draft.is_new])
        await self._choose_names(drafts, new)
        edges = await self._resolve_dependencies(drafts, new)
        for draft in drafts:
            _finish(draft)
        self._planned = new, streams, touched
        return _writes(drafts, edges)

    def keep(self) -> None:
        """Remember the last plan: it was written, or would have been."""
        new, streams, touched = self._planned
        self._new |= new
        self._streams |= streams
        self._touched |= touched

    async def _require_collectors(self, drafts: Iterable[Draft]) -> None:
        unsure = [draft for draft in drafts if draft.unknown_collector is not None and draft.is_open]
        known = await self._jobs.find_declared({_target(draft) for draft in unsure})
        for draft in unsure:
            if _target(draft) not in known and draft.unknown_collector is not None:
                draft.fail(draft.unknown_collector)

    async def _require_budgets(self, drafts: Iterable[Draft]) -> None:
        spending = [draft for draft in drafts if draft.is_open and draft.columns.get("budget") is not None]
        missing = await self._budgets.find_missing({draft.columns["budget"] for draft in spending})
        for draft in spending:
            if draft.columns["budget"] in missing:
                draft.fail(unknown_budget(draft.columns["budget"]))

    def _require_one_each(self, drafts: Iterable[Draft]) -> dict[str, int]:
        """Refuse a second operation on the same job: in which order they take effect would not be obvious."""
        touched: dict[str, int] = {}
        for draft in drafts:
            if draft.stored is None or not draft.is_open:
                continue
            job_id = draft.stored.job.job_id
            earlier = touched.get(job_id) or self._touched.get(job_id)
            if earlier is None:
                touched[job_id] = draft.line
            else:
                hint = "send one operation per job in a request"
                draft.fail(Conflict(f"operation {earlier} is about {draft.stored.job.name} already", hint=hint))
        return touched

    async def _find_twins(self, adding: Sequence[Draft]) -> tuple[dict[str, Draft], dict[tuple[str, str], Draft]]:
        """Find jobs for the same targets: stored ones, and those of earlier operations. Return those that are new."""
        unnamed = [draft.spec for draft in adding if draft.spec is not None and draft.spec.name is None]
        stored = await self._jobs.find_streams(unnamed)
        new, streams = dict[str, Draft](), dict[tuple[str, str], Draft]()
        for draft in adding:
            assert draft.spec is not None
            name, key = draft.spec.name, draft.stream_key
            if name is None and key in stored:
                _try(draft, lambda draft=draft, twin=stored[key]: compare(draft, twin))  # type: ignore[misc]
                continue
            twin = streams.get(key) or self._streams.get(key) if name is None else new.get(name) or self._new.get(name)
            if twin is not None:
                _compare_with_twin(draft, twin)
                continue
            streams.setdefault(key, draft)
            if name is not None:
                new[name] = draft
        return new, streams

    async def _choose_names(self, drafts: Sequence[Draft], new: dict[str, Draft]) -> None:
        """Refuse new names that jobs have, and give numbers to those that we chose ourselves."""
        renamed = [draft for draft in drafts if draft.stored and draft.is_open and "name" in draft.columns]
        await self._refuse_taken(renamed, new)
        waiting: dict[str, list[Draft]] = {}
        for draft in drafts:
            if draft.is_new and draft.spec is not None and draft.spec.name is None:
                waiting.setdefault(draft.columns["name"], []).append(draft)
        seen = Counter[str]()
        while waiting:
            candidates = {base: _numbered(base, seen[base], len(some)) for base, some in waiting.items()}
            names = {name for some in candidates.values() for name in some}
            taken = await self._jobs.find_taken(names)
            for base, found in candidates.items():
                free = [name for name in found if name not in taken and name not in new and name not in self._new]
                for name in free[: len(waiting[base])]:
                    draft = waiting[base].pop(0)
                    draft.columns["name"] = name
                    new[name] = draft
                seen[base] += len(found)
                if waiting[base] and seen[base] >= _HIGHEST_NUMBER:
                    for draft in waiting.pop(base):
                        draft.fail(name_taken(base))
            waiting = {base: some for base, some in waiting.items() if some}

    async def _refuse_taken(self, renamed: Sequence[Draft], new: dict[str, Draft]) -> None:
        taken = await self._jobs.find_taken({draft.columns["name"] for draft in renamed})
        for draft in renamed:
            name = draft.columns["name"]
            if name in taken or name in new or name in self._new:
                draft.fail(name_taken(name))
            elif draft.is_open:
                new[name] = draft

    async def _resolve_dependencies(self, drafts: Sequence[Draft], new: dict[str, Draft]) -> dict[str, list[str]]:
        """Return the ids of the jobs that changed jobs depend on; refuse unknown names and cycles."""
        for draft in drafts:
            if draft.is_open and draft.stored is None:
                draft.job_id = self._make_id(draft.line)
            elif draft.stored is not None:
                draft.job_id = draft.stored.job.job_id
        linking = [draft for draft in drafts if draft.is_open and draft.needs is not None]
        planned = {**self._new, **new}
        wanted = {name for draft in linking for name in draft.needs or ()}
        found = await self._jobs.find_named(wanted - planned.keys())
        _refuse_unknown(linking, planned, found)
        edges = {str(draft.job_id): _link(draft, planned, found) for draft in linking if draft.is_open}
        starts = {found[name].job.job_id for name in wanted if name in found}
        cyclic = find_cyclic({**await self._jobs.find_edges(starts), **edges})
        for draft in linking:
            if draft.is_open and draft.needs and draft.job_id in cyclic:
                words = f"{draft.name} and the jobs it depends on would wait for each other"
                draft.fail(Conflict(words, hint="leave out one of these dependencies"))
        # Jobs that depend on those that were just refused.
        _refuse_unknown(linking, planned, found)
        return edges


def line_of(draft: Draft) -> BulkLine:
    """Return the result of an operation."""
    assert draft.status is not None
    if draft.error is not None:
        stored = draft.stored
        job_id = None if stored is None else stored.job.job_id
        return BulkLine(status="failed", name=draft.name, job_id=job_id, error=problem_of(draft.error))
    before = after = None
    if draft.status == "changed":
        before, after = changes_of_draft(draft)
    return BulkLine(
        status=draft.status, name=draft.name, job_id=draft.job_id, before=before, after=after, note=draft.note
    )


def changes_of_draft(draft: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns that differ before and after the change of a job, with its dependencies."""
    assert draft.stored is not None
    before = {name: draft.stored.columns[name] for name in draft.columns}
    after = dict(draft.columns)
    if draft.needs is not None:
        before["depends_on"], after["depends_on"] = list(draft.stored.job.depends_on), sorted(draft.needs)
    return before, after


def _find_stored(draft: Draft, named: Mapping[str, StoredJob]) -> StoredJob | None:
    found = named.get(reference_of(draft.action) or "")
    if found is not None and isinstance(draft.action, AddJob | PutJob) and found.job.name != draft.action.job["name"]:
        # The name of a new job may look like the id of another.
        return None
    return found


def _target(draft: Draft) -> str:
    if draft.spec is not None:
        return draft.spec.target
    assert draft.stored is not None
    return str(draft.columns.get("target", draft.stored.job.target))


def _try(draft: Draft, decide: Callable[[], None]) -> None:
    try:
        decide()
    except FloodmarkError as error:
        draft.fail(error)


def _compare_with_twin(draft: Draft, twin: Draft) -> None:
    draft.twin = twin
    if draft.stream_key == twin.stream_key and not (names := draft.differences(twin.columns)):
        return draft.leave("existing", f"operation {twin.line} is about the same target")
    what = "has this name" if draft.stream_key != twin.stream_key else f"has other values: {', '.join(names)}"
    return draft.fail(
        Conflict(f"operation {twin.line} {what}", hint="leave one of them out; a second job for a target needs a name")
    )


def _numbered(base: str, seen: int, wanted: int) -> list[str]:
    """Return the next names to try: `news`, `news-2`, `news-3`..."""
    last = min(_HIGHEST_NUMBER, seen + wanted + (_MORE_NUMBERS if seen else 0))
    return [base if number == 1 else f"{base}-{number}" for number in range(seen + 1, last + 1)]


def _refuse_unknown(linking: Sequence[Draft], planned: Mapping[str, Draft], found: Collection[str]) -> None:
    """Refuse jobs that depend on jobs that do not exist, and those that depend on these."""
    dependents = defaultdict[str, list[Draft]](list)
    for draft in linking:
        for name in draft.needs or ():
            dependents[name].append(draft)
    missing = [name for name in dependents if (planned[name].error if name in planned else name not in found)]
    while missing:
        name = missing.pop()
        for draft in dependents[name]:
            if draft.is_open:
                draft.fail(NotFound(f"there is no job {name[:60]!r} to depend on", hint="add it first"))
                if draft.stored is None and draft.name is not None:
                    missing.append(draft.name)


def _link(draft: Draft, planned: Mapping[str, Draft], found: Mapping[str, StoredJob]) -> list[str]:
    """Return the ids of the jobs that a job depends on; from now on it names them by their names."""
    needs = draft.needs or ()
    draft.needs = [str(planned[name].name) if name in planned else found[name].job.name for name in needs]
    return [str(planned[name].job_id) if name in planned else found[name].job.job_id for name in needs]


def _finish(draft: Draft) -> None:
    if draft.twin is not None and draft.twin.error is not None and draft.error is None:
        draft.fail(draft.twin.error)
    if draft.status is not None:
        return
    if draft.stored is None:
        draft.status = "added"
    elif isinstance(draft.action, RemoveJob):
        draft.status = "removed"
    else:
        if draft.needs is not None and set(draft.needs) == set(draft.stored.job.depends_on):
            draft.needs = None
        draft.status = "unchanged" if not draft.columns and draft.needs is None else "changed"


def _writes(drafts: Sequence[Draft], edges: Mapping[str, Sequence[str]]) -> JobWrites:
    def chosen(status: LineStatus) -> list[Draft]:
        return [draft for draft in drafts if draft.status == status]

    touched = [draft.stored.job for draft in drafts if draft.stored and draft.status in ("changed", "removed")]
    return JobWrites(
        added=[{**draft.columns, "job_id": draft.job_id} for draft in chosen("added")],
        changed={str(draft.job_id): draft.columns for draft in chosen("changed")},
        removed=[str(draft.job_id) for draft in chosen("removed")],
        depends_on={
            str(draft.job_id): edges[str(draft.job_id)]
            for draft in drafts
            if draft.status in ("added", "changed") and draft.needs is not None
        },
        versions={job.job_id: job.version for job in sorted(touched, key=lambda job: job.name)},
    )
