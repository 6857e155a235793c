"""Handlers of previews."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from floodmark.errors import InvalidInput
from floodmark.model.accounts import AccountRow
from floodmark.model.job import ScheduleType, When
from floodmark.model.previews import SourcePreview, TargetPreview
from floodmark.model.spec import JobSpec, slug
from floodmark.operations.previews import PreviewOperations
from floodmark.rules.retries import describe
from floodmark.sources.form import JobForm, PreviewTools, find_form
from floodmark.sources.recognition import recognise
from floodmark.triggers.parsing import words_of

from .accounts import AccountHandlers
from .base import Handlers

_LONGEST = timedelta(seconds=10)
_JOBS_NAMED = 10
_ACCOUNTS = 200


class PreviewHandlers(PreviewOperations, Handlers):
    """Looks at targets; stores nothing."""

    async def preview(self, target: str, source: str | None = None, *, fetch: bool = True) -> TargetPreview:
        fitting = _sources_for(target, source)
        spec, form = await self._complete(fitting[0], target)
        found = SourcePreview(collects=form.collects)
        if fetch and form.preview is not None:
            found = await self._look(form, spec)
            if source is None and found.source not in (None, fitting[0]):
                fitting = [str(found.source), *(name for name in fitting if name != found.source)]
                spec, form = await self._complete(fitting[0], found.target or target)
        return TargetPreview(
            text=target,
            source=spec.source,
            sources=tuple(fitting),
            target=spec.target,
            name=slug(spec),
            schedule=words_of(spec.when),
            collects=found.collects,
            title=found.title,
            note=found.note,
            missing=await self._missing(form, spec),
            jobs=tuple(await self._jobs_of(spec)),
            count=found.count,
            items=found.items,
            others=found.others,
        )

    async def _complete(self, source: str, target: str) -> tuple[JobSpec, JobForm]:
        form = find_form(source)
        spec = JobSpec(source=source, target=target.strip(), when=When(schedule_type=ScheduleType.EVENT))
        if form.complete is not None:
            spec = form.complete(spec, self.resources.settings)
        return await self.complete_spec(spec), form

    async def _look(self, form: JobForm, spec: JobSpec) -> SourcePreview:
        assert form.preview is not None
        tools = PreviewTools(http=self.resources.http, settings=self.resources.settings, now=self.resources.clock.now())
        limit = min(_LONGEST, self.deadline or _LONGEST)
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return await form.preview(spec, tools)
        except TimeoutError:
            note = f"it has not answered within {limit.total_seconds():g} s"
        except Exception as error:  # noqa: BLE001 - a source of any package may raise anything; people see it
            note = describe(error)
        return SourcePreview(collects=form.collects, note=note)

    async def _missing(self, form: JobForm, spec: JobSpec) -> str | None:
        if form.find_missing is None:
            return None
        accounts: Sequence[AccountRow] = ()
        if form.uses_account:
            handlers = AccountHandlers(self.resources, self.actor, role=self.role, deadline=self.deadline)
            accounts = (await handlers.accounts(limit=_ACCOUNTS)).items
        return form.find_missing(spec, self.resources.settings, accounts)

    async def _jobs_of(self, spec: JobSpec) -> list[str]:
        found = await self.store.jobs.find(source=spec.source, target=spec.target, limit=_JOBS_NAMED)
        return [job.name for job in found]


def _sources_for(target: str, source: str | None) -> list[str]:
    """Return the sources that fit, the wanted one first. A wanted source that does not fit says so itself."""
    if source is None:
        return recognise(target)
    with suppress(InvalidInput):
        return [source, *(name for name in recognise(target) if name != source)]
    return [source]
