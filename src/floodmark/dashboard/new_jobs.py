"""New jobs in a form: a list of targets, when they are collected, and the options of their sources. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.accounts import AccountRow
from floodmark.model.previews import TargetPreview
from floodmark.sources.form import find_form

from .actions import first
from .job_form import field_names, read_changes
from .param_form import read_params
from .refusals import PageRefusal, PageRefusals
from .when_form import WhenForm, columns_of_when

MOST_LINES = 200


class Line(Struct, kw_only=True):
    """One target: its preview, or why it was refused. `source` was chosen instead of the recognised one."""

    text: str
    source: str | None = None
    preview: TargetPreview | None = None
    refusal: PageRefusal | None = None
    added: str | None = None
    """The name of the job that was made of it."""

    def refuse(self, error: FloodmarkError) -> None:
        """Note why it was refused."""
        refusals = PageRefusals()
        refusals.add("", error)
        self.refusal = refusals[""]


class NewJobsForm(Struct, kw_only=True):
    """The form: what was typed, and what is known about each line."""

    what: str
    lines: list[Line]
    texts: Mapping[str, str]
    fields: Mapping[str, list[str]]
    when: WhenForm
    refusals: PageRefusals = field(default_factory=PageRefusals)

    @classmethod
    def read(cls, fields: Mapping[str, list[str]], *, zone: str) -> "NewJobsForm":
        """Return what was typed. Each line is one target; equal lines count once."""
        what, refusals = first(fields, "what"), PageRefusals()
        texts = list(dict.fromkeys(line.strip() for line in what.splitlines() if line.strip()))
        if len(texts) > MOST_LINES:
            hint = f"add up to {MOST_LINES} at once here; for more, import them: floodmark import --help"
            refusals.add("what", InvalidInput(f"there are {len(texts):,} lines", hint=hint))
            texts = []
        # The value of a choice is the source and the line, so that it stays with its line.
        chosen = {text: source for source, _, text in (value.partition(" ") for value in fields.get("kind", ()))}
        return cls(
            what=what,
            lines=[Line(text=text, source=chosen.get(text) or None) for text in texts],
            texts={name: values[0] for name, values in fields.items()},
            fields=fields,
            when=WhenForm.read(fields, timezone=zone),
            refusals=refusals,
        )

    @property
    def sources(self) -> list[str]:
        """The sources of all lines, in order."""
        return list(dict.fromkeys(line.preview.source for line in self.lines if line.preview is not None))

    @property
    def is_single(self) -> bool:
        """Whether there is one line: it may have a name of its own."""
        return len(self.lines) == 1

    def columns(self, accounts: Mapping[str, AccountRow]) -> dict[str, dict[str, Any]]:
        """Return the columns of new jobs by source; refused values are noted."""
        common = read_changes(self.fields, {}, self.refusals, is_new=True)
        if not self.is_single:
            common.pop("name", None)
        try:
            common |= columns_of_when(self.when.when())
        except FloodmarkError as error:
            self.refusals.add(self.when.field, error)
        if self.when.way != "adaptive":
            for name in ("max_delay_seconds", "weight"):
                common.pop(name, None)
        return {source: self._columns_of(source, common, accounts) for source in self.sources}

    def _columns_of(self, source: str, common: Mapping[str, Any], accounts: Mapping[str, AccountRow]) -> dict[str, Any]:
        form, columns = find_form(source), dict(common)
        columns["params"] = read_params(source, form, self.fields, {}, self.refusals)
        account = accounts.get(str(columns.pop("account", ""))) if form.uses_account else None
        if account is not None:
            columns["account"] = account.name
            if account.tenant_id is not None:
                # A job belongs to the tenant of its account.
                columns.setdefault("tenant_id", account.tenant_id)
        return columns

    def refuse(self, line: Line, error: FloodmarkError) -> None:
        """Note an error of the server: at the field that its message begins with, else at its line."""
        assert line.preview is not None
        source = line.preview.source
        names = {option.param: f"option.{source}.{option.param}" for option in find_form(source).options}
        before = len(self.refusals)
        self.refusals.place(error, {**names, **field_names(), "target": "", "": ""})
        if "" in self.refusals:
            del self.refusals[""]
            line.refuse(error)
        elif len(self.refusals) == before:
            # Another line was refused for the same reason.
            line.refuse(error)
