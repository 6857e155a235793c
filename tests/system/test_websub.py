"""WebSub: a hub tells when a feed has something new. The hub is a loopback server, the API is served over HTTP."""

import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest
from sqlalchemy import select, update

from api.serving import served
from floodmark import Floodmark
from floodmark.inbound.websub import HubSubscriber
from floodmark.model.audit import Actor
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events, HintRefused, HintsGiven, InternalEvent
from floodmark.operations.local import LocalOperations
from floodmark.operations.rekeying import rekey
from floodmark.outbound.client import ResponseLimits
from floodmark.repositories.budgets import Budgets
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.feed.source import FeedSource
from floodmark.sources.feed.subscriptions import FeedSubscriptions
from floodmark.sources.feed.tables import feed_subscriptions
from floodmark.sources.port import Target
from floodmark.store.tables import items, jobs
from floodmark.testing.contracts.source import collect_all
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import change_jobs, given_job
from floodmark.testing.serving import served as running
from floodmark.testing.web import Behaviour, Entry, Site, atom, no_answer, status
from floodmark.wiring.resources import Resources, open_resources
from floodmark.wiring.services import services_for
from web_desk import QUICK

KEY, NEW_KEY = "a key for tests only", "another key for tests"
DAY = timedelta(days=1)
ADA = Actor(who="ada", via="test")
NOBODY = {"X-Forwarded-For": "192.0.2.7"}


class Town:
    """A process with its API, and a site that is both the publisher of a feed and its hub."""

    def __init__(self, resources: Resources, site: Site, client: httpx2.AsyncClient, told: list[InternalEvent]) -> None:
        self.resources, self.site, self.client, self.told = resources, site, client, told
        self.target = f"{site.url}/feed"
        self.subscriber = self.subscribing()

    def subscribing(self, **more: Any) -> HubSubscriber:
        resources = self.resources
        subscriptions, vault = FeedSubscriptions(resources.database, resources.clock), Vault.of(resources.settings)
        return HubSubscriber(subscriptions, resources.http, vault, str(self.client.base_url), **more)

    async def job(self, **columns: Any) -> str:
        usual = {"name": "news", "source": "feed", "target": self.target, "schedule_type": "adaptive"}
        return await given_job(self.resources, **{**usual, **columns})

    async def collect(self) -> None:
        """Collect the feed, as a worker does."""
        source = FeedSource(self.resources.settings)
        source.use_services(services_for(self.resources, "feed"))
        assert await collect_all(source, Target(name=self.target, stream="feed:test", params={}))

    def asked(self) -> list[dict[str, str]]:
        """The forms that the hub was sent."""
        forms = [parse_qs(seen.body.decode()) for seen in self.site.seen if seen.method == "POST"]
        return [{name: value for name, [value] in form.items()} for form in forms]

    async def answer_intent(self, form: Mapping[str, str], **changes: str | None) -> httpx2.Response:
        """What the subscriber says when the hub verifies a request."""
        query = {
            "hub.mode": form["hub.mode"],
            "hub.topic": form["hub.topic"],
            "hub.challenge": "a challenge",
            "hub.lease_seconds": form.get("hub.lease_seconds"),
            **{f"hub.{name}": value for name, value in changes.items()},
        }
        given = {name: value for name, value in query.items() if value is not None}
        return await self.client.get(form["hub.callback"], params=given, headers=NOBODY)

    async def subscribe(self) -> dict[str, str]:
        """Ask the hub and let it verify; the form it was sent."""
        await self.subscriber.step()
        form = self.asked()[-1]
        answer = await self.answer_intent(form)
        assert (answer.status_code, answer.text) == (200, "a challenge")
        assert answer.headers["content-type"].startswith("text/plain")
        return form

    async def push(self, form: Mapping[str, str], method: str = "sha256", *, secret: str | None = None) -> int:
        body = b"<feed>something new</feed>"
        digest = hmac.new((secret or form["hub.secret"]).encode(), body, method).hexdigest()
        headers = {"X-Hub-Signature": f"{method}={digest}", "Content-Type": "application/atom+xml", **NOBODY}
        return (await self.client.post(form["hub.callback"], content=body, headers=headers)).status_code

    async def is_hinted(self) -> bool:
        """Whether the job has a hint, which is then taken away."""
        async with self.resources.database.writing() as connection:
            [found] = (await connection.execute(select(jobs.c.hinted_at))).scalars()
            await connection.execute(update(jobs).values(hinted_at=None))
        return found is not None

    async def row(self) -> Any:
        async with self.resources.database.reading() as connection:
            return (await connection.execute(select(feed_subscriptions))).one_or_none()

    async def later(self, by: timedelta) -> None:
        """As if that much time had passed."""
        row, at = await self.row(), feed_subscriptions.c
        async with self.resources.database.writing() as connection:
            values = {name: row._mapping[name] and row._mapping[name] - by for name in ("due_at", "asked_at")}
            await connection.execute(update(feed_subscriptions).where(at.target == row.target).values(**values))


@asynccontextmanager
async def opened(url: str, site: Site, **settings: Any) -> AsyncIterator[Town]:
    events, told = Events(), list[InternalEvent]()
    for kind in (HintsGiven, HintRefused):
        events.listen(kind, told.append)
    usual = {"database_url": url, "floodmark_secret_key": KEY, "api_public_url": "https://hooks.test"}
    wanted = Settings(**{**usual, **site.settings(), **settings})
    async with open_resources(wanted, events=events) as resources, served(resources) as api:
        yield Town(resources, site, api.client, told)


def publish(site: Site, *, hub: str = "/hub", behaviour: Behaviour | None = None, text: str = "Words") -> None:
    """A feed that names its hub, and the hub."""
    links = f'<link rel="self" href="{site.url}/feed?self"/><link rel="hub" href="{hub}"/>'
    entries = [Entry(id="1", link="/1", text=text)]
    site.xml("/feed", atom(entries).replace("<title>", f"{links}<title>", 1))
    site.always("/hub", behaviour or status(202))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        publish(site)
        yield site


@pytest.fixture
async def town(site: Site, migrated_url: str) -> AsyncIterator[Town]:
    async with opened(migrated_url, site) as town:
        yield town


@pytest.fixture
async def small(site: Site, sqlite_copy: str) -> AsyncIterator[Town]:
    """The same, where the kind of database does not matter."""
    async with opened(sqlite_copy, site) as town:
        yield town


@pytest.mark.spec("B3", "G9")
async def test_a_signed_push_is_a_hint_and_its_content_is_not_used(town: Town) -> None:
    await town.job()
    await town.collect()
    form = await town.subscribe()
    assert (form["hub.mode"], form["hub.topic"]) == ("subscribe", f"{town.site.url}/feed?self")
    assert int(form["hub.lease_seconds"]) > 0
    assert len(form["hub.callback"].rpartition("/")[2]) >= 32
    assert form["hub.secret"] not in str(await town.row()), "it is stored encrypted"

    for method in ("sha1", "sha256", "sha384", "sha512"):
        assert (await town.push(form, method), await town.is_hinted()) == (202, True), method
    assert town.told == [HintsGiven("websub")] * 4

    assert (await town.push(form, secret="wrong"), await town.is_hinted()) == (202, False)
    plain = await town.client.post(form["hub.callback"], content=b"x", headers=NOBODY)
    weak = await town.client.post(form["hub.callback"], content=b"x", headers={"X-Hub-Signature": "md5=aa", **NOBODY})
    assert (plain.status_code, weak.status_code, await town.is_hinted()) == (202, 202, False)
    assert [told.reason for told in town.told if isinstance(told, HintRefused)] == ["altered", "unsigned", "altered"]
    assert (await town.push({**form, "hub.callback": form["hub.callback"] + "x"}), await town.is_hinted()) == (
        404,
        False,
    )
    huge = await town.client.post(form["hub.callback"], content=b"x" * 2_000_000, headers=NOBODY)
    assert (huge.status_code, await town.is_hinted()) == (413, False)
    async with town.resources.database.reading() as connection:
        assert not (await connection.execute(select(items))).all()
    assert (await town.row()).pushes == 4


@pytest.mark.spec("B3")
async def test_people_see_the_subscriptions_without_their_secrets(town: Town) -> None:
    operations = LocalOperations(town.resources, ADA)
    assert (await operations.hubs()).items == []
    await town.job()
    await town.collect()
    form = await town.subscribe()
    await town.push(form)

    answer = await town.client.get("/api/v2/triggers/hubs")

    [shown] = answer.json()["items"]
    assert (shown["target"], shown["state"], shown["pushes"]) == (town.target, "active", 1)
    assert shown["last_push_at"] is not None
    assert form["hub.secret"] not in answer.text
    assert form["hub.callback"].rpartition("/")[2] not in answer.text


@pytest.mark.spec("B3", "G9")
async def test_a_hub_that_lies_gets_no_confirmation(town: Town) -> None:
    await town.job()
    await town.collect()
    row = await town.row()
    early = {
        "hub.mode": "subscribe",
        "hub.topic": row.topic,
        "hub.callback": f"{town.client.base_url}/api/v2/websub/{row.callback}",
    }
    assert (await town.answer_intent(early)).status_code == 404, "nothing was asked yet"
    assert await town.push({**early, "hub.secret": "guessed"}) == 410

    await town.subscriber.step()
    [form] = town.asked()
    for lie in ({"topic": "https://example.org/other"}, {"topic": None}, {"mode": "unsubscribe"}, {"mode": "else"},
                {"challenge": None}, {"challenge": "x" * 5000}, {"mode": None}):  # fmt: skip
        assert (await town.answer_intent(form, **lie)).status_code == 404, lie
    assert (await town.row()).state == "asked"
    for lease in ("0", "-5", "1e9", "9" * 30, "", None, "1"):
        assert (await town.answer_intent(form, lease_seconds=lease)).status_code == 200, lease
    assert (await town.row()).due_at - town.resources.clock.now() > timedelta(minutes=5), "no hub is asked in a hurry"
    await town.later(2 * DAY)
    assert (await town.answer_intent(form)).status_code == 404, "that was long ago"

    assert (await town.answer_intent(form, mode="denied", reason="no more")).status_code == 200
    assert (await town.row()).last_error == "the hub denies the subscription: no more"
    assert await town.push(form) == 410
    await town.subscriber.step()
    assert len(town.asked()) == 1, "a hub that denies is left alone for a day"


@pytest.mark.spec("B3")
async def test_a_lease_is_renewed_with_the_same_secret(town: Town) -> None:
    await town.job()
    await town.collect()
    first = await town.subscribe()
    await town.subscriber.step()
    assert len(town.asked()) == 1
    await town.later(8 * DAY)
    await town.subscriber.step()
    [_, second] = town.asked()
    assert second == first
    assert (await town.push(first), await town.is_hinted()) == (202, True), "also while it is being renewed"
    assert (await town.answer_intent(second)).status_code == 200


@pytest.mark.spec("B3")
@pytest.mark.parametrize(
    ("behaviour", "error"),
    [(status(503, text="overloaded"), "status 503: overloaded"), (no_answer(), "")],
    ids=["broken", "slow"],
)
async def test_a_hub_in_trouble_is_asked_again_less_and_less_often(
    small: Town, behaviour: Behaviour, error: str
) -> None:
    publish(small.site, behaviour=behaviour)
    await small.job()
    await small.collect()
    subscriber = small.subscribing(limits=ResponseLimits(total=timedelta(seconds=0.5)))
    pauses = []
    for count in range(1, 5):
        await subscriber.step()
        row = await small.row()
        assert len(small.asked()) == count
        assert row.last_error
        assert error in row.last_error
        pauses.append(row.due_at - row.asked_at)
        await small.later(DAY)
    assert pauses == sorted(set(pauses))

    publish(small.site)
    await small.subscribe()
    row = await small.row()
    assert (row.state, row.tries, row.last_error) == ("active", 0, None)


async def test_a_hub_at_a_private_address_is_not_asked(small: Town) -> None:
    publish(small.site, hub="http://10.0.0.1/hub")
    await small.job()
    await small.collect()
    await small.subscriber.step()
    assert small.asked() == []
    assert "10.0.0.1" in (await small.row()).last_error


@pytest.mark.spec("B3")
async def test_only_adaptive_jobs_are_subscribed_and_others_are_unsubscribed(town: Town) -> None:
    job_id = await town.job(schedule_type="interval", interval_seconds=900)
    await town.collect()
    await town.subscriber.step()
    assert town.asked() == []
    await change_jobs(town.resources, [job_id], schedule_type="adaptive", interval_seconds=None)
    form = await town.subscribe()

    await change_jobs(town.resources, [job_id], schedule_type="event")
    await town.subscriber.step()
    bye = town.asked()[-1]
    assert (bye["hub.mode"], bye["hub.callback"]) == ("unsubscribe", form["hub.callback"])
    assert await town.push(form) == 410
    assert (await town.answer_intent(form)).status_code == 404
    assert (await town.answer_intent(bye)).text == "a challenge"

    await change_jobs(town.resources, [job_id], schedule_type="adaptive")
    await town.subscribe()
    async with town.resources.database.writing() as connection:
        await connection.execute(jobs.delete())
    await town.subscriber.step()
    assert [sent["hub.mode"] for sent in town.asked()] == ["subscribe", "unsubscribe", "subscribe", "unsubscribe"]
    await town.later(DAY)
    for _ in range(2):
        await town.subscriber.step()
    assert await town.row() is None, "the hub never confirmed, and no job needs the row"


@pytest.mark.spec("B3", "G1")
async def test_a_process_that_dies_after_it_asked_is_replaced(site: Site, sqlite_copy: str) -> None:
    async with opened(sqlite_copy, site) as first:
        await first.job()
        await first.collect()
        await first.subscriber.step()
        [form] = first.asked()
    async with opened(sqlite_copy, site) as second:
        moved = {
            **form,
            "hub.callback": f"{second.client.base_url}/api/v2/websub/{form['hub.callback'].rpartition('/')[2]}",
        }
        assert (await second.answer_intent(moved)).status_code == 200
        assert (await second.push(moved), await second.is_hinted()) == (202, True)


@pytest.mark.spec("B3")
async def test_a_request_that_was_recorded_and_never_sent_is_sent_later(small: Town) -> None:
    await small.job()
    await small.collect()
    subscriptions = FeedSubscriptions(small.resources.database, small.resources.clock)
    [row] = await subscriptions.find_due(10)
    # The leader is killed right after this.
    assert await subscriptions.ask(row, "a secret of another key", again_after=timedelta(minutes=10))
    await small.subscriber.step()
    assert small.asked() == []
    await small.later(DAY)
    form = await small.subscribe()
    assert (await small.push(form), await small.is_hinted()) == (202, True)


@pytest.mark.spec("B3")
async def test_a_feed_that_names_another_hub_or_none_is_followed(small: Town) -> None:
    await small.job()
    await small.collect()
    form = await small.subscribe()
    publish(small.site, hub="/hub?other", text="Other words")
    await small.collect()
    assert await small.push(form) == 404
    moved = await small.subscribe()
    assert moved["hub.callback"] != form["hub.callback"]
    assert small.site.paths()[-1] == "/hub?other"
    small.site.xml("/feed", atom([Entry(id="1", link="/1", text="No hub")]))
    await small.collect()
    assert await small.row() is None


async def test_pushes_are_valid_after_the_key_was_changed(site: Site, sqlite_copy: str) -> None:
    async with AsyncExitStack() as stack:
        before = await stack.enter_async_context(opened(sqlite_copy, site))
        await before.job()
        await before.collect()
        form = await before.subscribe()
        both = {"floodmark_secret_key": NEW_KEY, "floodmark_secret_key_old": KEY}
        during = await stack.enter_async_context(opened(sqlite_copy, site, **both))
        resources = during.resources
        audit, vault = resources.repositories.audit, Vault.of(resources.settings)
        assert (await rekey(resources.database, audit, vault, ADA)).feeds == 1
        after = await stack.enter_async_context(opened(sqlite_copy, site, floodmark_secret_key=NEW_KEY))
        moved = {
            **form,
            "hub.callback": form["hub.callback"].replace(str(before.client.base_url), str(after.client.base_url)),
        }
        assert (await after.push(moved), await after.is_hinted()) == (202, True)
        assert (await before.push(form), await before.is_hinted()) == (503, False)


@pytest.mark.spec("B3")
@pytest.mark.thorough
async def test_a_pushed_feed_is_collected_before_all_others(site: Site, sqlite_copy: str) -> None:
    """The whole way: run, hub, subscription, push, hint, leader, budget, run. Polling takes turns of 55 s."""
    settings: dict[str, Any] = {
        **QUICK,
        **site.settings(),
        "api_public_url": "https://hooks.test/below",
        "floodmark_secret_key": KEY,
    }
    app = Floodmark(Settings(database_url=sqlite_copy, **settings))
    async with running(app) as (resources, url), httpx2.AsyncClient(timeout=120, trust_env=False) as client:
        budgets, operations = Budgets(resources.database, resources.clock), LocalOperations(resources, ADA)
        await budgets.put("news", requests=600)
        when = When(schedule_type=ScheduleType.ADAPTIVE)
        quiet = [f"/quiet{number}" for number in range(10)]
        document = site.pages[None, "/feed"].body.decode()
        for path in ("/feed", *quiet):
            site.xml(path, document.replace("/feed?self", f"{path}?self"))
            await operations.add_job(JobSpec(source="feed", target=f"{site.url}{path}", when=when, budget="news"))
        forms = await eventually(lambda: posted(site, count=11))
        form = next(form for form in forms if form["hub.topic"].endswith("/feed?self"))
        await budgets.put("news", requests=12)

        callback = url + form["hub.callback"].removeprefix("https://hooks.test/below")
        query = {"hub.mode": "subscribe", "hub.topic": form["hub.topic"], "hub.challenge": "yes"}
        assert (await client.get(callback, params=query)).text == "yes"
        publish(site, text="Something new")
        site.forget()
        digest = hmac.new(form["hub.secret"].encode(), b"", "sha256").hexdigest()
        pushed = await client.post(callback, headers={"X-Hub-Signature": f"sha256={digest}"})
        assert pushed.status_code == 202

        await eventually(lambda: "/feed" in site.paths())
        before = site.paths()[: site.paths().index("/feed")]
        # Those that were fired already, and one more if a request was free just then.
        assert len([path for path in before if path in quiet]) <= 4


def posted(site: Site, *, count: int) -> list[dict[str, str]]:
    """The forms that the hub was sent, once there are enough."""
    forms = [parse_qs(seen.body.decode()) for seen in site.seen if seen.method == "POST"]
    return [{name: values[0] for name, values in form.items()} for form in forms] if len(forms) >= count else []
