"""The spec of a job: every field that a person can set."""

import hashlib
import unicodedata

import msgspec

from .job import JobFields

_SLUG_LENGTH = 80
# The fields that make up the mark of a declaration, in this order. A later field counts only if it is set: it must
# not make every declaration look changed. Never change this list.
_MARKED = (
    "source", "target", "when", "name", "stream", "policy", "params", "tags", "priority", "timeout", "retry_max",
    "limit_key", "account", "depends_on", "schedule_enabled", "domain", "domain_config_id", "profile_id", "source_id",
    "url", "tenant_id", "user_id", "trigger_webhook", "trigger_channel",
)  # fmt: skip


class JobSpec(JobFields, frozen=True, kw_only=True):
    """A job to create. The default name and stream are derived from source and target.

    `depends_on` has the names or ids of other jobs. `declared` is the mark of a declaration in code.
    """

    name: str | None = None
    declared: str | None = None


def slug(spec: JobSpec) -> str:
    """Return a name that is easy to type: "telegram-durov", "web-example-com-news", or "news" for a function."""
    target = spec.target.partition("://")[2] or spec.target
    said = target.rpartition(":")[2] if spec.source == "python" else f"{spec.source} {target}"
    words = unicodedata.normalize("NFKC", said).lower()
    spaced = "".join(letter if letter.isalnum() else " " for letter in words)
    return "-".join(spaced.split())[:_SLUG_LENGTH].strip("-") or "job"


def declaration(spec: JobSpec) -> str:
    """Return the mark of a declaration: it changes when the declaration in the code changes."""
    later = [
        field.name
        for field in msgspec.structs.fields(JobSpec)
        if field.name not in (*_MARKED, "declared") and getattr(spec, field.name) != field.default
    ]
    parts = [f'"{name}":{_json(getattr(spec, name))}' for name in (*_MARKED, *later)]
    said = f'{{{",".join(parts)},"declared":null}}'
    return spec.declared or hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
