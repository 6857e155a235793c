"""Find the form of a source."""

from floodmark.process.entry_points import find_extensions, load_extension
from floodmark.sources.form import FORMS, JobForm

from .output import plain

OTHER_FORM = JobForm(
    help="""Collect from your own source or the source of a package; on demand if no schedule is given.

    floodmark add folder inbox --every 1m --app myapp:app
    """
)


def find_form(source: str) -> JobForm:
    """Return the form of a source; a general one if the source has none or its package is broken."""
    try:
        form: JobForm = load_extension(FORMS, source)
    except Exception as error:  # noqa: BLE001 - another package is broken: its help says so, and the others work
        is_missing = source not in find_extensions(FORMS)
        return OTHER_FORM if is_missing else JobForm(help=f"Its options are unknown: {plain(str(error))}")
    return form
