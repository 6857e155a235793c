"""Changes of a job on condition of its version: `If-Match`."""

from collections.abc import Mapping
from typing import Any

from floodmark.errors import Conflict
from floodmark.model.job import Job
from floodmark.operations.declaration import Operation
from floodmark.operations.jobs import etag_of

from .problems import Stale


async def call_if_match(handlers: Any, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Any:
    """Call the handler of an operation. If `version` is an If-Match header, raise `Stale` unless it matches."""
    call, if_match = getattr(handlers, operation.name), arguments.get("version")
    if not isinstance(if_match, str):
        return await call(**arguments)
    before: Job = await handlers.job(arguments["name"])
    version = _expected_version(if_match, before)
    try:
        return await call(**{**arguments, "name": before.job_id, "version": version})
    except Conflict as error:
        if version is not None and (await handlers.job(before.job_id)).version != version:
            raise Stale(str(error), hint="get it again and send your change with its new ETag") from error
        raise


def _expected_version(if_match: str, job: Job) -> int | None:
    """Return the version that If-Match names; None if it accepts any."""
    if if_match.strip() == "*":
        return None
    if etag_of(job.version) in [tag.strip() for tag in if_match.split(",")]:
        return job.version
    raise Stale(
        f"{job.name} is at version {job.version}, not {if_match[:60]}",
        hint="get it again, look at what has changed, and send your change with its new ETag",
    )
