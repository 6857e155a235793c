"""Validate jobs and their params, for all ways in which they arrive.

The API, the command line, sync, importers, triggers and declarations in code all use `Validation`. A worker asks the
source again before it collects, because a row can be edited with SQL.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.job import Job, Work
from floodmark.model.spec import JobSpec
from floodmark.security.masking import restore_masked

from .port import CompletesJobs, NamesParams, Source

_CHECKED = frozenset({"source", "target", "params"})
# Fields that may contain a secret, and are masked for users who may only read.
MASKABLE = ("target", "params", "url", "stream")


class Validation:
    """Validates jobs with the sources of a process. Without sources it accepts everything."""

    def __init__(self, sources: Callable[[], Mapping[str, Source]] | None = None) -> None:
        self._open = sources

    @cached_property
    def _sources(self) -> Mapping[str, Source] | None:
        # On first use: most commands need no sources, and finding those of other packages takes time.
        return None if self._open is None else self._open()

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return a new job as its source completes it, or raise `InvalidInput`."""
        for name in MASKABLE:
            _unmask(name, getattr(spec, name), None)
        source = self._source(spec.source)
        if source is None:
            return spec
        if isinstance(source, CompletesJobs):
            spec = source.complete(spec)
        _check(source, spec.target, spec.params, names=spec.params)
        return spec

    def change(self, job: Job, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes of a job, with its target in canonical form, or raise `InvalidInput`.

        A change of other fields is accepted even if the stored source, target or params are no longer valid.
        """
        wanted = unmask_changes(job, changes)
        touched = {name: wanted[name] for name in _CHECKED if name in wanted}
        if not touched or not _has_right_types(touched):
            # Values of wrong types: the store refuses them with its own message.
            return wanted
        merged = {"source": job.source, "target": job.target, "params": job.params, **touched}
        source = self._source(merged["source"])
        if source is None:
            return wanted
        if isinstance(source, CompletesJobs):
            merged["target"] = source.complete(JobSpec(when=job.when, **merged)).target
            if "target" in wanted:
                wanted["target"] = merged["target"]
        is_named = "params" in wanted or merged["source"] != job.source
        _check(source, merged["target"], merged["params"], names=merged["params"] if is_named else ())
        return wanted

    def has_one_job_per_target(self, kind: str) -> bool:
        """Return whether a second job of this source for a target needs a name."""
        source = None if self._sources is None else self._sources.get(kind)
        return getattr(source, "one_job_per_target", False)

    def run(self, job: Job | Work, params: Mapping[str, Any]) -> None:
        """Refuse params for one run that are invalid for its source, or unknown to it.

        If only workers have the source, they check the params.
        """
        restore_masked(params)
        self._check_params(job, params, names=params)

    def arrive(self, job: Job | Work, params: Mapping[str, Any]) -> None:
        """Check the params of a message or webhook; fields that are no params of the source are ignored."""
        self._check_params(job, params, names=())

    def uses_params(self, job: Job | Work, params: Mapping[str, Any]) -> bool:
        """Return whether the source of a job uses any of these params, as far as this process knows."""
        source = None if self._sources is None else self._sources.get(job.source)
        if source is None or not params:
            return bool(params)
        known = source.param_names(job.target) if isinstance(source, NamesParams) else None
        return known is None or not known.isdisjoint(params)

    def _check_params(self, job: Job | Work, params: Mapping[str, Any], *, names: Iterable[str]) -> None:
        source = None if self._sources is None else self._sources.get(job.source)
        if source is not None and params:
            _check(source, job.target, {**job.params, **params}, names=names)

    def _source(self, kind: str) -> Source | None:
        if self._sources is None:
            return None
        source = self._sources.get(kind)
        if source is None:
            hint = f"the sources here are: {', '.join(sorted(self._sources))}"
            raise InvalidInput(f"there is no source {kind[:60]!r}", hint=hint)
        return source


def refuse_unknown_names(names: Iterable[str], known: frozenset[str] | None, whose: str) -> None:
    """Refuse params that a source does not know, usually typing mistakes."""
    unknown = [] if known is None else sorted(str(name) for name in names if name not in known)
    if not unknown:
        return
    close = get_close_matches(unknown[0], known or (), n=1)
    # Importers write `*args` and `**kwargs`; people do not.
    names_there = sorted(name for name in known or () if name.isidentifier())
    there = f"it has: {', '.join(names_there)}" if names_there else "it has none"
    raise InvalidInput(
        f"{whose} has no param {unknown[0][:60]!r}", hint=f"did you mean {close[0]}? {there}" if close else there
    )


def unmask_changes(job: Job, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes with each masked secret replaced by that of the job; refuse masks of other values."""
    return {name: _unmask(name, value, getattr(job, name, None)) for name, value in changes.items()}


def _unmask(name: str, value: Any, before: Any) -> Any:
    return restore_masked(value, before, where=name) if name in MASKABLE else value


def _check(source: Source, target: str, params: Mapping[str, Any], *, names: Iterable[str]) -> None:
    source.check(target, params)
    if isinstance(source, NamesParams):
        refuse_unknown_names(names, source.param_names(target), f"{source.kind} {target[:80]}")


def _has_right_types(touched: Mapping[str, Any]) -> bool:
    return all(isinstance(value, Mapping if name == "params" else str) for name, value in touched.items())
