"""The OpenAPI document: the routes as FastAPI describes them, with what they have in common."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from floodmark.model.problems import KINDS

from .problems import MEDIA_TYPE, Problem

TAGS: list[dict[str, Any]] = [
    {"name": "Jobs", "description": "Jobs: what to collect, when, and under which policy."},
    {"name": "Executions", "description": "Runs of jobs: past, current, and their results."},
    {"name": "Streams", "description": "Collected data: watermarks, items, events."},
    {"name": "Search", "description": "Full-text search of collected items, and its index."},
    {"name": "Media", "description": "Files of posts: wanted, stored, failed."},
    {"name": "Completeness", "description": "What was read completely, gaps, and hash chains of streams."},
    {"name": "Export", "description": "Collected data in bulk: streams, items, and changes by position."},
    {"name": "Consumers", "description": "Stored positions of readers and exports."},
    {"name": "Sinks", "description": "Where events are delivered: positions, pauses, replays, refused events."},
    {"name": "Reports", "description": "Results of cookie scans, with pictures, and differences between scans."},
    {"name": "Dead letters", "description": "Executions that failed permanently."},
    {"name": "Limits", "description": "Rate limits and circuit breakers."},
    {"name": "Budgets", "description": "Budgets: how many requests jobs may make together."},
    {"name": "Triggers", "description": "External triggers: webhooks, and channels and streams of Redis."},
    {"name": "Watches", "description": "Watches: notify people of items that match, and of sources."},
    {"name": "Notifications", "description": "Channels that people are notified over, and tests of them."},
    {"name": "Scheduler", "description": "The fleet: health, workers, draining."},
    {"name": "Accounts", "description": "Accounts of sources; their sessions are stored encrypted and never shown."},
    {"name": "Secrets", "description": "Secrets that jobs refer to by name; their values are never shown."},
    {"name": "Installation", "description": "Tokens, audit log, sync, migration from an older scheduler, self-checks."},
    {"name": "Live", "description": "Events as they happen."},
    {"name": "Health", "description": "For load balancers and Prometheus."},
]
_SCHEMAS = "#/components/schemas/"


def document(app: FastAPI, routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the document; it is built once."""
    if app.openapi_schema is None:
        app.openapi_schema = _build(app, routes)
    return app.openapi_schema


def _build(app: FastAPI, routes: Sequence[BaseRoute]) -> dict[str, Any]:
    built = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=routes,
        tags=TAGS,
    )
    components = built.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schema = Problem.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    schemas.update(schema.pop("$defs", {}))
    schemas["Problem"] = schema
    components["responses"] = {f"Problem{status}": _problem(status) for status in KINDS}
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of `floodmark tokens add`."}
    }
    # With a token; or without, from this machine while there are none.
    built["security"] = [{"token": []}, {}]
    for path, operations in built["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return built


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": f"{_SCHEMAS}Problem"}
    return {"description": KINDS[status][1], "content": {MEDIA_TYPE: {"schema": schema}}}


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add every response that an operation can give."""
    possible = [400, 401, 403, 429, 500, 503]
    if operation.get("parameters") or "requestBody" in operation:
        possible.append(422)
    names = {parameter["name"].lower() for parameter in operation.get("parameters", ())}
    if "{" in path or names & {"job", "stream"}:
        possible.append(404)
    if method != "get":
        possible += [404, 409, 413]
    if "if-match" in names:
        possible.append(412)
    responses = operation["responses"]
    # Error responses that a route declares itself are problems as well.
    possible += [int(status) for status in responses if status >= "400"]
    for status in sorted(set(possible)):
        known = responses.get(str(status))
        if known is None or _SCHEMAS + "HTTPValidationError" in str(known):
            responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
        else:
            # The route has its own response for this status, but a problem is possible as well.
            known.setdefault("content", {}).setdefault(MEDIA_TYPE, {"schema": {"$ref": f"{_SCHEMAS}Problem"}})
