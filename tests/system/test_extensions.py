"""Extensions of other packages: the examples in docs/, installed as wheels, at work in a real process."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hatchling.build import build_wheel

from command_line import CommandLine, eventually
from floodmark.errors import InvalidInput
from floodmark.model.job import DueJob, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.process import entry_points
from floodmark.repositories.jobs import Jobs
from floodmark.scheduler.scheduler import decide_one
from floodmark.settings import Settings
from floodmark.testing.factories import Opened
from floodmark.triggers import trigger_of
from floodmark.triggers.parsing import words_of

pytest_plugins = ("backends",)

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
POSTS: list[dict[str, Any]] = [
    {
        "id": str(number),
        "created_at": f"2026-06-01T12:00:{number:02}.000Z",
        "url": f"https://mastodon.example/@ada/{number}",
        "account": {"acct": "ada"},
        "content": f"Post {number}",
    }
    for number in range(1, 51)
]


class Elsewhere(ThreadingHTTPServer):
    """A Mastodon server, and an endpoint for events."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.only_media: set[str] = set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Elsewhere

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        self.server.only_media.update(asked["only_media"])
        newer = [post for post in POSTS if int(post["id"]) > int(asked["min_id"][0])]
        self._answer(json.dumps(newer[: int(asked["limit"][0])][::-1]).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.add(self.headers["Authorization"])
        self.server.lines += [json.loads(line) for line in body.splitlines()]
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def install_examples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build both examples as wheels and install them into a folder, without a network."""
    wheels, installed = folder / "wheels", folder / "installed"
    for example in ("mastodon", "ndjson"):
        monkeypatch.chdir(EXAMPLES / example)
        build_wheel(str(wheels))
    uv = shutil.which("uv")
    pip = [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
    options = ["--quiet", "--no-index", "--no-deps", "--target", str(installed)]
    found = [str(wheel) for wheel in sorted(wheels.glob("*.whl"))]
    subprocess.run([*pip, "install", *options, *found], check=True, capture_output=True)
    return installed


@pytest.mark.spec("G3", "G4")
def test_a_source_and_a_sink_of_other_packages_work_as_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    """From `pip install` to collected items and delivered events; the settings of each come from its section."""
    installed = install_examples(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "floodmark.toml").write_text('[extensions.ndjson]\ntoken = "canary"\n')
    cli = CommandLine.installed(tmp_path, migrated_sqlite, HTTP_ALLOW_HOSTS="127.0.0.1", WEB_DOMAIN_DELAY="0")
    with elsewhere() as server:
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("NDJSON_URL", f"{url}/events")
        cli.refused("add", "mastodon", "python", says="'python' is not a hashtag")
        assert "--only-media" in cli.good("add", "mastodon", "--help").out
        added = cli.good("add", "mastodon", f"{url}/tags/python", "--once", "--only-media", "--json").json
        assert added["params"] == {"only_media": True}
        cli.refused("add", "mastodon", f"{url}/tags/python", says="collects")
        with cli.running("up", "--port", "0") as process:
            eventually(lambda: len(server.lines) >= len(POSTS) or process.poll() is not None)
            assert process.poll() is None, cli.said()
    items = cli.good("items", f"mastodon:{url}/tags/python", "--limit", "100", "--json").json

    assert [line["key"] for line in server.lines] == [post["id"] for post in POSTS]
    assert server.lines[0]["data"] == {key: POSTS[0][key] for key in ("url", "content")} | {"author": "ada"}
    assert server.tokens == {"Bearer canary"}
    assert server.only_media == {"true"}
    assert len(items) == len(POSTS)
    assert "canary" not in cli.said()


class Sunrise:
    """Six o'clock, every day."""

    def after(self, instant: datetime) -> datetime | None:
        today = instant.replace(hour=6, minute=0, second=0, microsecond=0)
        return today if today > instant else today + timedelta(days=1)

    def latest(self, until: datetime) -> datetime | None:
        day = self.after(until)
        return None if day is None else day - timedelta(days=1)


class Night:
    """A trigger with a bug."""

    def after(self, instant: datetime) -> datetime | None:
        raise ZeroDivisionError("no sun")

    latest = after


class Folder:
    """A source without a form, which accepts every target."""

    kind = "folder"

    def __init__(self, settings: Settings) -> None:
        pass

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        pass


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def sunrise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with triggers, a source and a form, as an installer leaves it."""
    told = tmp_path / "sunrise-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: sunrise\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(
        "[floodmark.triggers]\nsunrise = sunrise:sunrise\nnight = sunrise:night\nlost = sunrise:no_such_thing\n"
        "[floodmark.sources]\nfolder = sunrise:Folder\n"
        "[floodmark.forms]\nlost = sunrise:no_such_thing\n"
    )
    (tmp_path / "sunrise.py").write_text(
        "from system.test_extensions import Folder, Night, Sunrise\n"
        "def sunrise(when, anchor): return Sunrise()\n"
        "def night(when, anchor): return Night()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def a_when(name: str) -> When:
    return When(schedule_type=ScheduleType.CALENDAR, time_config={"trigger": name})


@pytest.mark.usefixtures("sunrise")
async def test_a_job_can_name_a_trigger_of_another_package(sqlite: Opened) -> None:
    async with sqlite() as resources:
        jobs = Jobs(resources.database, resources.clock)
        job = await jobs.add(JobSpec(source="python", target="x", name="dawn", when=a_when("sunrise")))
        with pytest.raises(InvalidInput, match="moonrise"):
            await jobs.add(JobSpec(source="python", target="x", name="dusk", when=a_when("moonrise")))

    assert job.when == a_when("sunrise")
    assert words_of(job.when) == "sunrise UTC"
    assert trigger_of(job.when, anchor=NOON).after(NOON) == NOON + timedelta(hours=18)


@pytest.mark.usefixtures("sunrise")
def test_a_trigger_that_fails_makes_its_job_invalid_and_no_other() -> None:
    job = DueJob(job_id="j", name="job", source="test", when=a_when("night"), created_at=NOON)
    decision = decide_one(job, NOON)

    assert decision.invalid_reason is not None
    assert "the trigger night failed: ZeroDivisionError: no sun" in decision.invalid_reason
    with pytest.raises(InvalidInput, match=r"lost of floodmark\.triggers cannot be loaded from sunrise"):
        trigger_of(a_when("lost"), anchor=NOON)
    with pytest.raises(InvalidInput, match=r"'moonrise' is not in floodmark\.triggers") as refused:
        trigger_of(a_when("moonrise"), anchor=NOON)
    assert "calendar, cron, event, immediate, interval, lost, night, sunrise" in refused.value.hint


@pytest.mark.usefixtures("sunrise")
def test_a_job_of_a_source_without_a_form_has_the_options_of_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite)
    added = cli.good("add", "folder", "inbox", "--every", "1m", "--param", "depth=2", "--json").json

    assert (added["source"], added["target"], added["params"]) == ("folder", "inbox", {"depth": 2})
    cli.refused("add", "folder", "inbox", "--depth", "2", says="No such option: --depth")


@pytest.mark.usefixtures("sunrise")
def test_a_broken_form_hides_no_other_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite)
    listed = " ".join(cli.good("add", "--help").out.replace("│", " ").split())

    assert "lost Its options are unknown: lost of floodmark.forms cannot be loaded from sunrise" in listed
    assert "telegram Collect the posts of a Telegram channel" in listed
    cli.refused("add", "lost", "x", says="there is no source 'lost'")


def test_built_in_extensions_are_entry_points_like_any() -> None:
    assert set(entry_points.find_extensions("floodmark.sources")) >= {"cookies", "feed", "python", "telegram", "web"}
    assert set(entry_points.find_extensions("floodmark.sinks")) >= {"files", "redis"}
    assert set(entry_points.find_extensions("floodmark.notifications")) >= {"email", "slack", "webhook"}
    assert set(entry_points.find_extensions("floodmark.forms")) >= {"cookies", "feed", "python", "telegram", "web"}
    for group in ("sources", "sinks", "notifications", "triggers"):
        for name in entry_points.find_extensions(f"floodmark.{group}"):
            assert callable(entry_points.load_extension(f"floodmark.{group}", name))
