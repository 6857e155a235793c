"""Operations are declared once: what follows from a declaration is there."""

import subprocess
import sys

import pytest

from floodmark.api.app import create_app
from floodmark.client import Client, SyncClient
from floodmark.client.requests import request_of
from floodmark.errors import InvalidInput
from floodmark.operations.declaration import operations_of
from floodmark.operations.declared import Operations
from floodmark.operations.local import handlers_of

_LOOK = "import sys, floodmark.client; print(*({'sqlalchemy', 'fastapi', 'pydantic'} & set(sys.modules)))"


def test_every_operation_has_a_handler() -> None:
    for operation in operations_of(Operations):
        assert callable(getattr(handlers_of(operation), operation.name))


def test_every_operation_has_a_route_with_its_summary() -> None:
    paths = create_app(None).openapi()["paths"]
    for operation in operations_of(Operations):
        route = paths[f"/api/v2{operation.path}"][operation.method.lower()]
        assert operation.summary
        assert route["summary"] == operation.summary
        assert route["operationId"] == operation.operation_id


def test_both_clients_have_every_operation() -> None:
    names = {operation.name for operation in operations_of(Operations)}
    assert names <= set(dir(Client)) & set(dir(SyncClient))


def test_importing_the_client_loads_no_database_and_no_web_framework() -> None:
    looked = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
    assert looked.stdout.split() == []


def test_arguments_travel_where_the_declaration_says() -> None:
    request = request_of(Operations.set_limit, {"key": "a/b", "seconds": 5.0, "reason": "rest"})
    assert (request.method, request.path) == ("PUT", "/limits/a%2Fb")
    assert (request.query, request.body) == ({}, {"seconds": 5.0, "reason": "rest"})
    with pytest.raises(InvalidInput, match="a name is missing"):
        request_of(Operations.clear_limit, {"key": ""})
