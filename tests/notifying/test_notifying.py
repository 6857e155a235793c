"""People are told of what the database says, over real sockets, by whoever leads, and hardly ever twice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr
from sqlalchemy import insert, update

from certificates import self_signed
from command_line import CommandLine
from floodmark.inbound.webhooks import Webhook, judge
from floodmark.model.outcome import Dead
from floodmark.notifications.loading import build_notifier as configured_notifier
from floodmark.notifications.notifier import GIVE_UP_AFTER, MOST_PENDING, MOST_REFUSALS, Leading, Notifier
from floodmark.notifications.trouble_repository import TroubleRepository
from floodmark.observability.events import NotificationSent
from floodmark.repositories.fleet import FleetRepository as Facts
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.sources.telegram.tables import accounts
from floodmark.store.tables import jobs
from floodmark.testing.clock import SetClock
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, change_jobs, given_job, given_lease, settle
from floodmark.wiring.resources import Resources
from notifying.receivers import PASSWORD, USER, Letterbox, Receiver

pytestmark = pytest.mark.spec("T16")

LEADER = SimpleNamespace(is_leader=True)
SECRET = "a secret that only two know"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as receiver:
        yield receiver


@pytest.fixture
def letterbox() -> Letterbox:
    return Letterbox()


@pytest.fixture
def mail(letterbox: Letterbox) -> Iterator[str]:
    with letterbox.serving() as where:
        yield where


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def channels(receiver: Receiver, mail: str | None = None) -> dict[str, Any]:
    """Settings that name every channel, told at once and without rest."""
    told = {"notify_email_to": "ada@example.com, ops@example.com", "notify_email_smtp_url": f"smtp://{mail}"}
    return {
        "notify_slack_url": f"{receiver.url}/services/T0/B0/canary-slack",
        "notify_webhook_url": f"{receiver.url}/hook?key=canary-hook",
        "notify_webhook_secret": SECRET,
        "notify_debounce": timedelta(),
        "notify_group_wait": timedelta(),
        **(told if mail else {}),
    }


@pytest.fixture
async def resources(sqlite: Opened, receiver: Receiver, mail: str, clock: SetClock) -> AsyncIterator[Resources]:
    async with sqlite(clock=clock, **channels(receiver, mail)) as resources:
        yield resources


@pytest.fixture
async def notifier(resources: Resources) -> AsyncIterator[Notifier]:
    made = notifier_of(resources, LEADER)
    # The first look finds where things stand.
    await made.step()
    yield made
    await made.close()


def notifier_of(resources: Resources, leader: Leading) -> Notifier:
    made = configured_notifier(resources, leader)
    assert made is not None
    return made


async def dies(resources: Resources, name: str, error: str = "TimeoutError: no answer") -> None:
    """A job fails permanently."""
    lease = await given_lease(resources, name=name)
    if isinstance(resources.clock, SetClock):
        resources.clock.advance(timedelta(seconds=1))
    assert await settle(resources, lease, Dead(error=error))


def slack(receiver: Receiver) -> list[str]:
    return [post.json["text"] for post in receiver.posts if post.path.startswith("/services")]


def hooks(receiver: Receiver) -> list[Any]:
    return [post.json for post in receiver.posts if post.path.startswith("/hook")]


async def test_letters_are_told_over_every_channel_once(
    resources: Resources, notifier: Notifier, receiver: Receiver, letterbox: Letterbox, clock: SetClock
) -> None:
    counted: list[NotificationSent] = []
    resources.events.listen(NotificationSent, counted.append)
    for name in ("news", "tides", "weather"):
        await dies(resources, name)
    await notifier.step()
    await notifier.step()

    [text] = slack(receiver)
    assert text.startswith(
        ":rotating_light: *3 jobs failed permanently: TimeoutError: no answer*\n• news, tides, weather"
    )
    [told] = hooks(receiver)
    assert (told["kind"], told["status"], told["count"], told["instance"]) == ("dead_letter", "trouble", 3, "test")
    assert [subject["name"] for subject in told["subjects"]] == ["news", "tides", "weather"]
    [letter] = letterbox.letters
    assert letter["Subject"] == "[floodmark] 3 jobs failed permanently: TimeoutError: no answer"
    assert (letter["To"], letter["Message-ID"]) == ("ada@example.com, ops@example.com", f"<{told['id']}@floodmark>")
    assert "- Look: floodmark dlq" in letter.get_content()
    assert {(event.channel, event.result) for event in counted} == {
        ("slack", "sent"),
        ("webhook", "sent"),
        ("email", "sent"),
    }
    # It is signed as the webhooks that Floodmark takes.
    [post] = [post for post in receiver.posts if post.path.startswith("/hook")]
    came = Webhook(path=(), body=post.body, headers=post.headers, address=post.path)
    verdict = judge(came, SECRET, now=datetime.now(UTC), window=timedelta(minutes=5))
    assert verdict.refusal is None
    assert post.headers["x-floodmark-delivery"] == told["id"]
    assert judge(came, "another", now=datetime.now(UTC), window=timedelta(minutes=5)).refusal == "altered"


async def test_a_lost_account_and_a_stale_job_are_told_and_so_is_their_recovery(
    resources: Resources, notifier: Notifier, receiver: Receiver, clock: SetClock
) -> None:
    made = clock.now() - timedelta(hours=1)
    stale = {"schedule_type": "interval", "interval_seconds": 60.0, "created_at": made}
    news = await given_job(resources, name="news", **stale)
    tides = await given_job(resources, name="tides", **stale)
    async with resources.database.writing() as connection:
        lost = {"name": "reader1", "api_id": 1, "secrets": "", "state": "parked", "reason": "session revoked"}
        await connection.execute(insert(accounts).values(lost))
    clock.advance(MINUTE)
    await notifier.step()
    clock.advance(MINUTE)
    await notifier.step()
    assert [(told["kind"], told["title"]) for told in hooks(receiver)] == [
        ("account_lost", "account reader1 was lost: session revoked"),
        ("stale_source", "2 jobs are stale: not read to their end for much longer than usual"),
    ]

    async with resources.database.writing() as connection:
        await connection.execute(update(accounts).values(state="active", reason=None))
        await connection.execute(update(jobs).where(jobs.c.job_id == news).values(interval_seconds=86_400.0))
    await change_jobs(resources, [tides], paused=True)
    clock.advance(MINUTE)
    await notifier.step()
    assert [(told["status"], told["title"]) for told in hooks(receiver)[2:]] == [
        ("recovered", "account reader1 works again"),
        ("recovered", "news is up to date again"),
    ], "a job that was paused has not recovered"


async def test_what_was_sent_and_not_struck_off_is_sent_again_under_the_same_id(
    resources: Resources, notifier: Notifier, receiver: Receiver, letterbox: Letterbox
) -> None:
    """As after `kill -9`: the other side has it, and nobody has written that down."""
    await dies(resources, "news")
    receiver.held.set()
    killed = asyncio.create_task(notifier.step())
    await eventually(lambda: len(receiver.posts) == 2 and len(letterbox.letters) == 1)
    # Not while the mail is being struck off: a write that is cancelled can hold SQLite's lock for a while.
    facts = Facts(resources.database, resources.clock)
    async with asyncio.timeout(120):
        while "email" in (await facts.get_fact("notifying"))["pending"][0]["left"]:  # noqa: ASYNC110 - another writes it
            await asyncio.sleep(0.01)
    killed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killed
    receiver.held.clear()

    successor = notifier_of(resources, LEADER)
    await successor.step()
    await successor.step()
    await successor.close()

    first, again = hooks(receiver)
    assert first == again
    assert len(slack(receiver)) == 2
    assert len({letter["Message-ID"] for letter in letterbox.letters}) == 1


async def test_a_process_that_leaves_does_not_wait_for_a_silent_receiver(
    resources: Resources, notifier: Notifier, receiver: Receiver
) -> None:
    await dies(resources, "news")
    receiver.held.set()
    leaving = asyncio.create_task(notifier.step())
    await eventually(lambda: len(receiver.posts) == 2)
    notifier.stop()
    await leaving


async def test_a_channel_that_fails_is_tried_again_and_holds_up_no_other(
    resources: Resources, notifier: Notifier, receiver: Receiver, letterbox: Letterbox, clock: SetClock
) -> None:
    counted: list[NotificationSent] = []
    resources.events.listen(NotificationSent, counted.append)
    letterbox.refuses = {"ada@example.com", "ops@example.com"}
    await dies(resources, "news")
    await notifier.step()
    assert (len(slack(receiver)), len(hooks(receiver)), letterbox.letters) == (1, 1, [])
    await notifier.step()
    assert [event.result for event in counted if event.channel == "email"] == ["failed"], "it rests"
    clock.advance(timedelta(seconds=5))
    letterbox.refuses = {"ada@example.com"}
    await notifier.step()
    assert len(letterbox.letters) == 1, "one of two is enough: whoever has it is not told twice"
    assert len(slack(receiver)) == len(hooks(receiver)) == 1


@pytest.mark.thorough
async def test_a_channel_that_asks_for_rest_gets_it_and_one_that_never_answers_is_given_up(
    sqlite: Opened, receiver: Receiver, clock: SetClock
) -> None:
    url = {"notify_slack_url": f"{receiver.url}/services/canary", "notify_group_wait": timedelta()}
    async with sqlite(clock=clock, **url, notify_debounce=timedelta()) as resources:
        notifier = notifier_of(resources, LEADER)
        await notifier.step()
        receiver.answers = [(429, {"Retry-After": "300"}, "slow down"), *[(503, {}, "away")] * 300]
        await dies(resources, "news")
        await notifier.step()
        clock.advance(4 * MINUTE)
        await notifier.step()
        assert len(receiver.posts) == 1
        for _ in range(8):
            clock.advance(GIVE_UP_AFTER / 9)
            await notifier.step()
        assert len(receiver.posts) == 9
        clock.advance(GIVE_UP_AFTER / 9)
        for _ in range(2):
            clock.advance(timedelta(hours=1))
            await notifier.step()
        assert len(receiver.posts) == 10, "given up after three days"
        assert len({post.body for post in receiver.posts}) == 1
        # One that the receiver refuses does not keep the others waiting for days.
        receiver.posts.clear()
        receiver.answers = [(400, {}, "what is this")] * 300
        await dies(resources, "refused")
        for _ in range(2 * MOST_REFUSALS):
            await notifier.step()
            clock.advance(timedelta(hours=1))
        assert len(receiver.posts) == MOST_REFUSALS
        # While it was away, no more is kept for it than anyone would read.
        receiver.answers = [(503, {}, "away")] * 5
        for number in range(MOST_PENDING + 10):
            await dies(resources, f"job{number}")
            await notifier.step()
        receiver.posts.clear()
        receiver.answers = []
        clock.advance(timedelta(hours=1))
        await notifier.step()
        assert len(receiver.posts) == MOST_PENDING
        await notifier.close()


async def test_a_receiver_that_misbehaves_costs_little(sqlite: Opened, receiver: Receiver, clock: SetClock) -> None:
    """A redirect is not followed, an endless answer is not read, and after a 410 nothing is sent for a day."""
    url = {"notify_webhook_url": f"{receiver.url}/hook", "notify_group_wait": timedelta()}
    async with sqlite(clock=clock, **url, notify_debounce=timedelta()) as resources:
        notifier = notifier_of(resources, LEADER)
        await notifier.step()
        answers = [
            (307, {"Location": f"{receiver.url}/elsewhere"}, ""),
            (200, {}, "x" * 1_000_000),
            (410, {}, "no such hook any more"),
        ]
        receiver.answers = list(answers)
        await dies(resources, "news")
        for number in range(1, len(answers) + 1):
            await notifier.step()
            assert len(receiver.posts) == number
            clock.advance(11 * MINUTE)
        assert {post.path for post in receiver.posts} == {"/hook"}

        await dies(resources, "more news")
        for _ in range(3):
            await notifier.step()
            clock.advance(11 * MINUTE)
        assert len(receiver.posts) == len(answers)

        clock.advance(timedelta(days=1))
        await notifier.step()
        assert len(receiver.posts) == len(answers) + 1
        assert "more news" in receiver.posts[-1].body.decode()
        await notifier.close()


async def test_only_the_leader_tells_and_of_two_only_one_writes(anywhere: Resources) -> None:
    resources = anywhere
    silent = notifier_of(resources, SimpleNamespace(is_leader=False))
    repository = TroubleRepository(resources.database, resources.clock, resources.repositories.staleness)
    await silent.step()
    assert await repository.load_state() is None
    assert await repository.store_state({"turn": 3, "who": "a"})
    assert not await repository.store_state({"turn": 3, "who": "b"})
    assert await repository.store_state({"turn": 4, "who": "c"})
    assert (await repository.load_state())["who"] == "c"
    await silent.close()


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def anywhere(opened: Opened, receiver: Receiver) -> AsyncIterator[Resources]:
    async with opened(**channels(receiver)) as resources:
        yield resources


@pytest.mark.thorough
async def test_whoever_becomes_the_leader_tells(sqlite: Opened, receiver: Receiver) -> None:
    async with sqlite(**channels(receiver)) as resources:
        async with resources.database.writing() as connection:
            await connection.execute(insert(accounts).values(name="r1", api_id=1, secrets="", state="parked"))
        stop = asyncio.Event()
        running = asyncio.create_task(SchedulerRole(resources).run(stop))
        await eventually(lambda: len(receiver.posts) == 2)
        stop.set()
        await running
    assert hooks(receiver)[0]["title"] == "account r1 was lost"


async def test_both_databases_tell_the_same(anywhere: Resources, receiver: Receiver) -> None:
    resources = anywhere
    notifier = notifier_of(resources, LEADER)
    repository = TroubleRepository(resources.database, resources.clock, resources.repositories.staleness)
    before = await repository.now()
    await notifier.step()
    await dies(resources, "news")
    await dies(resources, "tides", "refused")
    async with resources.database.writing() as connection:
        await connection.execute(insert(accounts).values(name="r1", api_id=1, secrets="", state="parked", reason="no"))
    assert [row.job_name for row in await repository.dead_letters(before)] == ["news", "tides"]
    assert await repository.parked_accounts() == [("r1", "no")]
    assert (
        await repository.stale_jobs(),
        await repository.active_accounts(["r1"]),
        await repository.active_jobs([]),
    ) == ([], set(), set())
    await notifier.step()
    await notifier.step()
    assert sorted(told["title"] for told in hooks(receiver)) == ["2 jobs failed permanently", "account r1 was lost: no"]
    await notifier.close()


def test_the_command_tries_every_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver, letterbox: Letterbox
) -> None:
    """Over TLS and with a password, which a server without TLS would not get."""
    monkeypatch.chdir(tmp_path)
    context, trusted = self_signed(tmp_path, "127.0.0.1")
    shop = CommandLine(tmp_path)
    shop.refused("notify", "test", says="no channel is configured")
    shop.refused("notify", "test", "--set", "NOTIFY_EMAIL_TO=a@b", says="mail needs both")
    shop.refused("notify", "test", "--url", "http://127.0.0.1:1", says="works on this machine only")
    login = f"{USER}:{quote(PASSWORD, safe='')}"
    with letterbox.serving(context) as where:
        shop.settings = {
            "NOTIFY_SLACK_URL": f"{receiver.url}/services/T0/B0/canary-slack",
            "NOTIFY_WEBHOOK_URL": f"{receiver.url}/hook?key=canary-hook",
            "NOTIFY_EMAIL_TO": "ada@example.com",
            "NOTIFY_EMAIL_SMTP_URL": f"smtp://{login}@{where}",
        }
        receiver.answers = [(404, {}, "no_service PATH")] * 2
        failed = shop("notify", "test")
        assert failed.code == 1
        assert "invalid certificate" in failed.out, "nobody vouches for it"
        assert "127.0.0.1 answered 404: no_service" in failed.out
        assert "canary" not in failed.out + failed.err
        assert "hunter2" not in failed.out + failed.err
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert shop.good("notify", "test").out.count("Sent") == 3
        wrong = shop("notify", "test", "--json", "--set", f"NOTIFY_EMAIL_SMTP_URL=smtp://{USER}:hunter3@{where}").json
    errors = {entry["channel"]: entry["error"] for entry in wrong}
    assert "535" in errors.pop("email")
    assert errors == {"slack": None, "webhook": None}
    assert list(tmp_path.rglob("*.db")) == [], "no database is needed"
    assert "hunter3" not in str(wrong)
    assert [letter["Subject"] for letter in letterbox.letters] == ["[floodmark] A test from Floodmark"]
    assert slack(receiver)[-1].startswith(":wave: *A test from Floodmark*")


def test_addresses_that_are_secret_are_shown_nowhere() -> None:
    settings = Settings(
        notify_slack_url=SecretStr("https://hooks.example/services/canary"),
        notify_webhook_url=SecretStr("https://hooks.example/?canary"),
        notify_webhook_secret=SecretStr("canary"),
        notify_email_to="a@b",
        notify_email_smtp_url="smtp://user:canary@mail.example",
    )
    assert "canary" not in str(settings.rows()) + repr(settings) + str(settings)
