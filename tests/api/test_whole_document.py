"""Every operation of the OpenAPI document, asked by schemathesis: no 500, and every answer as the document says.

Asked of a real process, three times over: by an admin, with whatever fits the document and what does not; by somebody
without a token and then by an admin, about things that are there. The requests are the same in every run.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
import schemathesis
from msgspec.structs import replace
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import delete, literal, select

from api.serving import document
from api_process import api_process
from backends import opening
from cookies.kept import a_scan, keep_scans
from floodmark.errors import Conflict, NotFound
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.execution import State
from floodmark.model.external_triggers import NewTrigger
from floodmark.model.job import NEVER
from floodmark.model.watches import WatchFields
from floodmark.observability.events import Events
from floodmark.operations.local import LocalOperations
from floodmark.operations.stored_tokens import Tokens
from floodmark.operations.tables import sessions, tokens
from floodmark.outbound.breakers import Breakers
from floodmark.repositories.fleet import FleetRepository
from floodmark.repositories.jobs import Jobs
from floodmark.repositories.secrets import StoredSecrets
from floodmark.rules.breaker import Breaker, BreakerState
from floodmark.security.vault import Vault
from floodmark.sinks.trial import build_test_event
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.tables import account_logins, media
from floodmark.store.database import PostgresDatabase, SqliteDatabase, open_database
from floodmark.store.dialects import insert_into
from floodmark.store.migrate import migrate
from floodmark.store.tables import job_executions
from floodmark.store.types import UtcTime
from floodmark.wiring.resources import Resources
from servers import Postgres
from system.stores import Crew, a_spec, put_execution

AnyCase = Case[Any]
# Its answers have no end, so there is no telling when one is complete; tests/api/test_live.py reads it.
ENDLESS = "/api/v2/live"
# What is answered without a token: this machine may look, and a webhook may be signed instead.
OPEN = {
    "/health": (200,),
    "/health/ready": (200,),
    "/health/live": (200,),
    "/health/details": (200,),
    "/metrics": (200,),
    "/api/v2/triggers/webhook": (400, 401),
    "/api/v2/triggers/webhook/{path}": (400, 401),
}
EXECUTION = "0" * 31 + "7"
SECRET = "a secret key for tests, long enough"
# Something of each kind that is there, under the name that paths have for it.
# A watch needs a channel. The process that is asked does not have it, so that no message is sent.
SLACK = "https://hooks.example.com/services/1"
THERE: dict[str, str] = {
    "job_id": "news",
    "execution_id": EXECUTION,
    "stream": "news",
    "key": "1",
    "trigger": "%2Fthere",
    "name": "spare",
    "path": "there",
    "domain": "example.com",
    "file": "report.html",
    "session_id": "5" * 16,
    "login_id": "there",
    "consumer": "reader:there",
    "watch": "there",
    "media_id": "9000001",
    "channel": "slack",
}
# Ends of paths under which things are removed or leave their state, though not by DELETE.
REMOVING = ("/bulk", "/cleanup", "/drop", "/prune", "/retry")
# Whoever sends webhooks is no program of ours: what can be understood is taken, also if it is not quite as documented.
LENIENT = ("/api/v2/triggers/webhook", "/api/v2/triggers/webhook/{path}")
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def ask_each(
    ask: Callable[[AnyCase], None],
    subtests: pytest.Subtests,
    examples: int,
    *modes: GenerationMode,
    has_documented: bool = True,
) -> None:
    """Make requests of these kinds for each operation of the document, and so many of each; and those of the document.

    At run time: `schema.parametrize()` makes all requests when tests are collected, which takes seconds of each process
    of a run.
    """
    schema = schemathesis.openapi.from_dict(document()).exclude(path=ENDLESS)
    schema.config.generation.update(modes=list(modes), max_examples=examples, deterministic=True, no_shrink=True)
    schema.config.phases.coverage.enabled = False
    schema.config.phases.examples.enabled = has_documented

    def test(case: AnyCase) -> None:
        ask(case)

    for found in get_all_tests(schema=schema, test_func=test, settings=None, given_kwargs=None):
        assert isinstance(found, Ok), found
        operation, ask_operation = found.ok()
        with subtests.test(operation.label):
            ask_operation()


def has_body(case: AnyCase) -> bool:
    return not isinstance(case.body, NotSet)


class Place:
    """A process that serves the API, and the database behind it."""

    def __init__(self, url: str, resources: Resources, runner: asyncio.Runner) -> None:
        self.url, self._resources, self._runner, self._session = url, resources, runner, requests.Session()
        self.token = runner.run(Tokens(resources.database, resources.clock).add("keeper", "admin")).text
        runner.run(_pretend_fleet(resources))
        self.furnish()

    def furnish(self) -> None:
        """Put everything of `THERE` back where it was."""
        self._runner.run(_furnish(self._resources))

    def ask(self, case: AnyCase, token: str | None = None) -> Any:
        """The answer, which is as the document says."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        checks = CHECKS if case.path in LENIENT else [*CHECKS, negative_data_rejection]
        # The first request that needs Telethon imports it, which takes a while on a busy machine.
        return case.call_and_validate(
            base_url=self.url, session=self._session, headers=headers, checks=checks, timeout=60
        )


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving_place(f"sqlite:///{tmp_path_factory.mktemp('asked')}/floodmark.db") as place:
        yield place


@pytest.fixture(scope="module")
def on_postgresql(postgres: Postgres) -> Iterator[Place]:
    """PostgreSQL refuses more than SQLite does, and has to be asked anything."""
    with serving_place(postgres.create_database(f"asked_{uuid4().hex[:12]}")) as place:
        yield place


@contextmanager
def serving_place(url: str) -> Iterator[Place]:
    with asyncio.Runner() as runner:
        runner.run(_migrate(url))
        opened = opening(url)(notify_slack_url=SLACK)
        resources = runner.run(opened.__aenter__())
        try:
            with api_process(url, FLOODMARK_SECRET_KEY=SECRET) as served:
                yield Place(served, resources, runner)
        finally:
            runner.run(opened.__aexit__(None, None, None))


@pytest.mark.spec("V8", "G9")
@pytest.mark.release
def test_whatever_is_asked_is_answered_as_documented(
    on_postgresql: Place, subtests: pytest.Subtests, is_release: bool
) -> None:
    def ask(case: AnyCase) -> None:
        on_postgresql.ask(case, on_postgresql.token)

    # The requests that the document has as examples are made below.
    ask_each(ask, subtests, 4 if is_release else 2, *GenerationMode, has_documented=is_release)


@pytest.mark.spec("V8", "G9")
@pytest.mark.thorough
def test_what_is_there_is_answered_as_documented_and_nothing_is_told_without_a_token(
    on_sqlite: Place, subtests: pytest.Subtests, is_release: bool
) -> None:
    def ask(case: AnyCase) -> None:
        case.path_parameters = {name: THERE[name] for name in case.path_parameters or {}}
        refused = on_sqlite.ask(case)
        # A body that cannot be read is refused before anyone asks who sent it.
        assert refused.status_code in OPEN.get(case.path, (401, 422) if has_body(case) else (401,)), refused.text
        answer = on_sqlite.ask(case, on_sqlite.token)
        if answer.status_code < 400 and (case.method == "DELETE" or case.path.endswith(REMOVING)):
            on_sqlite.furnish()
        # What the rest of the request names need not be there.
        assert answer.status_code != 404 or case.query or has_body(case)

    ask_each(ask, subtests, 2 if is_release else 1, GenerationMode.POSITIVE)


async def _migrate(url: str) -> None:
    database = open_database(url, events=Events())
    await migrate(database)
    await database.close()


async def _pretend_fleet(resources: Resources) -> None:
    """Say that a scheduler and a worker run: without them `/health` is rightly an error of the server."""
    fleet, hour = FleetRepository(resources.database, resources.clock), timedelta(hours=1)
    await fleet.tick("one", hour)
    await fleet.record_presence("one", role="worker", hostname="h", pid=1, slots=1, busy=0, draining=False, ttl=hour)


async def _furnish_session(resources: Resources) -> None:
    found = insert_into(resources.database, sessions).from_select(
        ["session_id", "digest", "token_id", "expires_at"],
        select(literal(THERE["session_id"]), literal("x"), tokens.c.token_id, literal(NEVER, UtcTime())).where(
            tokens.c.name == "keeper"
        ),
    )
    async with resources.database.writing() as connection:
        await connection.execute(found.on_conflict_do_nothing())


async def _furnish_login(resources: Resources) -> None:
    """A login that waits for its code. Its secrets cannot be read, so that nobody asks Telegram."""
    digest = hashlib.sha256(THERE["login_id"].encode()).hexdigest()
    row = {"owner": "keeper", "account": "other", "step": "code", "how": "by SMS", "tries": 0, "expires_at": NEVER}
    row["secrets"] = "unreadable"
    found = insert_into(resources.database, account_logins).values(login_id=digest, **row)
    async with resources.database.writing() as connection:
        await connection.execute(found.on_conflict_do_update(index_elements=["login_id"], set_=row))


async def _furnish_sink(resources: Resources) -> None:
    """A sink with a dead letter."""
    sinks = resources.repositories.sinks
    await sinks.register("spare", "webhook", None)
    await sinks.start("spare", 0, place="https://collector.example")
    event = replace(build_test_event("spare", resources.clock.now()), position=1)
    await resources.repositories.sink_letters.add("spare", event, "not wanted")


async def _furnish_media(resources: Resources) -> None:
    row = {"kind": "photo", "stream": "telegram:1", "key": "1", "channel_id": 1, "message_id": 1, "state": "failed"}
    found = insert_into(resources.database, media).values(media_id=THERE["media_id"], **row)
    async with resources.database.writing() as connection:
        await connection.execute(found.on_conflict_do_update(index_elements=["media_id"], set_=row))


async def _furnish_watch(operations: LocalOperations) -> None:
    with suppress(Conflict):
        await operations.add_watch(WatchFields(name=THERE["watch"], query="fire", notify=("slack",)))


async def _furnish(resources: Resources) -> None:
    """One of each; those that are there stay."""
    operations, database = LocalOperations(resources, Actor(who="keeper")), resources.database
    assert isinstance(database, PostgresDatabase | SqliteDatabase)
    with suppress(Conflict):
        await operations.add_job(a_spec("feeds:news", name="news"))
        job = await operations.job("news")
        jobs = Jobs(resources.database, resources.clock)
        await Crew(database).collect(jobs, job, Batch([Item("1", {"title": "Tides"})], watermark={"id": 1}))
    try:
        await operations.job("cookies-example-com")
    except NotFound:
        await keep_scans(resources, a_scan(), a_scan())
    for kind in ("webhook", "channel", "stream"):
        with suppress(Conflict):
            await operations.add_trigger(NewTrigger(kind=kind, pattern="/there", jobs=["news"]))
    with suppress(Conflict):
        await Tokens(resources.database, resources.clock).add("spare", "read")
    await _furnish_session(resources)
    await _furnish_login(resources)
    # Open elsewhere, so that a test of it asks nobody.
    accounts = Accounts(resources.database, resources.clock, Vault(SECRET, Path("nowhere")))
    await accounts.add("spare", api_id=1, api_hash="hash", session="spare", replace=True)
    await accounts.lease("spare", holder="someone", ttl=timedelta(days=1))
    await StoredSecrets(resources.database, resources.clock, Vault(SECRET, Path("nowhere"))).put("spare", "a:b")
    await operations.set_limit("1", 600, "maintenance")
    await operations.set_budget("spare", 30)
    await resources.repositories.consumers.start("reader:there", 0)
    await _furnish_sink(resources)
    await _furnish_watch(operations)
    await _furnish_media(resources)
    await Breakers(resources.database, resources.clock).change(
        "1", lambda *_: Breaker(state=BreakerState.OPEN, trips=1)
    )
    async with resources.database.writing() as connection:
        await connection.execute(delete(job_executions).where(job_executions.c.execution_id == EXECUTION))
    dead = {"execution_id": EXECUTION, "job_id": (await operations.job("news")).job_id, "state": State.DEAD}
    await put_execution(database, **dead, job_name="news", error_message="boom")
