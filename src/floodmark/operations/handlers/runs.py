"""Handlers of runs on request."""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.job import Job
from floodmark.model.problems import problem_of
from floodmark.observability.tracing import trace_trigger
from floodmark.operations.runs import Asked, RunLine, RunOperations, RunReport
from floodmark.repositories.forcing import Forced, JobChanged
from floodmark.store.port import RunRequest

from .base import Handlers

# Jobs whose params are checked together.
_PORTION = 500


class RunHandlers(RunOperations, Handlers):
    """Requests for runs, with their entries in the audit log."""

    async def run_job(self, name: str, params: Mapping[str, Any] | None = None) -> Asked:
        with trace_trigger(self.resources.tracing, "manual", name) as traceparent:
            forced = await self._force(name, params or None, traceparent)
        return _make_asked(forced)

    async def run_many(self, names: Sequence[str], params: Mapping[str, Any] | None = None) -> RunReport:
        results: list[RunLine] = []
        for start in range(0, len(names), _PORTION):
            results += await self._force_all(names[start : start + _PORTION], params or None)
        failed = sum(line.error is not None for line in results)
        return RunReport(failed=failed, results=tuple(results))

    async def _force(self, name: str, params: Mapping[str, Any] | None, traceparent: str | None) -> Forced:
        runs, known, job, version = self.resources.runs, self.resources.known_jobs, name, None
        while True:
            if params is not None:
                checked = await self._checked_job(name, params)
                job, version = checked.job_id, checked.version
            request = runs.request(job, params, actor=self.actor, traceparent=traceparent, version=version)
            try:
                return await runs.force(request)
            except JobChanged:
                known.forget(name)
            except NotFound:
                known.forget(name)
                # The beginning of a name, or no job: then this error suggests similar names.
                job = await runs.resolve(name)

    async def _checked_job(self, name: str, params: Mapping[str, Any]) -> Job:
        """Return a job that accepts the params. It may have changed since: the run must compare its version."""
        known = self.resources.known_jobs
        job = await known.get(name)
        try:
            await self._check_params(job, params)
        except InvalidInput:
            known.forget(name)
            now = await known.get(name)
            if (now.job_id, now.version) == (job.job_id, job.version):
                raise
            await self._check_params(now, params)
            return now
        return job

    async def _force_all(self, names: Sequence[str], params: Mapping[str, Any] | None) -> list[RunLine]:
        runs, lines = self.resources.runs, dict[int, RunLine]()
        waiting = dict(enumerate(names))
        while waiting:
            found = {} if params is None else await self.store.jobs.get_exactly(list(waiting.values()))
            requests: dict[int, RunRequest] = {}
            for place, name in waiting.items():
                with trace_trigger(self.resources.tracing, "manual", name) as traceparent:
                    try:
                        job = found.get(name)
                        if params is not None and job is not None:
                            await self._check_params(job, params)
                    except InvalidInput as error:
                        lines[place] = RunLine(name=name, error=problem_of(error))
                        continue
                    requests[place] = runs.request(
                        name if job is None else job.job_id,
                        params,
                        actor=self.actor,
                        traceparent=traceparent,
                        version=None if job is None else job.version,
                    )
            forced = dict(zip(requests, await runs.force_all(list(requests.values())), strict=True))
            for place, one in forced.items():
                if not isinstance(one, JobChanged):
                    lines[place] = _line(waiting[place], one)
            waiting = {place: name for place, name in waiting.items() if place not in lines}
        return [lines[place] for place in range(len(names))]

    async def _check_params(self, job: Job, params: Mapping[str, Any]) -> None:
        await self.validate(job.target, lambda: self.resources.validation.run(job, params), None)


def _line(name: str, forced: Forced | Exception) -> RunLine:
    if isinstance(forced, Forced):
        return RunLine(name=name, run=_make_asked(forced))
    if isinstance(forced, Conflict | NotFound):
        return RunLine(name=name, error=problem_of(forced))
    raise forced


def _make_asked(forced: Forced) -> Asked:
    return Asked(execution_id=forced.execution_id, scheduled_for=forced.scheduled_for, reason=forced.reason)
