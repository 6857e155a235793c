"""Commands on a server far away say and do the same as on the database itself."""

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from api_process import api_process
from command_line import Answer, CommandLine, eventually
from floodmark.batch import Batch, Item
from floodmark.calls.breaker import Breaker, BreakerState
from floodmark.job import Job
from floodmark.office.local import LocalOffice
from floodmark.outcome import Dead
from floodmark.parts import open_parts
from floodmark.settings import Settings, keys
from floodmark.store.audit import Actor
from floodmark.store.breakers import Breakers
from floodmark.store.jobs import Jobs
from floodmark.store.limits import Limits
from system.stores import Crew, a_spec

pytestmark = pytest.mark.spec("V8")

# "in 14 min 59 s", "3 s ago", "now": the clock goes on between two commands.
_TIME = re.compile(r"\b(?:in |for )?\d+ (?:d|h|min|s)\b(?: \d+ (?:d|h|min|s)\b)*(?: ago)?|\bnow\b")
_ID = re.compile(r"\b[0-9a-f]{13,32}\b")
_MOMENT = re.compile(r'"\d{4}-\d\d-\d\dT[0-9:.]+Z"|\b\d\d:\d\d:\d\d\b')

Shop = tuple[CommandLine, CommandLine]


async def stock(url: str) -> None:
    """Something of everything, as workers leave it."""
    async with open_parts(Settings(database_url=url)) as parts:
        office = LocalOffice(parts, Actor(who="ada"))
        jobs, crew = Jobs(parts.database, parts.clock), Crew(parts.database)  # type: ignore[arg-type] # SQLite
        news = await office.add_job(a_spec(name="news", tags=("daily",), stream="front/page"))
        await office.add_job(a_spec("two", name="old", priority=1, schedule_enabled=False))
        await office.add_job(a_spec("three", name="never", depends_on=("news",)))
        items = tuple(Item(f"k{n}", {"id": n, "title": f"News [bold]{n}[/]"}) for n in range(5))
        await crew.collect(jobs, news, Batch(items, {"id": 4}))
        await crew.collect(jobs, news, Batch((Item("k1", {"id": 1, "title": "again"}),), {"id": 4}))
        await crew.relay()
        for number in range(3):
            await crew.run(jobs, news, Dead(error=f"user {number} not found"))
        await office.pause_job("old", "too loud")
        await Limits(parts.database, parts.clock).set("account 1", timedelta(hours=1), "FloodWait", 0.5)
        opened = Breaker(state=BreakerState.OPEN, open_until=parts.clock.now(), trips=1, reason="refused")
        await Breakers(parts.database, parts.clock).change("telegram:reader1", lambda *_: opened)
        await _twins(office, jobs, crew)


async def _twins(office: LocalOffice, jobs: Jobs, crew: Crew) -> None:
    """Two of each for those who change something: one is told here, the other far away."""
    for name in ("lefty", "right"):
        job: Job = await office.add_job(a_spec(name, name=name))
        await crew.run(jobs, job, Dead(error=f"{name} is broken"))
        await office.set_limit(f"limit {name}", 3600, "rest")
        await Breakers(office.parts.database, office.parts.clock).change(
            f"breaker {name}", lambda *_: Breaker(state=BreakerState.HALF_OPEN, trips=1)
        )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One installation, seen from beside its database, and from a folder that has nothing but its address."""
    here = CommandLine(tmp_path_factory.mktemp("here"))
    url = f"sqlite:///{here.folder}/.floodmark/floodmark.db"
    (here.folder / ".floodmark").mkdir()
    asyncio.run(stock(url))
    with api_process(url) as address:
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
            answers.append(cli(*(word.replace("@twin", name) for word in command)))
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
    text = _ID.sub("ID", text.replace("lefty", "twin").replace("right", "twin"))
    text = _MOMENT.sub("MOMENT", text) if moments else text
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
        ("history", "nobody"),
        ("history", "--id", "zz"),
        ("stats", "nobody"),
        ("items", "nobody"),
        ("items", "news", "--key", "nothing"),
        ("watermark", "show", "nobody"),
        ("watermark", "set", "nobody", "{}", "--yes"),
        ("limits", "clear", "nobody", "--yes"),
        ("breakers", "reset", "nobody", "--yes"),
        ("dlq", "retry", "--group", "000000"),
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


def test_what_is_told_is_done_alike(both: Callable[..., tuple[Answer, Answer]]) -> None:
    """A life of a job, once here and once away."""
    steps: list[tuple[str, ...]] = [
        ("pause", "@twin", "--reason", "too loud"),
        ("explain", "@twin"),
        ("resume", "@twin"),
        ("run", "@twin", "--param", "depth=2"),
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
        ("rm", "@twin", "--yes"),
        ("history", "@twin", "--limit", "1"),
    ]
    for step in steps:
        assert same(both(*step), moments=True).code == 0, step


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


def test_the_fleet_is_told_alike(both: Callable[..., tuple[Answer, Answer]]) -> None:
    same(both("workers", "--drain"))
    same(both("workers", "--resume", "--json"))


def test_the_audit_knows_who_told_what_from_where(both: Callable[..., tuple[Answer, Answer]]) -> None:
    both("pause", "news", "--reason", "@twin")
    both("resume", "news")
    rows = same(both("audit", "--object", "job:news", "--json")).json
    assert {row["via"] for row in rows} == {"cli", "api"}


# A whole installation


def test_a_run_is_waited_for_from_far_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert [path.name for path in away.folder.iterdir()] == []


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
