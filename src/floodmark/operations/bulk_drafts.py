"""Decides about each operation of a bulk request by itself: is it valid, and what would it write? Without I/O."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from floodmark.errors import Conflict, FloodmarkError, InvalidInput, NotFound
from floodmark.model.bulk import (
    AddJob,
    ChangeJob,
    JobAction,
    LineStatus,
    PauseJob,
    PutJob,
    RemoveJob,
    ResumeJob,
    TagJob,
)
from floodmark.model.job import When
from floodmark.model.spec import JobSpec
from floodmark.repositories.job_checks import check_columns, check_names
from floodmark.repositories.jobs import version_changed
from floodmark.repositories.many_jobs import ManyJobs, StoredJob
from floodmark.rules.streams import stream_name
from floodmark.settings import Settings
from floodmark.sources.python import UnknownCollector
from floodmark.sources.validation import Validation, unmask_changes

from .handlers.job_columns import changes_of, spec_of, when_of_columns

# `migrate_jobs` alone changes which scheduler owns a job.
_NEVER_CHANGED = frozenset({"scheduler_version"})
_RUNNING = {"paused": False, "pause_reason": None}


class Draft:
    """One operation of a bulk request, and what was decided about it so far. `line` counts from 1."""

    def __init__(self, line: int, action: JobAction) -> None:
        self.line, self.action = line, action
        self.error: FloodmarkError | None = None
        self.unknown_collector: UnknownCollector | None = None
        self.stored: StoredJob | None = None
        self.spec: JobSpec | None = None
        self.twin: Draft | None = None
        self.job_id: str | None = None
        # The columns that were given, those to write, and those that differ from the stored job.
        self.given: frozenset[str] = frozenset()
        self.columns: dict[str, Any] = {}
        self.needs: list[str] | None = None
        self.status: LineStatus | None = None
        self.note: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether it creates a job, as far as it is decided."""
        return self.spec is not None and self.stored is None and self.is_open

    @property
    def is_open(self) -> bool:
        """Whether there is something to write, as far as it is decided."""
        return self.error is None and self.status is None

    @property
    def name(self) -> str | None:
        """The name of its job, as far as it is known."""
        if self.stored is not None:
            return self.stored.job.name
        named = self.columns.get("name") or reference_of(self.action)
        return None if named is None else str(named)

    @property
    def stream_key(self) -> tuple[str, str]:
        """The source and the stream of a new job."""
        assert self.spec is not None
        return self.spec.source, stream_name(self.spec.stream, self.spec.source, self.spec.target)

    def fail(self, error: FloodmarkError) -> None:
        """Refuse the operation."""
        self.error, self.status = error, "failed"

    def leave(self, status: LineStatus, note: str | None = None) -> None:
        """Write nothing."""
        self.status, self.note = status, note

    def differences(self, current: Mapping[str, Any]) -> list[str]:
        """Return the given columns that another job for the same target has with other values."""
        names = self.given - {"source", "target", "stream", "name", "depends_on"}
        if names & set(When.__struct_fields__):
            names |= set(When.__struct_fields__)
        return [name for name in sorted(names) if not _is_same(name, self.columns[name], current[name])]


def reference_of(action: JobAction) -> str | None:
    """Return the job that an operation names; None if it names none."""
    named = action.job.get("name") if isinstance(action, AddJob | PutJob) else action.name
    return named if isinstance(named, str) else None


class Decisions:
    """Decides with the sources, the settings and the checks of a process."""

    def __init__(self, jobs: ManyJobs, validation: Validation, settings: Settings) -> None:
        self._jobs, self._validation, self._settings = jobs, validation, settings

    def decide_all(self, drafts: Iterable[Draft]) -> None:
        """Set the columns that each operation writes, or the error that refuses it. Existing jobs must be set."""
        for draft in drafts:
            try:
                self._decide(draft)
            except FloodmarkError as error:
                draft.fail(error)

    def _decide(self, draft: Draft) -> None:
        action = draft.action
        if isinstance(action, AddJob | PutJob):
            return self._decide_new(draft, action)
        if draft.stored is None:
            raise NotFound(f"there is no job {action.name[:60]!r}", hint="see what there is with: floodmark ls")
        return self._decide_change(draft, draft.stored, action)

    def _decide_new(self, draft: Draft, action: AddJob | PutJob) -> None:
        stored = draft.stored
        if isinstance(action, PutJob):
            if reference_of(action) is None:
                raise InvalidInput("the name is missing", hint="a job that is put is known by its name")
            if stored is not None and stored.declared is not None:
                origin = "a sync" if stored.declared.startswith("sync:") else "code"
                return draft.leave("skipped", f"{origin} declares this job")
        columns = action.job if stored is None else unmask_changes(stored.job, action.job)
        given = check_given(columns)
        draft.given = frozenset(given)
        draft.spec = self._complete(draft, spec_of(given, self._settings))
        if isinstance(action, PutJob) and "schedule_type" in given:
            # A source may complete a job without a schedule; here none was asked for.
            draft.spec = replace(draft.spec, when=when_of_columns(given))
        draft.columns, draft.needs = self._jobs.check(draft.spec), list(draft.spec.depends_on)
        if stored is not None:
            self._meet(draft, stored)
        return None

    def _meet(self, draft: Draft, stored: StoredJob) -> None:
        """Decide about a new job whose name another job has."""
        if isinstance(draft.action, PutJob):
            draft.columns = differing(draft.columns, stored)
        elif self._settings.job_replace_existing_instance:
            draft.columns = differing({**draft.columns, **_RUNNING}, stored)
        else:
            compare(draft, stored)

    def _decide_change(
        self, draft: Draft, stored: StoredJob, action: ChangeJob | TagJob | PauseJob | ResumeJob | RemoveJob
    ) -> None:
        if isinstance(action, ChangeJob | RemoveJob) and action.version not in (None, stored.job.version):
            raise version_changed({"name": stored.job.name, "version": stored.job.version}, action.version)
        match action:
            case ChangeJob():
                self._decide_columns(draft, stored, action.columns)
            case TagJob():
                self._decide_columns(draft, stored, {"tags": change_tags(stored.job.tags, action)})
            case PauseJob():
                draft.columns = differing({"paused": True, "pause_reason": action.reason}, stored)
            case ResumeJob():
                draft.columns = differing(_RUNNING, stored)
            case RemoveJob():
                pass

    def _decide_columns(self, draft: Draft, stored: StoredJob, columns: Mapping[str, Any]) -> None:
        given = check_given(columns)
        changes = changes_of(given)
        try:
            changes = self._validation.change(stored.job, changes)
        except UnknownCollector as error:
            draft.unknown_collector = error
        draft.needs = changes.pop("depends_on", None)
        draft.columns = differing(self._jobs.check_changes(stored.columns, changes), stored)

    def _complete(self, draft: Draft, spec: JobSpec) -> JobSpec:
        try:
            return self._validation.complete(spec)
        except UnknownCollector as error:
            # Another process may have it: the job that it declared says so.
            draft.unknown_collector = error
            return spec


def check_given(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return given columns with values of the right types; `depends_on` is not a column, but a list of names."""
    given = dict(columns)
    needs = given.pop("depends_on", None)
    if needs is not None:
        check_names(needs)
    return {**check_columns(given), **({} if needs is None else {"depends_on": list(dict.fromkeys(needs))})}


def compare(draft: Draft, stored: StoredJob) -> None:
    """Leave an existing job for the same target as it is; refuse one that differs from what was given."""
    draft.stored = stored
    if draft.stream_key != stored.stream_key:
        raise Conflict(
            f"there is already a job {stored.job.name!r}, for {stored.job.target[:80]}", hint="choose another name"
        )
    if names := draft.differences(stored.columns):
        raise Conflict(
            f"{stored.job.name} collects {stored.job.target[:80]} already, with other values: {', '.join(names)}",
            hint=f"change it with: floodmark edit {stored.job.name}; a second job for this target needs a name",
        )
    draft.leave("existing")


def change_tags(tags: tuple[str, ...], action: TagJob) -> list[str]:
    """Return the tags of a job after some were removed and others added."""
    return [tag for tag in dict.fromkeys([*tags, *action.add]) if tag not in action.remove]


def differing(columns: Mapping[str, Any], stored: StoredJob) -> dict[str, Any]:
    """Return the columns that differ from those of a job."""
    current = stored.columns
    wanted = {name: value for name, value in columns.items() if name not in _NEVER_CHANGED}
    if "stream" in wanted:
        source, target = (str(wanted.get(name, current[name])) for name in ("source", "target"))
        if stream_name(wanted["stream"], source, target) == stored.job.stream:
            del wanted["stream"]
    return {name: value for name, value in wanted.items() if value != current[name]}


def _is_same(name: str, value: Any, other: Any) -> bool:
    if name == "tags" and isinstance(other, list):
        return set(value) == set(other)
    return bool(value == other)
