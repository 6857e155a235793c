"""Jobs, executions and events as JSON: plain values under names that stay. Times are UTC, durations seconds."""

from collections.abc import Mapping
from typing import Any

import msgspec

from .execution import Execution
from .job import NEVER, Job


def job_shape(job: Job) -> dict[str, Any]:
    """A job under the names of its columns."""
    when, policy = job.when, job.policy
    return {
        "job_id": job.job_id,
        "name": job.name,
        "source": job.source,
        "target": job.target,
        "stream": job.stream,
        "params": job.params,
        "tags": job.tags,
        **msgspec.structs.asdict(when),
        "next_run": None if job.next_run == NEVER else job.next_run,
        "planned_until": job.planned_until,
        "last_run": job.last_run,
        "last_success": job.last_success,
        "last_status": job.last_status,
        "schedule_enabled": job.schedule_enabled,
        "paused": job.paused,
        "pause_reason": job.pause_reason,
        "invalid_reason": job.invalid_reason,
        "priority": job.priority,
        "timeout_seconds": job.timeout.total_seconds(),
        "retry_max": job.retry_max,
        "overlap": policy.overlap,
        "max_instances": policy.max_instances,
        "coalesce": policy.coalesce,
        "misfire_grace_seconds": policy.misfire_grace.total_seconds(),
        "catch_up": policy.catch_up,
        "jitter_seconds": policy.jitter.total_seconds(),
        "depends_on": job.depends_on,
        "limit_key": job.limit_key,
        "account": job.account,
        "domain": job.domain,
        "domain_config_id": job.domain_config_id,
        "profile_id": job.profile_id,
        "source_id": job.source_id,
        "url": job.url,
        "tenant_id": job.tenant_id,
        "user_id": job.user_id,
        "trigger_webhook": job.trigger_webhook,
        "trigger_channel": job.trigger_channel,
        "scheduler_version": job.scheduler_version,
        "version": job.version,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def execution_shape(execution: Execution) -> dict[str, Any]:
    """An execution under the names of its columns."""
    return msgspec.structs.asdict(execution)


def event_shape(event: Any) -> Mapping[str, Any]:
    """An event, its data as the JSON it is."""
    return msgspec.structs.asdict(event) | {"data": msgspec.Raw(event.data.encode())}
