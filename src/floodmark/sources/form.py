"""The form of a new job: how a source describes its target and its options to the command line and the dashboard."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from floodmark.model.accounts import AccountRow
from floodmark.model.previews import SourcePreview
from floodmark.model.spec import JobSpec
from floodmark.process.entry_points import find_extensions, load_extension

if TYPE_CHECKING:
    from floodmark.model.fleet import Finding, WorkerInfo
    from floodmark.outbound.client import Http
    from floodmark.settings import Settings
    from floodmark.store.database import Database

# The group of entry points. Each has the name of a source and names its `JobForm`.
FORMS = "floodmark.forms"


class ParamOption(Struct, frozen=True):
    """An option of `floodmark add` that sets a param of the job.

    `kind` is `str`, `int`, `bool`, or `list[str]` for an option that can be repeated. `flags` are the names of the
    option, such as `--deep` or `--feeds/--no-feeds`; by default they are made from `param`. They must differ from the
    options of all jobs. `default` is only shown in the help. With `is_file` the command line takes the name of a file,
    and the param is its text.
    """

    param: str
    help: str
    kind: Any = str
    flags: str = ""
    metavar: str | None = None
    min: int | None = None
    default: str | None = None
    is_file: bool = False


class FoundTarget(Struct, frozen=True, kw_only=True):
    """A target that a source has listed. `is_extra`: added only on request."""

    target: str
    title: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Other columns of its job."""
    is_extra: bool = False


class TargetListing(Struct, frozen=True, kw_only=True):
    """An option of `floodmark add` that adds all targets that a source can list, such as the channels of an account.

    `find(operations, value)` returns them for the value of the option. `extra` is the flag that adds the extra targets.
    """

    flags: str
    metavar: str
    help: str
    extra: str
    extra_help: str
    find: Callable[[Any, str], Awaitable[Sequence[FoundTarget]]]


class PreviewTools(Struct, frozen=True, kw_only=True):
    """What a preview may use: guarded HTTP, the settings and the present time."""

    http: "Http"
    settings: "Settings"
    now: datetime


class CheckTools(Struct, frozen=True, kw_only=True):
    """What a check of `floodmark doctor` may use. `workers`: those that are alive."""

    database: "Database"
    settings: "Settings"
    workers: "Sequence[WorkerInfo]"


class JobForm(Struct, frozen=True, kw_only=True):
    """The form of `floodmark add SOURCE TARGET`: the help text, the target and the options of one source.

    An example can follow the `help` in a paragraph of its own. With `uses_account` there is an option `--account`, and
    a job belongs to the tenant of its account.

    `complete(spec, settings)` normalises the target of a new job; a second job for the same target is then refused
    unless it has a name. A source of a package can set `one_job_per_target` instead, which holds for the API too.

    `find_missing(spec, settings, accounts)` returns what must still be set up before the new job can run, with the next
    step, or None. The job is added anyway. `listing` is an option that adds many targets.

    `fit(text)` returns how well a text fits as a target: from 0, it cannot be one, to 1, it cannot be anything else.
    `collects` says in one sentence what is collected. `preview(spec, tools)` looks at the target of a new job and
    returns what would be collected; it stores nothing, and an error that it raises is shown as its result.

    `catches_up(settings)` returns for how long the source catches up by itself after an outage: before that its jobs
    are not reported as stale. `check(tools)` returns findings for `floodmark doctor`; it changes nothing.
    """

    help: str
    metavar: str = "TARGET"
    target_help: str = "Target, in the format of the source."
    options: tuple[ParamOption, ...] = ()
    uses_account: bool = False
    complete: "Callable[[JobSpec, Settings], JobSpec] | None" = None
    second_job_needs: str = "a --name"
    fit: Callable[[str], float] | None = None
    collects: str = "What the source yields."
    preview: "Callable[[JobSpec, PreviewTools], Awaitable[SourcePreview]] | None" = None
    find_missing: "Callable[[JobSpec, Settings, Sequence[AccountRow]], str | None] | None" = None
    listing: TargetListing | None = None
    catches_up: "Callable[[Settings], timedelta] | None" = None
    check: "Callable[[CheckTools], Awaitable[Sequence[Finding]]] | None" = None


_OTHER_FORM = JobForm(
    help="""Collect from your own source or the source of a package; on demand if no schedule is given.

    floodmark add folder inbox --every 1m --app myapp:app
    """
)


def find_form(source: str, show: Callable[[str], str] = str) -> JobForm:
    """Return the form of a source; a general one if it has none or its package is broken.

    `show` prepares the error of a broken package for the help text.
    """
    try:
        form: JobForm = load_extension(FORMS, source)
    except Exception as error:  # noqa: BLE001 - another package is broken: its help says so, and the others work
        is_missing = source not in find_extensions(FORMS)
        return _OTHER_FORM if is_missing else JobForm(help=f"Its options are unknown: {show(str(error))}")
    return form


def find_patience(settings: "Settings") -> dict[str, timedelta]:
    """Return for how long sources catch up by themselves, by the name of the source."""
    found = find_forms().items()
    return {source: form.catches_up(settings) for source, form in found if form.catches_up is not None}


def find_forms() -> dict[str, JobForm]:
    """Return the form of every source that has one, by the name of the source."""
    return {source: find_form(source) for source in sorted(find_extensions(FORMS))}
