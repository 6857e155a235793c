"""JSON nested without end: refused wherever it comes in, and harmless where it is stored already."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from api.serving import Api, served
from floodmark.cli.parsing import json_object, params_of
from floodmark.errors import InvalidInput
from floodmark.model.strict_json import MAX_DEPTH, NotJson, TooDeep, read_json, require_shallow
from floodmark.testing.factories import TTL, Opened, given_executions, given_job
from floodmark.wiring.resources import Resources

JSON = {"Content-Type": "application/json"}


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.spec("G9")
def test_the_bound_is_exact() -> None:
    for deepest in (nested(MAX_DEPTH), "[" * MAX_DEPTH + "]" * MAX_DEPTH, '"' + "[{" * 500 + '"'):
        assert read_json(deepest) is not None
        assert read_json(deepest.encode()) is not None
    for levels in (MAX_DEPTH + 1, 500, 990, 5000, 1_000_000):
        for deeper in (nested(levels), "[" * levels + "]" * levels):
            with pytest.raises(TooDeep):
                read_json(deeper)
    for broken in (b"\xff", b"{", b"1e999", b"9" * 5000, b'"\\ud800"'):
        with pytest.raises(NotJson):
            read_json(broken)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TooDeep):
        require_shallow(endless)


@pytest.mark.spec("G9")
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 500, 100_000])
def test_params_on_a_command_line_are_bounded(levels: int) -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        params_of([f"a={nested(levels)}"])
    with pytest.raises(InvalidInput, match="nested too deeply"):
        json_object(nested(levels), example="{}")


@pytest.mark.spec("V8", "G9")
async def test_every_body_is_bounded_and_changes_nothing(light: Api) -> None:
    await light.job("news")
    deep = nested(500)
    for method, path, body in [
        ("POST", "jobs", f'{{"source": "python", "target": "t", "params": {deep}}}'),
        ("PATCH", "jobs/news", f'{{"params": {deep}}}'),
        ("PUT", "jobs/news", f'{{"source": "python", "target": "t", "params": {deep}}}'),
        ("POST", "jobs/news/force-run", f'{{"params": {deep}}}'),
        ("POST", "triggers/webhooks", deep),
        ("POST", "triggers/webhook", deep),
        ("POST", "triggers/webhook/a", deep),
    ]:
        refused = await light.client.request(method, f"/api/v2/{path}", content=body, headers=JSON)
        assert refused.status_code in (400, 422), (method, path, refused.text)
        assert "nested too deeply" in refused.json()["detail"], (method, path)
    [job] = (await light.get("jobs")).json()["items"]
    assert (job["version"], (await light.get("executions")).json()["items"]) == (1, [])


async def _spoil(resources: Resources, table: str, column: str, key: str, value: str) -> None:
    cast = "CAST(:deep AS jsonb)" if resources.database.dialect == "postgresql" else ":deep"
    where = {"jobs": "job_id", "job_executions": "execution_id", "watermarks": "stream"}[table]
    async with resources.database.writing() as connection:
        statement = text(f"UPDATE {table} SET {column} = {cast} WHERE {where} = :key")
        await connection.execute(statement, {"deep": value, "key": key})


@pytest.mark.spec("E4", "G9")
@pytest.mark.parametrize("levels", [500, 3000])
async def test_a_row_that_is_nested_too_deeply_stops_nothing(opened: Opened, levels: int) -> None:
    """Typed by hand, or stored by an older version."""
    async with opened() as resources, served(resources) as api:
        ids = [await given_job(resources, name=name) for name in ("params", "execution", "watermark", "sound")]
        executions = await given_executions(resources, ids)
        await _spoil(resources, "jobs", "params", ids[0], nested(levels))
        await _spoil(resources, "job_executions", "params", executions[1], nested(levels))
        async with resources.database.writing() as connection:
            await connection.execute(text("INSERT INTO watermarks (stream) VALUES ('test:watermark')"))
        await _spoil(resources, "watermarks", "value", "test:watermark", nested(levels))

        for path in ("jobs", "jobs/params", "executions", f"executions/{executions[1]}", "overview", "streams"):
            answer = await api.get(path)
            assert answer.status_code == 200, (path, answer.text[:300])
        leases = await resources.queue.lease(10, worker="a", ttl=TTL, wait=timedelta())
    unreadable = {lease.job.name: lease.job.unreadable for lease in leases}
    assert {name for name, reason in unreadable.items() if reason is None} == {"sound"}
    assert set(unreadable) == {"params", "execution", "watermark", "sound"}
