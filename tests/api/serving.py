"""The API of an open process on a real port, and a client for it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx2
import jsonschema
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from floodmark import Floodmark
from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.sources.port import Source
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources


class Api:
    """A client that holds every answer against the OpenAPI document of the server it talks to."""

    def __init__(self, resources: Resources, app: Any, client: httpx2.AsyncClient) -> None:
        self.resources, self.app, self.client = resources, app, client
        self.base = str(client.base_url).rstrip("/")

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("POST", path, **options)

    async def put(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("PUT", path, **options)

    async def patch(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("PATCH", path, **options)

    async def delete(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("DELETE", path, **options)

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Any request. Paths are below /api/v2, unless they begin with a slash."""
        found = await self.client.request(method, path if path.startswith("/") else f"/api/v2/{path}", **options)
        assert found.headers["x-request-id"]
        self._conforms(method, found)
        return found

    async def job(self, name: str = "news", **columns: Any) -> dict[str, Any]:
        """A job that was made."""
        body = {"name": name, "source": "python", "target": f"feeds:{name}", "interval_seconds": 900, **columns}
        made = await self.post("jobs", json=body)
        assert made.status_code == 201, made.text
        found: dict[str, Any] = made.json()
        return found

    def _conforms(self, method: str, answer: httpx2.Response) -> None:
        """The answer is as the document says, if it is one of the document's operations."""
        operation = self._operation(method, answer.request.url.raw_path.decode().partition("?")[0])
        if operation is None:
            assert answer.status_code in (404, 405), answer.text
            return
        told = operation["responses"].get(str(answer.status_code))
        assert told is not None, f"{method} {answer.request.url}: {answer.status_code} is not documented\n{answer.text}"
        if "$ref" in told:
            told = document()["components"]["responses"][told["$ref"].rpartition("/")[2]]
        kind = answer.headers.get("content-type", "").partition(";")[0]
        assert kind in told.get("content", {"": {}}), f"{kind} is not documented for {answer.status_code}"
        schema = told.get("content", {}).get(kind, {}).get("schema")
        if schema and "json" in kind:
            _checker(json.dumps(schema)).validate(answer.json())

    def _operation(self, method: str, path: str) -> Any:
        for known, operations in document()["paths"].items():
            resources, asked = known.split("/"), path.split("/")
            fits = len(resources) == len(asked) and all(
                one == other or (one.startswith("{") and other) for one, other in zip(resources, asked, strict=True)
            )
            if fits and method.lower() in operations:
                return operations[method.lower()]
        return None


@cache
def document() -> Any:
    """The OpenAPI document, made once: it takes its time."""
    return create_app(None).openapi()


@cache
def _checker(schema: str) -> Any:
    """Checks answers against a schema of the document."""
    whole = DRAFT202012.create_resource(document())
    about = schema.replace('"#/', '"floodmark:api#/')
    registry: Registry[Any] = Registry().with_resource("floodmark:api", whole)
    return jsonschema.Draft202012Validator(json.loads(about), registry=registry)


def _sources(resources: Resources) -> Mapping[str, Source]:
    """The sources of a server whose operator lists the modules that the tests name."""
    settings = resources.settings.model_copy(update={"python_modules": "feeds, a, x"})
    return Floodmark(settings).sources(imports=False)


@asynccontextmanager
async def serving(opened: Opened, **settings: Any) -> AsyncIterator[Api]:
    """Open a process and serve its API on a free port of this machine."""
    async with opened(**settings) as resources, served(resources) as api:
        yield api


@asynccontextmanager
async def served(resources: Resources, **options: Any) -> AsyncIterator[Api]:
    """Serve the API of an open process."""
    app = create_app(resources, **{"sources": _sources(resources), **options})
    async with (
        HttpServer(app, leaving=app.state.live.close) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=120, trust_env=False, verify=False) as client,
    ):
        yield Api(resources, app, client)
