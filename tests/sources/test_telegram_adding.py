"""`floodmark add telegram`, and the whole way from there to posts as a person goes it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import CommandLine, eventually
from floodmark.settings import keys
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend

SECRET = "a secret key for tests, long enough"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield CommandLine(tmp_path, FLOODMARK_SECRET_KEY=SECRET)
    sys.path[:] = path


@pytest.mark.spec("T1")
def test_a_channel_is_added_under_its_one_name(cli: CommandLine) -> None:
    added = cli.good("add", "telegram", "https://t.me/Harbour/12", "--json").json
    assert (added["name"], added["target"], added["stream"]) == ("telegram-harbour", "@harbour", "telegram:@harbour")
    assert added["interval_seconds"] == 300
    for again in ("@harbour", "harbour", "t.me/s/harbour"):
        cli.refused("add", "telegram", again, says="telegram-harbour already collects @harbour")
    # Whoever wants a second job says so.
    cli.good("add", "telegram", "@harbour", "--name", "often", "--every", "10s")


def test_what_is_said_about_a_channel_is_kept(cli: CommandLine) -> None:
    said = ("--history", "all", "--revisit", "48h", "--account", "reader1", "--every", "1m", "--tenant", "acme")
    added = cli.good("add", "telegram", *said, "--json", "--", "-1001234567890").json
    assert added["params"] == {"history": "all", "revisit": "48h"}
    assert (added["account"], added["target"], added["stream"]) == (
        "reader1",
        "1234567890",
        "telegram:acme:1234567890",
    )
    since = cli.good("add", "telegram", "other_channel", "--since", "2026-01-31", "--json").json
    assert since["params"] == {"since": "2026-01-31"}


@pytest.mark.spec("T1")
def test_without_an_account_it_says_what_to_type_next(cli: CommandLine) -> None:
    assert "floodmark accounts add NAME" in cli.good("add", "telegram", "@harbour").out
    assert "floodmark accounts add reader9" in cli.good("add", "telegram", "@pier_1", "--account", "reader9").out


@pytest.mark.spec("B12")
def test_a_channel_is_added_without_an_account(cli: CommandLine) -> None:
    told = cli.good("add", "telegram", "@harbour", "--preview")
    assert "accounts add" not in told.out
    [added] = cli.good("ls", "--json").json
    assert added["params"] == {"preview": True}
    cli.refused("add", "telegram", "@pier_1", "--preview", "--comments", says="comments needs an account")
    cli.refused("edit", "telegram-harbour", "--param", "revisit=2d", says="revisit needs an account")
    cli.good("edit", "telegram-harbour", "--param", "preview=false", "--param", "revisit=2d")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("t.me/+AbCdEf",), "is an invitation"),
        (("+491701234567",), "is not a channel"),
        (("no such name",), "is not the name of a channel"),
        (
            ("-1001234567890",),
            "put -- before a value that starts with a minus: floodmark add telegram -- -1001234567890",
        ),
        (("@harbour", "--history", "0"), "is not a number of posts"),
        (("@harbour", "--since", "yesterday"), "is not a date"),
        (("@harbour", "--revisit", "soon"), "is not a length of time"),
        (("@harbour", "--since", "2026-01-01", "--history", "5"), "contradict"),
    ],
)
def test_nonsense_is_refused_and_nothing_is_added(cli: CommandLine, words: tuple[str, ...], says: str) -> None:
    cli.refused("add", "telegram", *words, says=says)
    assert cli.good("ls", "--json").json == []


def test_options_of_telegram_mean_nothing_to_others(cli: CommandLine) -> None:
    cli.refused("add", "python", "feeds:news", "--history", "5", says="No such option: --history")


@pytest.mark.spec("T1")
def test_from_nothing_to_posts(cli: CommandLine) -> None:
    """Jobs without an account say so; once there is one, they go on by themselves."""
    backend = TelegramBackend(seed=7)
    backend.account("reader1")
    backend.channel("harbour").fill(30)
    with LoopbackTelegram.thread(backend) as server:
        cli.good("add", "telegram", "@harbour", "--every", "1s")
        with cli.running("up", "--port", "0"):
            eventually(lambda: "no Telegram account is set up: nothing can be collected" in cli.said())
            assert "floodmark accounts add NAME" in cli.said()
            eventually(lambda: "no Telegram account" in cli.good("explain", "telegram-harbour").out)
            options = ("--session", server.session("reader1"), "--api-id", "1", "--api-hash", "hash")
            assert "telegram-harbour" in cli.good("accounts", "add", "reader1", *options).out
            eventually(lambda: len(cli.good("items", "telegram-harbour", "--json", "--limit", "100").json) == 30)
        assert server.duplicates == []


@pytest.mark.spec("B11", "B12")
def test_options_around_posts_are_kept(cli: CommandLine) -> None:
    options = ("--media", "photo,document", "--max-size", "20MB", "--engagement", "1h,1d", "--comments", "--raw")
    assert cli.good("add", "telegram", "@pier_1", *options, "--json").json["params"] == {
        "media": "photo,document",
        "max_size": "20MB",
        "engagement": "1h,1d",
        "comments": True,
        "raw": True,
    }
    cli.refused("add", "telegram", "--", "-4123456789", says="needs an account")
    cli.refused("add", "telegram", "@pier_2", "--media", "pictures", says="'pictures' is not a kind of file")
    cli.refused("add", "telegram", "@pier_2", "--engagement", "soon", says="is not a length of time")


@pytest.mark.spec("B11", "B12")
def test_files_and_engagement_of_nothing_are_said_to_be_nothing(cli: CommandLine) -> None:
    cli.good("add", "telegram", "@pier_1")
    listed = cli.good("media")
    assert "No files." in listed.out
    assert cli.good("media", "ls", "--state", "failed", "--json").json == []
    assert "0 files will be downloaded." in cli.good("media", "retry").out
    assert cli.good("media", "prune", "--older-than", "90d", "--dry-run", "--json").json["files"] == 0
    assert "No posts." in cli.good("engagement", "telegram-pier-1").out
    cli.refused("media", "show", "5", says="there is no file '5'")
    cli.refused("media", "retry", "--state", "stored", says="files that are stored cannot be tried again")
    cli.refused("media", "prune", "--older-than", "soon", says="is not a length of time")
    cli.refused("engagement", "nothing", says="nothing")
