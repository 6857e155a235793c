"""Jobs as a file that people keep in Git: a stable order, one value per line, no secrets, nothing that is a default.

`defaults` of the file has the values that the settings of the installation decide; a job has only what differs from
them. A secret is written as `***`: `floodmark apply` keeps the stored one.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from floodmark.model.job import Job, Policy, ScheduleType
from floodmark.model.job_fields import SETTABLE
from floodmark.model.shapes import job_shape
from floodmark.rules.budgets import DEFAULT_BUDGET
from floodmark.rules.streams import stream_name
from floodmark.security.masking import mask_answer
from floodmark.sources.validation import MASKABLE

from .documents import VERSION
from .toml_text import toml_table, toml_value

_HEAD = """# Jobs of Floodmark. Compare with an installation: floodmark apply FILE --dry-run
# *** is a secret that is not exported: apply keeps the stored one. For a new job, write "${env:NAME}".
"""
_SCHEDULE_OF = {
    ScheduleType.CRON: "cron_expression",
    ScheduleType.INTERVAL: "interval_seconds",
    ScheduleType.CALENDAR: "frequency",
}


def defaults_of(policy: Policy, timeout: timedelta, retry_max: int) -> dict[str, Any]:
    """Return the columns that the settings of an installation decide."""
    decided = [field for field in SETTABLE if field.part == "policy" and field.declared.unset is not None]
    shown = {field.name: getattr(policy, field.attribute) for field in decided}
    return _plain({"timeout_seconds": timeout, "retry_max": retry_max, **shown})


def export_jobs(
    jobs: Iterable[Job], defaults: Mapping[str, Any], selection: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the document of an export. `selection` are the filters that chose the jobs."""
    chosen = {"selection": dict(selection)} if selection else {}
    entries = [_entry(job, defaults) for job in sorted(jobs, key=lambda job: job.name)]
    return {"version": VERSION, **chosen, "defaults": dict(defaults), "jobs": entries}


def write_toml(document: Mapping[str, Any]) -> str:
    """Return an export as TOML."""
    parts = [_HEAD, f"version = {document['version']}\n"]
    parts += [f"\n[{part}]\n{toml_table(document[part])}" for part in ("selection", "defaults") if part in document]
    parts += [f"\n[[jobs]]\n{toml_table(_without_null(entry))}" for entry in document["jobs"]]
    return "".join(parts)


def write_json(document: Mapping[str, Any]) -> str:
    """Return an export as JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entry(job: Job, defaults: Mapping[str, Any]) -> dict[str, Any]:
    shape = _plain(job_shape(job))
    shape |= mask_answer({name: shape[name] for name in MASKABLE})
    usual = {field.name: defaults.get(field.name, _plain_value(field.default)) for field in SETTABLE}
    entry = {name: shape[name] for name, value in usual.items() if shape[name] != value}
    if shape["stream"] == stream_name(None, shape["source"], shape["target"]):
        entry.pop("stream", None)
    kind = job.when.schedule_type
    if _SCHEDULE_OF.get(kind) in entry:
        # It follows from the other column.
        del entry["schedule_type"]
    if kind is ScheduleType.ADAPTIVE and job.budget == DEFAULT_BUDGET:
        del entry["budget"]
    return entry


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON has them; whole numbers without a fraction."""
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return _plain_value(value.total_seconds())
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else getattr(value, "value", value)


def _without_null(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job with params that contain null as JSON text: TOML has no null."""
    found = dict(entry)
    for name in ("params", "time_config"):
        if name in found:
            try:
                toml_value(found[name])
            except TypeError:
                found[name] = json.dumps(found[name], ensure_ascii=False)
    return found
