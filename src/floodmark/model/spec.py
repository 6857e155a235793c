"""What a person says about a job they want: everything but what only Floodmark knows."""

import hashlib
import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from .job import Policy, Priority, When

_SLUG_LENGTH = 80


class JobSpec(Struct, frozen=True, kw_only=True):
    """A job to be made. Without a name it gets one from its source and target, without a stream its own.

    `depends_on` names other jobs, by name or id. `declared` is the mark of a declaration in code.
    """

    source: str
    target: str
    when: When
    name: str | None = None
    stream: str | None = None
    policy: Policy = Policy()
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    priority: Priority = Priority.NORMAL
    timeout: timedelta = timedelta(hours=1)
    retry_max: int = 3
    limit_key: str | None = None
    account: str | None = None
    depends_on: tuple[str, ...] = ()
    schedule_enabled: bool = True
    domain: str | None = None
    domain_config_id: str | None = None
    profile_id: str | None = None
    source_id: str | None = None
    url: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    trigger_webhook: str | None = None
    trigger_channel: str | None = None
    declared: str | None = None


def slug(spec: JobSpec) -> str:
    """A name that can be typed: "telegram-durov", "web-example-com-news", and a function's own, "news"."""
    target = spec.target.partition("://")[2] or spec.target
    said = target.rpartition(":")[2] if spec.source == "python" else f"{spec.source} {target}"
    words = unicodedata.normalize("NFKC", said).lower()
    spaced = "".join(letter if letter.isalnum() else " " for letter in words)
    return "-".join(spaced.split())[:_SLUG_LENGTH].strip("-") or "job"


def declaration(spec: JobSpec) -> str:
    """The mark of a declaration: the same for as long as the code says the same."""
    said = msgspec.json.encode(replace(spec, declared=None), order="deterministic")
    return spec.declared or hashlib.blake2b(said, digest_size=16).hexdigest()
