"""Sync with a server that answers well, badly, and not at all. Whatever is wrong with it changes nothing."""

import asyncio
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from api.serving import served
from command_line import CommandLine
from floodmark.client import Client
from floodmark.errors import Conflict, FloodmarkError, InvalidInput, Unavailable
from floodmark.model.audit import Actor
from floodmark.observability.events import Events, LeaderElectionAttempted, SchedulesSynced, StepFailed
from floodmark.operations.local import LocalOperations
from floodmark.repositories.jobs import Jobs
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.store.tables import audit, facts, jobs
from floodmark.sync.report import Report
from floodmark.sync.request import MOST_BYTES, SLOWEST_BYTES_PER_SECOND
from floodmark.sync.sync import build_sync
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import count_of, given_job, rows_of
from floodmark.testing.web.serving import serve_app
from floodmark.wiring.resources import Resources, open_resources
from system.stores import a_spec

pytestmark = pytest.mark.spec("E6")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answering = Callable[["Publisher"], Handler]

ACTOR = Actor(who="ada", via="cli", request_id="r1")


def a_row(number: int, **data: Any) -> dict[str, Any]:
    schedule = {"frequency": "daily", "time": {"hour": 2, "minute": 0}}
    return {
        "domain_config_id": f"c{number}",
        "data": {"domain": f"site{number}.example", "schedule": schedule, **data},
    }


class Publisher:
    """The program that keeps schedules: says what it is told to say."""

    def __init__(self) -> None:
        self.rows: list[Any] = [a_row(number) for number in range(5)]
        self.handler: Handler = self.good
        self.requests: list[web.Request] = []
        self.url = ""

    async def good(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"data": self.rows})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.handler(request)


@asynccontextmanager
async def published() -> AsyncIterator[Publisher]:
    publisher = Publisher()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", publisher.handle)
    async with serve_app(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True) as port:
        publisher.url = f"http://127.0.0.1:{port}/schedules"
        yield publisher


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    async with published() as publisher:
        yield publisher


def opened(url: str, publisher: Publisher, **settings: Any) -> Any:
    chosen = {
        "database_url": url,
        "api_url": publisher.url,
        "hostname": "test",
        "http_allow_hosts": "127.0.0.1",
        **settings,
    }
    events = chosen.pop("events", None)
    return open_resources(Settings(**chosen), events=events)


def counts(report: Report) -> tuple[int, int, int, int]:
    return report.created, report.updated, report.skipped, report.disabled


async def state(resources: Resources) -> Any:
    """Everything a sync could change, but for how the last one went."""
    kept = [row for row in await rows_of(resources, facts) if row["name"] != "sync_last"]
    return await rows_of(resources, jobs), await rows_of(resources, audit), kept


# What it does


async def test_schedules_are_created_updated_and_skipped(migrated_url: str, publisher: Publisher) -> None:
    async with opened(migrated_url, publisher, job_misfire_grace_time=timedelta(seconds=77)) as resources:
        sync = build_sync(resources, ACTOR)
        assert counts(await sync.run()) == (5, 0, 0, 0)
        before = await state(resources)
        assert counts(await sync.run()) == (0, 0, 5, 0)
        assert await state(resources) == before

        publisher.rows[0] = a_row(0, maxPages=9, maxRetries=1)
        publisher.rows.append(a_row(7))
        report = await sync.run()
        assert counts(report) == (1, 1, 4, 0)
        job = await LocalOperations(resources, ACTOR).job("cookies-site0-example")
        assert (job.params, job.retry_max, job.version) == ({"maxPages": 9}, 1, 2)
        assert job.policy.misfire_grace == timedelta(seconds=77)
        assert (job.domain, job.domain_config_id, job.tags) == ("site0.example", "c0", ("sync",))

        rows = await rows_of(resources, audit, object="job:cookies-site0-example")
        assert [(row["who"], row["via"], row["action"], row["request_id"]) for row in rows] == [
            ("ada", "sync", "job.added", "r1"),
            ("ada", "sync", "job.changed", "r1"),
        ]
        assert rows[1]["before"] == {"params": {}, "retry_max": 3}
        [*_, done] = await rows_of(resources, audit, object="sync")
        assert done["after"] == {"created": 1, "updated": 1, "skipped": 4, "disabled": 0}


async def test_a_new_schedule_is_planned_and_a_changed_one_anew(migrated_url: str, publisher: Publisher) -> None:
    async with opened(migrated_url, publisher) as resources:
        await build_sync(resources, ACTOR).run()
        role = SchedulerRole(resources)
        await role.leader.step()
        await role.scheduler.step()
        planned = {row["name"]: row["next_run"] for row in await rows_of(resources, jobs)}
        assert {(when.hour, when.minute) for when in planned.values()} == {(2, 0)}

        publisher.rows[0]["data"]["schedule"]["time"] = {"hour": 5, "minute": 30}
        await build_sync(resources, ACTOR).run()
        await role.scheduler.step()
        again = {row["name"]: row["next_run"] for row in await rows_of(resources, jobs)}
        assert (again["cookies-site0-example"].hour, again["cookies-site0-example"].minute) == (5, 30)
        assert [name for name in planned if planned[name] != again[name]] == ["cookies-site0-example"]


async def test_what_a_person_changed_stays_until_the_api_says_something_else(
    migrated_url: str, publisher: Publisher
) -> None:
    async with opened(migrated_url, publisher) as resources:
        sync, operations = build_sync(resources, ACTOR), LocalOperations(resources, ACTOR)
        await sync.run()
        await operations.change_job(
            "cookies-site0-example", {"time_config": {"hour": 9}, "priority": 1, "name": "mine"}
        )
        assert counts(await sync.run()) == (0, 0, 5, 0)
        assert (await operations.job("mine")).when.time_config == {"hour": 9}
        publisher.rows[0] = a_row(0, scanDepth=2)
        assert counts(await sync.run()) == (0, 1, 4, 0)
        job = await operations.job("mine")
        assert (job.when.time_config, int(job.priority), job.params) == ({"hour": 2, "minute": 0}, 1, {"scanDepth": 2})


async def test_jobs_of_others_are_never_touched(migrated_url: str, publisher: Publisher) -> None:
    async with opened(migrated_url, publisher, sync_disable_missing=True) as resources:
        others = [
            await given_job(resources, name="cookies-site0-example"),
            await given_job(resources, name="elsewhere", domain_config_id="c1", declared="ab12"),
        ]
        report = await build_sync(resources, ACTOR).run()
        assert counts(report) == (4, 0, 0, 0)
        assert [error.domain_config_id for error in report.errors] == ["c0"]
        assert "'cookies-site0-example' exists and was not created by a sync" in report.errors[0].error
        rows = [row for row in await rows_of(resources, jobs) if row["job_id"] in others]
        assert [(row["version"], row["schedule_type"], row["domain"]) for row in rows] == [(1, "event", None)] * 2
        status = await build_sync(resources, ACTOR).status()
        assert status.last is not None
        assert (status.jobs, status.last.error_count) == (4, 1)
        assert status.last.errors == report.errors


async def test_code_does_not_take_over_what_a_sync_has_made(light_url: str, publisher: Publisher) -> None:
    async with opened(light_url, publisher) as resources:
        await build_sync(resources, ACTOR).run()
        before = await state(resources)
        with pytest.raises(Conflict, match="was made by a sync"):
            await Jobs(resources.database, resources.clock).declare(a_spec("cookies-site0-example"))
        assert await state(resources) == before


async def test_a_job_that_was_removed_comes_back_with_the_next_sync(migrated_url: str, publisher: Publisher) -> None:
    async with opened(migrated_url, publisher) as resources:
        await build_sync(resources, ACTOR).run()
        await LocalOperations(resources, ACTOR).remove_job("cookies-site0-example")
        assert counts(await build_sync(resources, ACTOR).run()) == (1, 0, 4, 0)


async def test_a_dry_run_tells_row_by_row_and_changes_nothing(migrated_url: str, publisher: Publisher) -> None:
    async with opened(migrated_url, publisher, sync_disable_missing=True) as resources:
        await build_sync(resources, ACTOR).run()
        before, last = await state(resources), await build_sync(resources, ACTOR).status()
        publisher.rows = [*publisher.rows[1:], a_row(9)]
        publisher.rows[0] = a_row(1, maxPages=3)
        report = await build_sync(resources, ACTOR).run(dry_run=True)
        assert counts(report) == (1, 1, 3, 1)
        assert {change.name: change.action for change in report.changes} == {
            "cookies-site0-example": "disabled",
            "cookies-site1-example": "updated",
            "cookies-site9-example": "created",
        }
        [updated] = [change for change in report.changes if change.action == "updated"]
        assert (updated.before, updated.after) == ({"params": {}}, {"params": {"maxPages": 3}})
        assert await state(resources) == before
        assert await build_sync(resources, ACTOR).status() == last


async def test_an_answer_that_still_holds_is_not_sent_again(migrated_url: str, publisher: Publisher) -> None:
    async def tagged(request: web.Request) -> web.StreamResponse:
        if request.headers.get("If-None-Match") == '"v1"':
            return web.Response(status=304)
        return web.json_response({"data": publisher.rows}, headers={"ETag": '"v1"'})

    publisher.handler = tagged
    async with opened(migrated_url, publisher) as resources:
        assert not (await build_sync(resources, ACTOR).run()).not_modified
        await LocalOperations(resources, ACTOR).remove_job("cookies-site0-example")
        report = await build_sync(resources, ACTOR).run()
        # The last good answer is still known: what it says holds.
        assert report.not_modified
        assert counts(report) == (1, 0, 4, 0)
        assert [request.headers.get("If-None-Match") for request in publisher.requests] == [None, '"v1"']
    # Another address has not said that.
    async with opened(migrated_url, publisher, api_url=f"{publisher.url}/other") as resources:
        assert not (await build_sync(resources, ACTOR).run()).not_modified


async def test_missing_schedules_are_disabled_within_bounds_and_beyond_only_by_force(
    migrated_url: str, publisher: Publisher
) -> None:
    async with opened(migrated_url, publisher, sync_disable_missing=True) as resources:
        sync, operations = build_sync(resources, ACTOR), LocalOperations(resources, ACTOR)
        everything = list(publisher.rows)
        await sync.run()
        publisher.rows = everything[1:]
        assert counts(await sync.run()) == (0, 0, 4, 1)
        assert not (await operations.job("cookies-site0-example")).schedule_enabled
        assert counts(await sync.run()) == (0, 0, 4, 0)

        before = await state(resources)
        publisher.rows = [everything[4], a_row(9)]
        with pytest.raises(Conflict, match="would disable 3 of 4 jobs, and 20% are allowed") as refused:
            await sync.run()
        assert "floodmark sync --force" in refused.value.hint
        assert "3 of 4" in str((await sync.run(dry_run=True)).refused)
        assert await state(resources) == before
        assert counts(await sync.run(force=True)) == (1, 0, 1, 3)
        assert "sync.forced" in [row["action"] for row in await rows_of(resources, audit)]

        publisher.rows = everything
        assert counts(await sync.run(force=True)) == (0, 4, 1, 1)
        assert (await operations.job("cookies-site0-example")).schedule_enabled


async def test_an_answer_without_schedules_changes_nothing(migrated_url: str, publisher: Publisher) -> None:
    async with opened(migrated_url, publisher) as resources:
        await build_sync(resources, ACTOR).run()
        before = await state(resources)
        publisher.rows = []
        with pytest.raises(Conflict, match="no schedule, and 5 jobs came from it before"):
            await build_sync(resources, ACTOR).run()
        assert await state(resources) == before


async def test_syncs_at_the_same_time_are_harmless(migrated_url: str, publisher: Publisher) -> None:
    async with opened(migrated_url, publisher) as one, opened(migrated_url, publisher) as other:
        reports = await asyncio.gather(*(build_sync(resources, ACTOR).run() for resources in (one, other) * 3))
        assert sorted(counts(report) for report in reports) == [(0, 0, 5, 0)] * 5 + [(5, 0, 0, 0)]
        assert await count_of(one, jobs) == 5
        assert await count_of(one, audit) == 6


async def test_an_older_answer_does_not_undo_a_newer_one(migrated_url: str, publisher: Publisher) -> None:
    """One that was slow to read what holds no more asks again."""
    asked, go_on, old = asyncio.Event(), asyncio.Event(), list(publisher.rows)

    async def slow_at_first(_: web.Request) -> web.StreamResponse:
        if len(publisher.requests) > 1:
            return web.json_response({"data": publisher.rows})
        asked.set()
        await go_on.wait()
        return web.json_response({"data": old})

    publisher.handler = slow_at_first
    async with opened(migrated_url, publisher) as resources:
        late = asyncio.create_task(build_sync(resources, ACTOR).run())
        await asked.wait()
        publisher.rows = [a_row(0, maxPages=2), *old[1:]]
        await build_sync(resources, ACTOR).run()
        go_on.set()
        assert counts(await late) == (0, 0, 5, 0)
        assert (await LocalOperations(resources, ACTOR).job("cookies-site0-example")).params == {"maxPages": 2}


async def test_without_an_address_it_says_what_to_set(light_url: str, publisher: Publisher) -> None:
    async with opened(light_url, publisher, api_url=None) as resources:
        with pytest.raises(InvalidInput, match="API_URL is not set") as refused:
            await build_sync(resources, ACTOR).run()
        assert "API_URL" in refused.value.hint


# What it meets


def says(body: bytes, **options: Any) -> Answering:
    """Answers with these bytes."""

    def answering(_: Publisher) -> Handler:
        async def handler(_: web.Request) -> web.StreamResponse:
            return web.Response(body=body, **{"content_type": "application/json", **options})

        return handler

    return answering


def says_json(*rows: Any, **more: Any) -> Answering:
    def answering(_: Publisher) -> Handler:
        async def handler(_: web.Request) -> web.StreamResponse:
            return web.json_response({"data": rows, **more})

        return handler

    return answering


def leads(where: str) -> Answering:
    """Redirects; to itself and ever further, or to elsewhere."""

    def answering(publisher: Publisher) -> Handler:
        async def handler(_: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": where.format(number=len(publisher.requests))})

        return handler

    return answering


def silent(_: Publisher) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return handler


def dripping(_: Publisher) -> Handler:
    """A byte now and then: never silent for long, and never done."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    return handler


def endless(_: Publisher) -> Handler:
    """Does not say how long it is, and has no end."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    return handler


def breaking_off(_: Publisher) -> Handler:
    """Promises more than it sends."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"data": []}')
        assert request.transport is not None
        request.transport.close()
        return response

    return handler


def resetting(_: Publisher) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        # Without lingering: the other side gets a reset, not an end.
        request.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        request.transport.abort()
        return web.Response()

    return handler


BOMB = gzip.compress(b'{"data": [' + b" " * (12 * 1024 * 1024) + b"]}", 9)
PACKED = {"headers": {"Content-Encoding": "gzip"}}

WRONG: dict[str, tuple[Answering, str]] = {
    "an empty body": (says(b""), "it is empty"),
    "a bare list": (says(b"[]"), "expected `object`, got `array`"),
    "truncated JSON": (says(b'{"data": [{"domain_config_id": "c1", "da'), "truncated"),
    "a web page": (says(b"<html>", content_type="text/html"), "its content type is 'text/html'"),
    "a server error": (says(b'{"data": []}', status=500), "status 500"),
    "not found": (says(b'{"data": []}', status=404), "status 404"),
    "no content": (says(b"", status=204), "status 204"),
    "not modified, though nobody asked": (says(b"", status=304), "status 304"),
    "a redirect loop": (leads("/schedules?again={number}"), "redirects more than 3 times"),
    "a redirect to another server": (leads("http://other.example/x"), "to another server, http://other.example"),
    "a redirect to a file": (leads("file:///etc/passwd"), "cannot be read"),
    "a redirect to nowhere": (leads(""), "redirects without a target"),
    "slow headers": (silent, "took longer than"),
    "a slow body": (dripping, "too slowly"),
    "a huge body": (says(b" " * (MOST_BYTES + 1)), "larger than 8 MB"),
    "an endless body": (endless, "larger than 8 MB"),
    "a gzip bomb": (says(BOMB, **PACKED), "larger than 8 MB"),
    "half a gzip": (says(gzip.compress(b'{"data": []}')[:-9], **PACKED), "is incomplete"),
    "not gzip though it says so": (says(b'{"data": []}', **PACKED), "not validly compressed"),
    "another packing": (says(b"x", headers={"Content-Encoding": "br"}), "Content-Encoding 'br'"),
    "wrong types": (says_json({"domain_config_id": 7, "data": {}}), "expected `str`, got `int`"),
    "an id twice": (says_json(a_row(1), a_row(2), a_row(1)), "'c1' twice"),
    "control characters": (says_json(a_row(1, accept_selector="\x1b[2J")), "not printable"),
    "a very long text": (says_json(a_row(1, description="x" * 100_000)), "length <= 2000"),
    "a connection that is reset": (resetting, "cannot be read"),
    "a connection that breaks off": (breaking_off, "was lost"),
    "invalid UTF-8": (says(b'{"data": [{"domain_config_id": "\xff"}]}'), "not UTF-8"),
    "deep nesting": (says(b'{"data": ' + b"[" * 200_000), "expected `object`, got `array`"),
}


@pytest.fixture
def light_url(sqlite_copy: str) -> str:
    """A SQLite database, where the kind does not matter."""
    return sqlite_copy


# The head of a slow body has to arrive within the same time.
PATIENCE: dict[Answering, timedelta] = {silent: timedelta(seconds=0.3), dripping: timedelta(seconds=3)}


@pytest.fixture
async def synced(light_url: str, publisher: Publisher) -> str:
    """A database in which five schedules were synced."""
    async with opened(light_url, publisher) as resources:
        await build_sync(resources, ACTOR).run()
    return light_url


@pytest.mark.parametrize("what", WRONG)
async def test_whatever_is_wrong_changes_nothing_and_is_told(synced: str, publisher: Publisher, what: str) -> None:
    answering, why = WRONG[what]
    patience = PATIENCE.get(answering, timedelta(seconds=60))
    async with opened(synced, publisher, sync_disable_missing=True, request_timeout=patience) as resources:
        before = await state(resources)
        publisher.handler = answering(publisher)
        with pytest.raises(Unavailable) as refused:
            await build_sync(resources, ACTOR).run(force=True)
        assert why in str(refused.value)
        assert str(refused.value).isprintable()
        assert "nothing was changed" in refused.value.hint
        assert await state(resources) == before

        last = (await build_sync(resources, ACTOR).status()).last
        assert last is not None
        assert (last.ok, last.error, last.schedules) == (False, str(refused.value), 5)
        assert last.last_good_at is not None
    async with opened(synced, publisher) as resources:
        publisher.handler = publisher.good
        assert counts(await build_sync(resources, ACTOR).run()) == (0, 0, 5, 0)


async def test_a_large_answer_may_take_longer_if_it_keeps_coming(light_url: str, publisher: Publisher) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        # Enough for eight seconds more than REQUEST_TIMEOUT, and then a break that is longer than that time-out.
        await response.write(b" " * 8 * SLOWEST_BYTES_PER_SECOND)
        await asyncio.sleep(3.2)
        await response.write(msgspec.json.encode({"data": publisher.rows}))
        return response

    publisher.handler = handler
    async with opened(light_url, publisher, request_timeout=timedelta(seconds=3)) as resources:
        assert counts(await build_sync(resources, ACTOR).run()) == (5, 0, 0, 0)


async def test_nobody_there_changes_nothing(synced: str, publisher: Publisher) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://me:hunter2@127.0.0.1:{taken.getsockname()[1]}/x?token=hunter2"
        async with opened(synced, publisher, api_url=url) as resources:
            before = await state(resources)
            with pytest.raises(Unavailable, match="cannot be read") as refused:
                await build_sync(resources, ACTOR).run()
            assert await state(resources) == before
            # Neither in what is told nor in what is kept.
            assert "cannot connect to 127.0.0.1" in str(refused.value)
            assert (
                "hunter2"
                not in f"{refused.value}{await rows_of(resources, facts)}{await build_sync(resources, ACTOR).status()}"
            )


async def test_a_good_answer_may_be_packed_redirected_and_called_otherwise(
    light_url: str, publisher: Publisher
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/schedules":
            return web.Response(status=307, headers={"Location": "/v2/schedules"})
        found = web.json_response({"data": publisher.rows}, content_type="application/vnd.api+json")
        found.enable_compression(web.ContentCoding.gzip)
        return found

    publisher.handler = handler
    url = publisher.url.replace("http://", "http://me:word@")
    async with opened(light_url, publisher, api_url=url) as resources:
        assert counts(await build_sync(resources, ACTOR).run()) == (5, 0, 0, 0)
    assert [request.headers["Authorization"][:6] for request in publisher.requests] == ["Basic ", "Basic "]


# Who asks for it


async def test_the_leader_syncs_by_itself_and_goes_on_after_a_failure(light_url: str, publisher: Publisher) -> None:
    events, failed, synced = Events(), list[StepFailed](), list[SchedulesSynced]()
    events.listen(StepFailed, failed.append)
    events.listen(SchedulesSynced, synced.append)
    publisher.handler = says(b"")(publisher)
    interval = timedelta(seconds=0.1)
    async with opened(light_url, publisher, sync_interval=interval, events=events) as resources:
        stop = asyncio.Event()
        running = asyncio.create_task(SchedulerRole(resources).run(stop))
        try:
            await eventually(lambda: failed)
            assert (failed[0].step, "it is empty" in failed[0].error) == ("sync", True)
            publisher.handler = publisher.good

            async def made() -> bool:
                return await count_of(resources, jobs) == 5

            await eventually(made)
            await eventually(lambda: synced)
            assert (synced[0].who, synced[0].created, synced[0].errors) == ("scheduler", 5, 0)
            # One that hangs does not keep the process from leaving.
            publisher.handler, seen = silent(publisher), len(publisher.requests)
            await eventually(lambda: len(publisher.requests) > seen)
        finally:
            stop.set()
            await running
        assert {row["who"] for row in await rows_of(resources, audit)} == {"scheduler"}


async def test_who_does_not_lead_does_not_sync(light_url: str, publisher: Publisher) -> None:
    async with opened(light_url, publisher) as resources:
        stop, elections = asyncio.Event(), list[LeaderElectionAttempted]()
        resources.events.listen(LeaderElectionAttempted, elections.append)
        await resources.leases.acquire(
            resources.settings.scheduler_leader_key, holder="another", ttl=timedelta(hours=1)
        )
        role = asyncio.create_task(SchedulerRole(resources).run(stop))
        await eventually(lambda: len(elections) > 2)
        stop.set()
        await role
        assert publisher.requests == []


async def test_over_http_it_is_the_same(light_url: str, publisher: Publisher) -> None:
    async with opened(light_url, publisher) as resources, served(resources) as api:
        assert (await api.get("sync")).json()["last"] is None
        tried = (await api.post("sync", json={"dry_run": True})).json()
        assert (tried["created"], tried["dry_run"]) == (5, True)
        done = (await api.post("sync")).json()
        assert {name: done[name] for name in ("created", "updated", "skipped")} == {
            "created": 5,
            "updated": 0,
            "skipped": 0,
        }
        status = (await api.get("sync")).json()
        assert (status["jobs"], status["last"]["ok"], status["last"]["who"]) == (5, True, "local")

        publisher.rows = []
        refused = await api.post("sync", json={})
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:floodmark:conflict")
        publisher.handler = says(b"")(publisher)
        away = await api.post("sync", json={})
        assert (away.status_code, "it is empty" in away.json()["detail"]) == (503, True)
        assert (await api.post("sync", json={"forse": True})).status_code == 422

        publisher.handler, publisher.rows = publisher.good, [a_row(number) for number in range(5)]
        async with Client(api.base) as client:
            assert counts(await client.sync(dry_run=True)) == (0, 0, 5, 0)
            assert (await client.sync_status()) == await build_sync(resources, ACTOR).status()
            publisher.rows = []
            with pytest.raises(FloodmarkError, match="contains no schedule"):
                await client.sync()


async def test_on_the_command_line_it_is_told_row_by_row(
    light_url: str, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(
        tmp_path,
        DATABASE_URL=light_url,
        API_URL=publisher.url,
        HTTP_ALLOW_HOSTS="127.0.0.1",
        SYNC_DISABLE_MISSING="true",
    )

    async def said(*command: str) -> str:
        return (await asyncio.to_thread(cli.good, "sync", *command)).out

    assert "last               never" in await said("--status")
    assert "This would be: 5 created, 0 updated, 0 skipped, 0 disabled." in await said("--dry-run")
    assert "site0.example, daily 02:00 UTC" in await said()
    assert await said() == "0 created, 0 updated, 5 skipped, 0 disabled.\n"

    publisher.rows = [
        a_row(1, maxPages=7, description="x"),
        a_row(2, schedule={"frequency": "daily", "time": {"hour": 25}}),
        a_row(3),
    ]
    shown = await said("--dry-run")
    assert "params.description: - -> x; params.maxPages: - -> 7" in shown
    assert "hour is 25 (hour is a whole number from 0 to 23)" in shown
    assert "It would be refused: it would disable 2 of 5 jobs, and 20% are allowed at once." in shown
    await asyncio.to_thread(lambda: cli.refused("sync", says="would disable 2 of 5 jobs"))
    tried = await asyncio.to_thread(cli.good, "sync", "--dry-run", "--force")
    assert "Apply it: floodmark sync --force" in tried.out + tried.err
    assert "1 updated, 1 skipped, 2 disabled, 1 error." in await said("--force")

    publisher.handler = says(b"")(publisher)
    await asyncio.to_thread(lambda: cli.refused("sync", says="it is empty", code=1))
    assert "it is empty" in await said("--status")
    answer = await asyncio.to_thread(cli.good, "sync", "--status", "--json")
    assert (answer.json["last"]["ok"], answer.json["jobs"]) == (False, 5)
    await asyncio.to_thread(lambda: cli.refused("sync", "--status", "--force", says="changes nothing"))
