"""The OpenAPI document: what FastAPI knows of the routes, and what all of them have in common."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .problems import KINDS, MEDIA_TYPE, Problem

TAGS: list[dict[str, Any]] = [
    {"name": "Jobs", "description": "What is collected, when, and under which policy."},
    {"name": "Executions", "description": "What ran, what runs, and how it went."},
    {"name": "Streams", "description": "What was collected, and how far: watermarks, items, events."},
    {"name": "Reports", "description": "What scans have found, with pictures, and what has changed since the last."},
    {"name": "Dead letters", "description": "Executions that failed for good."},
    {"name": "Limits", "description": "Who has to wait: limits and breakers."},
    {"name": "Triggers", "description": "What fires jobs from outside."},
    {"name": "Scheduler", "description": "The fleet: health, workers, draining."},
    {"name": "Accounts", "description": "What sources log in with; their sessions come in and are never shown."},
    {"name": "Installation", "description": "Tokens, audit, sync, moving over, and whether everything holds."},
    {"name": "Live", "description": "What happens, as it happens."},
    {"name": "Health", "description": "For load balancers and Prometheus."},
]
_SCHEMAS = "#/components/schemas/"


def document(app: FastAPI) -> dict[str, Any]:
    """The document, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _made(app)
    return app.openapi_schema


def _made(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=TAGS,
    )
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    told = Problem.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    schemas.update(told.pop("$defs", {}))
    schemas["Problem"] = told
    components["responses"] = {f"Problem{status}": _problem(status) for status in KINDS}
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of `floodmark tokens add`."}
    }
    # Either with a token or, from the machine itself while there are none, without.
    made["security"] = [{"token": []}, {}]
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return made


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": f"{_SCHEMAS}Problem"}
    return {"description": KINDS[status][1], "content": {MEDIA_TYPE: {"schema": schema}}}


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Every answer that an operation can give."""
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
    # What a route tells of by itself is a problem as well.
    possible += [int(status) for status in responses if status >= "400"]
    for status in sorted(set(possible)):
        known = responses.get(str(status))
        if known is None or _SCHEMAS + "HTTPValidationError" in str(known):
            responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
        else:
            # An answer of its own for that status; but something else can go wrong as well.
            known.setdefault("content", {}).setdefault(MEDIA_TYPE, {"schema": {"$ref": f"{_SCHEMAS}Problem"}})
