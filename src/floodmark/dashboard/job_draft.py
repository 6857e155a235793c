"""A job in a form that changes it: what was typed, and what the form first showed. Pure.

Only what differs from the texts that the form first showed is changed. So when someone else has changed the job
meanwhile, the form continues from their job and keeps what was typed here.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from floodmark.errors import FloodmarkError
from floodmark.model.job import Job
from floodmark.sources.form import JobForm, find_form

from .actions import first
from .field_texts import json_text
from .job_form import field_names, read_changes, texts_of_job
from .param_form import PARAMS, read_params, texts_of_params
from .refusals import PageRefusals
from .when_form import KEPT, WhenForm, columns_of_when

_SCHEDULE = WhenForm.__struct_fields__


class JobDraft(Struct, kw_only=True):
    """A job in a form. `base` has the texts that the form first showed, `others` the fields changed by others."""

    job: Job
    form: JobForm
    texts: dict[str, str]
    base: dict[str, str]
    version: int
    fields: Mapping[str, list[str]] = {}
    others: tuple[str, ...] = ()
    refusals: PageRefusals = field(default_factory=PageRefusals)

    @classmethod
    def of(cls, job: Job) -> "JobDraft":
        """Return the form of a job as it is."""
        form = find_form(job.source)
        options, others = texts_of_params(job.source, form, job.params)
        params = {PARAMS: json_text(others) if others else ""}
        when = msgspec.structs.asdict(WhenForm.of(job.when))
        texts = {**texts_of_job(job), **_no_texts(form, job.source), **options, **params, **when}
        return cls(job=job, form=form, texts=texts, base=dict(texts), version=job.version)

    def read(self, fields: Mapping[str, list[str]]) -> None:
        """Take what was typed. Fields that are missing in the form keep their texts."""
        self.fields = fields
        self.texts = {name: first(fields, name) if name in fields else text for name, text in self.texts.items()}
        version = first(fields, "version")
        self.version = int(version) if version.isdecimal() and len(version) < 10 else self.version
        try:
            self.base = msgspec.json.decode(first(fields, "base"), type=dict[str, str])
        except msgspec.MsgspecError as error:
            self.refusals.add("", FloodmarkError(f"the form is damaged: {error}", hint="load the page again"))

    @property
    def when(self) -> WhenForm:
        """What was typed about the schedule."""
        return WhenForm(**{name: self.texts[name].strip() for name in _SCHEDULE})

    @property
    def base_text(self) -> str:
        """The texts that the form first showed, for a hidden field."""
        return msgspec.json.encode(self.base).decode()

    def changes(self) -> dict[str, Any]:
        """Return the columns that differ from what the form first showed; refused values are noted."""
        changes = read_changes(self.fields, self.base, self.refusals)
        if any(self._differs(name) for name in self.texts if name.startswith("option.") or name == PARAMS):
            changes["params"] = read_params(self.job.source, self.form, self.fields, self.job.params, self.refusals)
        if any(self._differs(name) for name in _SCHEDULE) and self.when.way != KEPT:
            try:
                changes |= columns_of_when(self.when.when())
            except FloodmarkError as error:
                self.refusals.add(self.when.field, error)
        return changes

    def continue_from(self, current: Job) -> None:
        """Show the job as others have changed it. What was typed here stays."""
        fresh = JobDraft.of(current)
        self.others = tuple(name for name, text in fresh.texts.items() if text != self.base.get(name, ""))
        taken = {name: fresh.texts[name] for name in self.others if not self._differs(name)}
        self.texts, self.base, self.version = {**self.texts, **taken}, fresh.texts, current.version

    def refuse(self, error: FloodmarkError) -> None:
        """Note an error of the server at the field that its message begins with."""
        options = {option.param: f"option.{self.job.source}.{option.param}" for option in self.form.options}
        self.refusals.place(error, {**options, **field_names()})

    def _differs(self, name: str) -> bool:
        return self.texts.get(name, "").strip() != self.base.get(name, "").strip()


def _no_texts(form: JobForm, source: str) -> dict[str, str]:
    return {f"option.{source}.{option.param}": "" for option in form.options}
