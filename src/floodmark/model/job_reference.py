"""Prints docs/reference/jobs.md: `python -m floodmark.model.job_reference > docs/reference/jobs.md`."""

from collections.abc import Iterable

from .job_fields import FIELDS, JobField

HEAD = """# Fields of a job

<!-- Written by `python -m floodmark.model.job_reference > docs/reference/jobs.md`; edit src/floodmark/model/job.py. -->

The names are the same in the [API](api.md), in JSON, in the columns of the table `jobs` and in `Client.add_job`.
In Python, a duration is a `timedelta` without `_seconds` in its name: `timeout_seconds` is `Job.timeout`.
The option in the last column sets the field in `floodmark add` and `floodmark edit` ([commands](cli.md)).
"""


def page() -> str:
    """Return all fields of a job as a Markdown page."""
    fields = FIELDS.values()
    own = [field for field in fields if field.is_settable and field.part is None]
    return HEAD + "".join(
        [
            _table("Job", own),
            _table("Schedule", (field for field in fields if field.part == "when")),
            _table("Policy", (field for field in fields if field.part == "policy")),
            "\n## Set by Floodmark\n\n| field | value | description |\n|---|---|---|\n",
            *(_row(field.name, field.form, field.declared.description) for field in fields if not field.is_settable),
        ]
    )


def _table(title: str, fields: Iterable[JobField]) -> str:
    head = f"\n## {title}\n\n| field | value | default | description | option |\n|---|---|---|---|---|\n"
    return head + "".join(
        _row(
            field.name,
            field.form if field.example is None else f"{field.form}, for example `{field.example}`",
            field.default_words or "",
            field.declared.description,
            "" if field.declared.option is None else f"`{field.declared.option.name}`",
        )
        for field in fields
    )


def _row(name: str, *cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{name}`", *cells)) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
