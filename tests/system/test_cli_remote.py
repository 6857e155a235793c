"""Commands on a server far away say and do the same as on the database itself."""

import asyncio
import json
import re
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import insert
from telethon import TelegramClient

from api_process import api_process
from command_line import Answer, CommandLine, eventually
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.job import Job
from floodmark.model.outcome import Dead
from floodmark.operations.local import LocalOperations
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.limits import Limits
from floodmark.repositories.jobs import Jobs
from floodmark.rules.breaker import Breaker, BreakerState
from floodmark.settings import Settings, keys
from floodmark.sources.telegram.tables import telegram_channels
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.wiring.resources import Resources, open_resources
from system.channel_posts import DAY, HARBOUR, a_post, keep
from system.stores import Crew, a_spec

pytestmark = pytest.mark.spec("V8")

# "in 14 min 59 s", "3 s ago", "now": the clock goes on between two commands.
_TIME = re.compile(r"\b(?:in |for )?\d+ (?:d|h|min|s)\b(?: \d+ (?:d|h|min|s)\b)*(?: ago)?|\bnow\b")
# Of ours, of a person at the loopback Telegram, and a phone number.
_ID = re.compile(r"\b[0-9a-f]{13,32}\b|\b70000000\d\b|\+10…\d{3}")
_LAG = re.compile(r'"lag_seconds": [0-9.]+')
# Other tests write to the same disk.
_FREE = re.compile(r"[\d.]+ [GTMk]?B are free")
_MOMENT = re.compile(r'"\d{4}-\d\d-\d\dT[0-9:.]+Z"|\b\d\d:\d\d:\d\d\b')

Shop = tuple[CommandLine, CommandLine]
SECRET = "a secret key for tests, long enough"
TENANTS_FILE = "tenant-acme/7/2026-06-01.json"


async def stock(url: str) -> None:
    """Something of everything, as workers leave it."""
    async with open_resources(Settings(database_url=url)) as resources:
        operations = LocalOperations(resources, Actor(who="ada"))
        jobs, crew = Jobs(resources.database, resources.clock), Crew(resources.database)  # type: ignore[arg-type] # SQLite
        news = await operations.add_job(a_spec(name="news", tags=("daily",), stream="front/page"))
        await operations.add_job(a_spec("two", name="old", priority=1, schedule_enabled=False))
        await operations.add_job(a_spec("three", name="never", depends_on=("news",)))
        items = tuple(Item(f"k{n}", {"id": n, "title": f"News [bold]{n}[/]"}) for n in range(5))
        await crew.collect(jobs, news, Batch(items, {"id": 4}))
        await crew.collect(jobs, news, Batch((Item("k1", {"id": 1, "title": "again"}),), {"id": 4}))
        await crew.relay()
        for number in range(3):
            await crew.run(jobs, news, Dead(error=f"user {number} not found"))
        await operations.pause_job("old", "too loud")
        await Limits(resources.database, resources.clock).set("account 1", timedelta(hours=1), "FloodWait", 0.5)
        opened = Breaker(state=BreakerState.OPEN, open_until=resources.clock.now(), trips=1, reason="refused")
        await Breakers(resources.database, resources.clock).change("telegram:reader1", lambda *_: opened)
        await _twins(operations, jobs, crew)
        await _sinks(resources)
        await _posts(resources)


async def _twins(operations: LocalOperations, jobs: Jobs, crew: Crew) -> None:
    """Two of each for those who change something: one is told here, the other far away."""
    for name in ("lefty", "right"):
        job: Job = await operations.add_job(a_spec("feeds:news", name=name, stream=f"python:{name}"))
        await crew.run(jobs, job, Dead(error=f"{name} is broken"))
        await operations.set_limit(f"limit {name}", 3600, "rest")
        await Breakers(operations.resources.database, operations.resources.clock).change(
            f"breaker {name}", lambda *_: Breaker(state=BreakerState.HALF_OPEN, trips=1)
        )


async def _sinks(resources: Resources) -> None:
    """One that has failed, and three with dead letters, two of them twins."""
    sinks, letters = resources.repositories.sinks, resources.repositories.sink_letters
    first, *_ = await resources.repositories.events.after(0)
    for name in ("lake", "sea", "lefty", "right"):
        await sinks.register(name, "webhook", "news:*")
        await sinks.start(name, 3, place="https://collector.example")
    await sinks.fail("lake", "status 500", failures=1, rest=timedelta(hours=1))
    for name in ("sea", "lefty", "right"):
        for position in (1, 2, 3):
            await letters.add(name, replace(first, position=position), "not wanted")


async def _posts(resources: Resources) -> None:
    """Two chats of which files are made: one with more than a page in a day and not in order, one of a tenant."""
    many = [a_post(n, f"Tide {n}: ü\u2028 <b>", views=n * 7) for n in range(1, 450)]
    late = a_post(7000, "written down early", at=DAY + timedelta(seconds=1))
    others = [a_post(900, "gone", gone=True), a_post(901, "next day", at=DAY + timedelta(days=1), nested={"b": 1.0})]
    await keep(resources, [*reversed(many), late, *others], name="harbour", target="@harbour")
    await keep(resources, [a_post(1, chat=7)], stream="telegram:acme:7", name="seven", target="7", tenant_id="acme")
    known = {"account": "reader1", "channel_id": HARBOUR, "access_hash": 1, "title": "Häfen"}
    async with resources.database.writing() as connection:
        named = {**known, "username": "harbour", "updated_at": resources.clock.now()}
        await connection.execute(insert(telegram_channels).values(named))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One installation, seen from beside its database, and from a folder that has nothing but its address."""
    here = CommandLine(tmp_path_factory.mktemp("here"), FLOODMARK_SECRET_KEY=SECRET)
    url = f"sqlite:///{here.folder}/.floodmark/floodmark.db"
    (here.folder / ".floodmark").mkdir()
    asyncio.run(stock(url))
    with api_process(url, FLOODMARK_SECRET_KEY=SECRET) as address:
        yield here, CommandLine(tmp_path_factory.mktemp("away"), FLOODMARK_URL=address)


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in keys():
        monkeypatch.delenv(key, raising=False)


@pytest.fixture
def both(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Answer, Answer]]:
    """What a command says here, and what it says away. A {} in it is one's own twin."""

    def typed(*command: str) -> tuple[Answer, Answer]:
        answers = []
        for cli, name in zip(shop, ("lefty", "right"), strict=True):
            monkeypatch.chdir(cli.folder)
            number = str(("lefty", "right").index(name))
            answers.append(cli(*(word.replace("@twin", name).replace("@n", number) for word in command)))
        assert not (shop[1].folder / ".floodmark").exists()
        return answers[0], answers[1]

    return typed


def same(answers: tuple[Answer, Answer], *, moments: bool = False) -> Answer:
    """Both said the same, but for the time that has passed and, of twins, names and ids."""
    here, away = answers
    seen = [(answer.code, _leveled(answer.out, moments), _leveled(answer.err, moments)) for answer in answers]
    assert seen[0] == seen[1], f"{here!r}\n{away!r}"
    return away


def _leveled(text: str, moments: bool) -> str:
    text = _FREE.sub("SOME are free", _ID.sub("ID", text.replace("lefty", "twin").replace("right", "twin")))
    text = _LAG.sub("LAG", _MOMENT.sub("MOMENT", text)) if moments else text
    return " ".join(_TIME.sub("~", text).split())


@pytest.mark.parametrize(
    "command",
    [
        ("ls",),
        ("ls", "--json"),
        ("ls", "new", "--source", "python", "--tag", "daily", "--json"),
        ("ls", "--paused"),
        ("ls", "--not-paused", "--enabled", "--priority", "normal", "--json"),
        ("ls", "--disabled", "--json"),
        ("ls", "--stale"),
        ("ls", "--fresh", "--json"),
        ("ls", "--match", "python:fe*", "--json"),
        ("jobs", "export", "--match", "ne*"),
        ("jobs", "export", "--tag", "daily", "--format", "json"),
        ("pause", "--match", "ne*", "--dry-run"),
        ("edit", "--where-tag", "daily", "--every", "5m", "--dry-run"),
        ("rm", "news", "old", "--dry-run"),
        ("ls", "--after", "news", "--limit", "1"),
        ("ls", "nothing-like-it"),
        ("show", "news"),
        ("show", "old"),
        ("show", "never", "--json"),
        ("next", "news", "-n", "3"),
        ("next", "old", "--json"),
        ("next", "*/5 * * * *"),
        ("explain", "news"),
        ("explain", "old", "--json"),
        ("history",),
        ("history", "news", "--json", "--limit", "2"),
        ("history", "--state", "dead", "--state", "done", "--since", "1h"),
        ("logs", "news"),
        ("logs", "news", "--level", "debug", "--json"),
        ("logs", "never", "--since", "1h"),
        ("stats",),
        ("stats", "news", "--days", "1", "--json"),
        ("watermark",),
        ("watermark", "show", "news", "--json"),
        ("watermark", "show", "--after", "a", "--limit", "1"),
        ("dlq",),
        ("dlq", "ls", "--json"),
        ("dlq", "ls", "news", "--each"),
        ("dlq", "retry", "--all", "--dry-run"),
        ("limits", "--json"),
        ("limits", "--past"),
        ("breakers",),
        ("breakers", "ls", "--json"),
        ("items", "news"),
        ("items", "news", "--json", "--after", "k1", "--limit", "2"),
        ("items", "front/page", "--key", "k1", "--json"),
        ("items", "never"),
        ("events",),
        ("events", "--json", "--stream", "news", "--after", "2"),
        ("sinks",),
        ("sinks", "show", "lake"),
        ("sinks", "dead-letters", "lake"),
        ("sinks", "dead-letters", "sea"),
        ("sinks", "dead-letters", "sea", "--json", "--limit", "2"),
        ("sinks", "dead-letters", "sea", "--drop", "--dry-run"),
        ("sinks", "replay", "lake", "--from", "2", "--dry-run"),
        ("sinks", "replay", "lake", "--since", "1h", "--dry-run", "--json"),
        ("workers",),
        ("workers", "--json"),
        ("accounts", "ls"),
        ("rm", "news", "--dry-run"),
        ("cancel", "news", "--yes"),
        ("watermark", "set", "never", '{"id": 1}', "--dry-run"),
    ],
)
def test_what_is_asked_is_answered_alike(both: Callable[..., tuple[Answer, Answer]], command: tuple[str, ...]) -> None:
    assert same(both(*command)).code == 0


def test_everything_at_a_glance_is_the_same_from_afar(both: Callable[..., tuple[Answer, Answer]]) -> None:
    said = same(both("top", "--once"), moments=True).out
    assert "no leader" in said
    assert "account 1" in said
    assert "user 2 not found" in said
    here, away = (answer.json for answer in both("top", "--json"))
    assert here | {"at": 0} == away | {"at": 0}


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    "command",
    [
        ("show", "nobody"),
        ("show", "ne"),
        ("explain", "nwes"),
        ("pause", "nobody"),
        ("run", "nobody"),
        ("rm", "nobody", "--yes"),
        ("rm", "news"),
        ("rm", "--all"),
        ("tag", "news"),
        ("pause", "news", "--tag", "daily"),
        ("edit", "--every", "5m"),
        ("apply", "nothing.toml", "--yes"),
        ("add", "telegram", "--from", "nothing.txt"),
        ("history", "nobody"),
        ("history", "--id", "zz"),
        ("logs", "nobody"),
        ("logs", "news", "--level", "loud"),
        ("stats", "nobody"),
        ("items", "nobody"),
        ("items", "news", "--key", "nothing"),
        ("watermark", "show", "nobody"),
        ("watermark", "set", "nobody", "{}", "--yes"),
        ("limits", "clear", "nobody", "--yes"),
        ("breakers", "reset", "nobody", "--yes"),
        ("dlq", "retry", "--group", "000000"),
        ("sinks", "show", "nobody"),
        ("sinks", "pause", "nobody"),
        ("sinks", "test", "lake"),
        ("sinks", "rm", "lake", "--yes"),
        ("sinks", "replay", "lake", "--yes"),
        ("sinks", "replay", "lake", "--from", "999", "--yes"),
        ("sinks", "replay", "lake", "--from", "1"),
        ("sinks", "dead-letters", "lake", "--retry"),
        ("sinks", "dead-letters", "lake", "--retry", "--drop"),
        ("dlq", "drop", "--id", "zz", "--yes"),
        ("add", "pigeon", "x"),
        ("add", "python", "feeds:news", "--name", "news"),
        ("add", "python", "feeds:news", "--depends-on", "nobody"),
        ("add", "python", "feeds:news", "--cron", "61 * * * *"),
        ("add", "telegram", "+490000"),
    ],
)
def test_what_is_refused_is_refused_alike(both: Callable[..., tuple[Answer, Answer]], command: tuple[str, ...]) -> None:
    answer = same(both(*command))
    assert (answer.code, answer.err.startswith("Error: ")) == (2, True), answer


@pytest.mark.thorough
def test_what_is_told_is_done_alike(both: Callable[..., tuple[Answer, Answer]]) -> None:
    """A life of a job, once here and once away."""
    steps: list[tuple[str, ...]] = [
        ("pause", "@twin", "--reason", "too loud"),
        ("explain", "@twin"),
        ("resume", "@twin"),
        ("run", "@twin", "--param", "count=2"),
        ("run", "@twin", "--json"),
        ("show", "@twin"),
        ("cancel", "@twin", "--yes"),
        ("history", "@twin"),
        ("watermark", "set", "@twin", '{"id": 7}', "--yes"),
        ("watermark", "show", "@twin"),
        ("watermark", "reset", "@twin", "--yes"),
        ("dlq", "retry", "@twin"),
        ("cancel", "@twin", "--yes"),
        ("limits", "clear", "limit @twin", "--yes", "--json"),
        ("breakers", "reset", "breaker @twin", "--yes"),
        ("sinks", "pause", "@twin"),
        ("sinks", "resume", "@twin", "--json"),
        ("sinks", "replay", "@twin", "--from", "2", "--yes"),
        ("sinks", "dead-letters", "@twin", "--retry", "--position", "1", "--position", "2"),
        ("sinks", "dead-letters", "@twin"),
        ("sinks", "dead-letters", "@twin", "--drop", "--yes"),
        ("rm", "@twin", "--yes"),
        ("history", "@twin", "--limit", "1"),
    ]
    for step in steps:
        assert same(both(*step), moments=True).code == 0, step


@pytest.mark.thorough
def test_a_job_is_added_alike(both: Callable[..., tuple[Answer, Answer]]) -> None:
    options = (
        "--daily", "02:00", "--tz", "Europe/Berlin", "--priority", "high", "--timeout", "5m", "--retries", "7",
        "--overlap", "queue", "--catch-up", "all", "--jitter", "30s", "--depends-on", "news", "--param", "count=3",
        "--tag", "one", "--limit-key", "account 1", "--tenant", "t1", "--disabled",
    )  # fmt: skip
    same(both("add", "python", "feeds:news", "--name", "new-@twin", *options, "--json"), moments=True)
    same(both("add", "python", "feeds:news", "--name", "plain-@twin"), moments=True)
    same(both("add", "telegram", "https://t.me/@twin_news"), moments=True)
    same(both("rm", "plain-@twin", "--yes"))


@pytest.mark.spec("B9")
@pytest.mark.thorough
def test_many_jobs_are_added_and_changed_alike(both: Callable[..., tuple[Answer, Answer]], shop: Shop) -> None:
    for cli, name in zip(shop, ("lefty", "right"), strict=True):
        rows = [f"@{name}_{n},{n}m,many;{name}" for n in range(1, 4)]
        (cli.folder / "many.csv").write_text("\n".join(["target,every,tags", *rows, "no channel,,"]), encoding="utf-8")
    assert same(both("add", "telegram", "--from", "many.csv", "--priority", "low")).code == 1
    same(both("edit", "--where-match", "telegram-@twin-?", "--timeout", "5m", "--yes"))
    exported = [answer.out for answer in both("jobs", "export", "--match", "telegram-@twin-?")]
    assert exported[0].replace("lefty", "right") == exported[1]
    for cli, text in zip(shop, exported, strict=True):
        changed = text.replace("timeout_seconds = 300", "timeout_seconds = 400").replace(
            "interval_seconds = 60", "cron = '0 6 * * *'"
        )
        (cli.folder / "many.toml").write_text(changed, encoding="utf-8")
    assert "~ telegram-" in same(both("apply", "many.toml", "--dry-run")).out
    same(both("apply", "many.toml", "--yes"))
    assert same(both("apply", "many.toml", "--yes")).out == "3 unchanged. Nothing was changed.\n"
    same(both("tag", "--match", "telegram-@twin-?", "--add", "x", "--yes", "--json"))
    assert "Deleted 3 jobs" in same(both("rm", "--match", "telegram-@twin-?", "--yes")).out


def test_the_fleet_is_told_alike(both: Callable[..., tuple[Answer, Answer]]) -> None:
    same(both("workers", "--drain"))
    same(both("workers", "--resume", "--json"))


def test_the_doctor_finds_the_same(both: Callable[..., tuple[Answer, Answer]]) -> None:
    told = same(both("doctor"))
    assert told.code == 1
    assert "no scheduler is running" in told.out
    assert {finding["code"] for finding in same(both("doctor", "--json")).json if not finding["ok"]} >= {"leader"}


def test_a_crontab_is_imported_alike(both: Callable[..., tuple[Answer, Answer]], shop: Shop) -> None:
    lines = "CRON_TZ=Europe/Berlin\n*/5 * * * * /usr/bin/a -x\n0 3 * * * b%in\n"
    for cli in shop:
        (cli.folder / "tab").write_text(lines, encoding="utf-8")
        (cli.folder / "bad").write_text("@daily good\n61 * * * * bad\n", encoding="utf-8")
    command = ("import", "crontab", "tab", "--target", "feeds:news", "--prefix", "@twin", "--tag", "moved")
    assert "Would import 2 jobs" in same(both(*command, "--dry-run")).out
    assert same(both(*command, "--json")).json["already"] == []
    assert "2 already exist" in same(both(*command)).out
    same(both("show", "@twin-a-x", "--json"), moments=True)
    assert "old scheduler" in same(both("ls", "@twin-b")).out
    assert same(both("import", "crontab", "bad", "--target", "feeds:news", "--prefix", "@twin")).code == 2
    assert same(both("import", "crontab", "bad", "--target", "feeds:news", "--prefix", "@twin", "--skip-bad")).code == 0


@pytest.mark.spec("F4")
@pytest.mark.thorough
def test_files_are_written_alike(both: Callable[..., tuple[Answer, Answer]], shop: Shop) -> None:
    def written(name: str) -> dict[str, bytes]:
        here, away = (files_in(cli.folder / name) for cli in shop)
        assert here == away
        return away

    assert same(both("export", "files", "--out", "all", "--json")).json["written"] == 3
    assert written("all").keys() == {f"{HARBOUR}/2026-06-01.json", f"{HARBOUR}/2026-06-02.json", TENANTS_FILE}
    assert "0 files written, 3 unchanged" in same(both("export", "files", "--out", "all")).out
    same(both("export", "files", "--out", "one", "--job", "harbour", "--since", "2026-06-02"))
    assert written("one").keys() == {f"{HARBOUR}/2026-06-02.json"}
    same(both("export", "files", "--out", "two", "--stream", "telegram:acme:7", "--until", "2026-06-01"))
    assert written("two").keys() == {TENANTS_FILE}
    for wrong in (("--job", "news"), ("--job", "nobody"), ("--stream", "telegram:8"), ("--stream", "nothing")):
        assert same(both("export", "files", "--out", "none", *wrong)).code == 2


@pytest.mark.spec("B6")
@pytest.mark.thorough
def test_items_are_exported_with_the_same_content(
    both: Callable[..., tuple[Answer, Answer]], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(name: str) -> bytes:
        here, away = ((cli.folder / name).read_bytes() for cli in shop)
        assert here == away
        return away

    for command in (
        ("--out", "items.jsonl", "--revisions", "--deleted"),
        ("telegram:*", "--out", "items.csv", "--where", "views>700", "--since", "2026-06-01"),
        ("harbour", "--out", "items.parquet", "--data"),
    ):
        same(both("export", "items", *command, "--json"))
    assert len(written("items.jsonl").splitlines()) == 459
    assert written("items.csv").count(b"\ntelegram,") == 349
    assert written("items.parquet")
    same(both("export", "items", "nothing", "--out", "none.csv"))
    monkeypatch.chdir(shop[1].folder)
    counts = [
        shop[1].good("export", "items", "--format", "jsonl", "--continue", "--out", "parts", "--json").json["rows"]
        for _ in range(2)
    ]
    assert counts == [457, 0]


def files_in(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*.json") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# Accounts


@pytest.fixture
def telegram(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackTelegram]:
    monkeypatch.setattr(TelegramClient, "_config", None)
    backend = TelegramBackend(seed=7)
    for number, name in enumerate(("lefty", "right")):
        backend.account(name, phone=f"+1000000000{number}", code="24680")
    backend.channel("harbour").fill(24, start=DAY, every=timedelta(hours=2))
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as made:
        yield made
        assert made.duplicates == []


def test_without_an_account_nothing_is_fetched(both: Callable[..., tuple[Answer, Answer]]) -> None:
    told = same(both("fetch", "@harbour", "--date", "2026-06-01", "--out", "fetched"))
    assert (told.code, "no Telegram account is set up" in told.err) == (1, True)


@pytest.mark.spec("T1")
@pytest.mark.thorough
def test_an_account_is_added_tested_and_removed_alike(
    both: Callable[..., tuple[Answer, Answer]], shop: Shop, telegram: LoopbackTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login is made where it is typed; the session that comes of it is tested and kept by the installation."""

    def alike(*command: str, code: int = 0) -> Answer:
        told = same(both(*command), moments=True)
        assert told.code == code, told
        for name in ("lefty", "right"):
            assert telegram.session(name)[-60:] not in told.out + told.err
        return told

    by_phone = ("--phone", "+1000000000@n", "--code", "24680", "--server", f"127.0.0.1:{telegram.port}")
    assert "Added right" in alike("accounts", "add", "@twin", *by_phone, "--tenant", "acme").out
    assert "there is already an account" in alike("accounts", "add", "@twin", *by_phone, code=2).err
    alike("accounts", "add", "a b", *by_phone, code=2)
    assert "Works: right is" in alike("accounts", "test", "@twin").out
    assert alike("accounts", "ls").out.count("acme") == 2
    alike("add", "telegram", "https://t.me/read_@twin", "--account", "@twin")
    alike("pause", "telegram-read-@twin", "--reason", "account @twin: SessionRevoked")

    for cli, name in zip(shop, ("lefty", "right"), strict=True):
        (cli.folder / "session").write_text(telegram.session(name), encoding="utf-8")
        telegram.write_session(name, cli.folder / "mine.session")
    again = alike("accounts", "add", "@twin", "--session", "mine.session", "--replace")
    assert "Resumed 1 job: telegram-read-right" in again.out
    assert "has this session already" in alike("accounts", "add", "twice", "--session", "mine.session", code=2).err
    alike("accounts", "add", "odd", "--session", "no such session", code=2)

    telegram.revoke("lefty", "SESSION_REVOKED")
    telegram.revoke("right", "SESSION_REVOKED")
    alike("accounts", "test", "@twin", code=1)
    alike("accounts", "test", "nobody", code=2)
    assert "which 1 job uses" in alike("accounts", "rm", "@twin", "--dry-run").out
    assert "Deleted right." in alike("accounts", "rm", "@twin", "--yes").out
    alike("accounts", "rm", "@twin", "--yes", code=2)
    rows = same(both("audit", "--object", "account:right", "--json")).json
    assert [(row["action"], row["via"]) for row in rows] == [
        ("account.removed", "api"),
        ("account.replaced", "api"),
        ("account.added", "api"),
    ]
    assert "session" not in json.dumps(rows).lower()


@pytest.mark.spec("G9")
def test_a_session_does_not_leave_this_machine_in_the_clear(
    shop: Shop, telegram: LoopbackTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = shop[1]
    monkeypatch.chdir(away.folder)
    given = ("accounts", "add", "reader", "--session", telegram.session("lefty"), "--url", "http://192.0.2.1:8060")
    answer = away.refused(*given, says="is not sent to http://192.0.2.1:8060: that is plain http")
    assert "use https://" in answer.err


def test_the_audit_knows_who_told_what_from_where(both: Callable[..., tuple[Answer, Answer]]) -> None:
    both("pause", "news", "--reason", "@twin")
    both("resume", "news")
    rows = same(both("audit", "--object", "job:news", "--json")).json
    assert {row["via"] for row in rows} == {"cli", "api"}


# A whole installation


@pytest.mark.release
def test_a_run_is_waited_for_from_far_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, telegram: LoopbackTelegram
) -> None:
    """`floodmark up` in one folder, everything else typed in another."""
    for name in ("here", "away"):
        (tmp_path / name).mkdir()
    here, away = CommandLine(tmp_path / "here", PORT="0"), CommandLine(tmp_path / "away")
    (away.folder / "feeds.py").unlink()
    monkeypatch.chdir(away.folder)
    with here.running("up"):
        [url] = eventually(lambda: re.findall(r"api +(http://\S+?)/api/v2", here.said()))
        monkeypatch.setenv("FLOODMARK_URL", url)
        away.good("add", "python", "feeds:news", "--key", "id", "--watermark", "id")
        away.good("add", "python", "feeds:broken", "--retries", "0")
        assert "Done" in away.good("run", "news", "--wait").out
        assert len(away.good("items", "news", "--json").json) == 5
        eventually(lambda: len(away.good("events", "--stream", "news", "--json").json) == 5)
        assert "no such thing" in away("run", "broken", "--wait").out
        [group] = away.good("dlq", "ls", "--json").json
        assert "Queued 1 execution again" in away.good("dlq", "retry", "--group", group["mark"]).out
        assert "leader" in away.good("workers").out
        away.good("accounts", "add", "reader", "--session", telegram.session("lefty"))
        day = ("--date", "2026-06-01", "--until", "2026-06-02")
        told = away.good("fetch", "@harbour", *day, "--out", "files", "--json").json["chats"]
        assert [(one["new_messages"], one["written"]) for one in told[0]["days"]] == [(12, True)] * 2
        assert "@nobody_is_here does not exist" in away("fetch", "@nobody_is_here", *day, "--out", "files").out
        away.good("export", "files", "--out", "all")
    assert files_in(away.folder / "files") == files_in(away.folder / "all") != {}
    assert {path.name for path in away.folder.iterdir()} == {"files", "all"}


# The way there


@pytest.mark.spec("G9")
def test_a_server_that_is_away_is_told_with_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        answer = cli.refused("ls", "--url", url, says=f"cannot reach the server at {url}", code=1)
        assert "floodmark up" in answer.err
        monkeypatch.setenv("FLOODMARK_URL", url)
        cli.refused("ls", says=f"cannot reach the server at {url}", code=1)
    cli.refused("ls", "--url", "server:8060", says="is not a URL that begins with http")
    assert not (tmp_path / ".floodmark").exists()


@pytest.mark.spec("G9")
@pytest.mark.thorough
def test_a_token_that_is_missing_or_not_enough_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path)
    reader = cli.good("tokens", "add", "ci", "--role", "read", "--quiet").out.strip()
    with api_process(f"sqlite:///{tmp_path}/.floodmark/floodmark.db") as url:
        monkeypatch.setenv("FLOODMARK_URL", url)
        assert "FLOODMARK_TOKEN" in cli.refused("ls", says="a token is needed", code=1).err
        monkeypatch.setenv("FLOODMARK_TOKEN", reader)
        assert cli.good("ls", "--json").json == []
        answer = cli.refused("workers", "--drain", says="this needs the role operate, and ci has the role read", code=1)
        assert "floodmark tokens add NAME --role operate" in answer.err
        monkeypatch.setenv("FLOODMARK_TOKEN", "fm_nonsense")
        answer = cli.refused("ls", says="this token is not known here", code=1)
        assert "the token is the one in FLOODMARK_TOKEN" in answer.err
        assert reader not in answer.err
