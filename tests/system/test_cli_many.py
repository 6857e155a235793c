"""Many jobs at once, as people type it: targets, files, filters, and jobs as a file in Git."""

import asyncio
import signal
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandLine, environment
from floodmark.model.clock import SystemClock
from floodmark.observability.events import Events
from floodmark.process import failpoints
from floodmark.repositories.jobs import Jobs
from floodmark.settings import keys
from floodmark.store.database import open_database
from system.stores import a_spec

pytestmark = pytest.mark.spec("B9")


@pytest.fixture
def cli(migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield CommandLine(tmp_path, DATABASE_URL=migrated_url)
    sys.path[:] = path


@pytest.fixture
def light(sqlite_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """The same on SQLite, where the database does not matter."""
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield CommandLine(tmp_path, DATABASE_URL=sqlite_copy)
    sys.path[:] = path


def listed(cli: CommandLine, *filters: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.good("ls", "--json", "--limit", "500", *filters).json
    return found


def names(cli: CommandLine, *filters: str) -> list[str]:
    return [job["name"] for job in listed(cli, *filters)]


def write(cli: CommandLine, name: str, text: str) -> str:
    (cli.folder / name).write_text(text, encoding="utf-8")
    return name


def test_several_targets_are_added_with_one_command(cli: CommandLine) -> None:
    said = cli.good("add", "telegram", "@harbour", "t.me/Pier_1", "1234567890", "--every", "10m", "--tag", "news")
    assert "Added 3 jobs: telegram-harbour, telegram-pier-1, telegram-1234567890." in said.out
    assert "floodmark accounts add NAME" in said.out
    assert {(job["interval_seconds"], *job["tags"]) for job in listed(cli)} == {(600, "news")}
    again = cli("add", "telegram", "@harbour", "@pier_1", "no channel", "@quay", "--every", "10m")
    assert again.code == 1
    assert "Added 1 job: telegram-quay; 2 there already; 1 failed." in again.out
    assert "no channel  'no channel' is not the name of a channel" in again.out
    assert len(listed(cli)) == 4
    nothing = cli("add", "telegram", "@dock", "no channel", "--atomic")
    assert (nothing.code, len(listed(cli))) == (1, 4)
    assert "Would add 1 job: telegram-dock; 1 failed. Nothing was changed." in nothing.out


def test_what_is_for_one_job_is_refused_for_many(light: CommandLine) -> None:
    light.refused("add", "telegram", "@harbour", "@pier", "--name", "x", says="--name is for one job")
    light.refused("add", "telegram", says="there is no target")
    light.refused("add", "telegram", "--from", "no.txt", says="no.txt cannot be read: No such file or directory")
    light.refused("add", "telegram", "--from", ".", says="cannot be read")
    assert names(light) == []


def test_a_file_has_a_job_per_line_and_its_own_columns(cli: CommandLine) -> None:
    text = 'target,name,tags,every,history\n@harbour,first,"a;b",1m,500\n@pier,,,,\n@quay,,,soon,\nno channel,,,,\n'
    answer = cli(
        "add", "telegram", "--from", write(cli, "c.csv", text), "--tag", "x", "--every", "5m", "--history", "9"
    )
    assert answer.code == 1
    assert "line 4: @quay       'soon' is not a length of time" in answer.out
    assert "line 5: no channel  'no channel' is not the name" in answer.out
    first, pier = listed(cli)
    assert (first["tags"], first["interval_seconds"], first["params"]) == (["x", "a", "b"], 60, {"history": "500"})
    assert (pier["tags"], pier["interval_seconds"], pier["params"]) == (["x"], 300, {"history": "9"})
    refused = write(cli, "d.csv", "target,nmae\n@dock,x\n")
    cli.refused("add", "telegram", "--from", refused, says="there is no column 'nmae'")
    cli.refused("add", "telegram", "--from", refused, "--format", "yaml", says="'yaml' is not a format")


def test_folders_of_a_feed_reader_become_tags(light: CommandLine) -> None:
    outlines = "".join(f'<outline text="F{n}" xmlUrl="https://f{n}.example/rss"/>' for n in range(3))
    opml = f'<opml><body><outline text="Sea">{outlines}</outline><outline type="link" url="x"/></body></opml>'
    said = light.good("add", "feed", "--from", write(light, "feeds.opml", opml), "--every", "1h")
    assert "Added 3 jobs" in said.out
    assert "Outlines that are not feeds were left out: 1." in said.out
    assert len(listed(light, "--tag", "Sea", "--source", "feed")) == 3
    assert "3 there already. Nothing was changed." in light.good("add", "feed", "--from", "feeds.opml").out


def test_a_dry_run_of_a_file_adds_nothing(light: CommandLine) -> None:
    write(light, "l.json", '["@harbour", {"target": "@pier", "every": "5m"}, "@harbour"]')
    said = light.good("add", "telegram", "--from", "l.json", "--dry-run", "--match", "@*")
    assert "Would add 2 jobs: telegram-harbour, telegram-pier; 1 there already. Nothing was changed." in said.out
    assert names(light) == []
    report = light.good("add", "telegram", "--from", "l.json", "--match", "@h*", "--json").json
    assert [line["status"] for line in report["results"]] == ["added", "existing"]


def test_functions_are_imported_before_they_are_added(light: CommandLine) -> None:
    write(light, "faulty.py", "def news(:")
    answer = light("add", "python", "feeds:news", "feeds:slow", "faulty:news", "feeds:nothing")
    assert (answer.code, names(light)) == (1, ["news", "slow"])
    assert "cannot be imported: SyntaxError" in answer.out


@pytest.mark.thorough
def test_jobs_are_changed_by_filter_after_a_preview(cli: CommandLine) -> None:
    cli.good("add", "telegram", "@harbour", "@pier", "@quay", "--tag", "sea", "--every", "5m")
    cli.good("add", "python", "feeds:news", "--name", "news")
    asked = cli.refused(
        "pause", "--tag", "sea", says="this would pause 3 jobs: telegram-harbour, telegram-pier, telegram-qu"
    )
    assert "--yes" in asked.err
    assert names(cli, "--paused") == []
    assert "Would pause 3 jobs" in cli.good("pause", "--tag", "sea", "--dry-run").out
    cli.good("pause", "--match", "telegram:*r", "--yes", "--reason", "storm")
    assert names(cli, "--paused") == ["telegram-harbour", "telegram-pier"]
    said = cli.good("pause", "--tag", "sea", "--yes").out
    assert said == "Paused 1 job: telegram-quay; 2 paused already.\n"
    assert {job["pause_reason"] for job in listed(cli, "--paused")} == {"storm", None}
    cli.good("resume", "--all", "--yes")
    assert names(cli, "--paused") == []

    preview = cli.good("edit", "--where-tag", "sea", "--every", "10m", "--param", "history=7", "--dry-run").out
    assert "interval_seconds  300 -> 600           3 jobs" in preview
    cli.good("edit", "--where-tag", "sea", "--every", "10m", "--param", "history=7", "--yes")
    assert {job["interval_seconds"] for job in listed(cli, "--tag", "sea")} == {600}
    assert [job["version"] for job in listed(cli, "--tag", "sea")] == [4, 4, 4]
    cli.good("disable", "telegram-harbour", "telegram-pier")
    assert names(cli, "--disabled") == ["telegram-harbour", "telegram-pier"]
    cli.good("enable", "--disabled", "--yes")
    cli.good("tag", "--source", "telegram", "--add", "water", "--remove", "sea", "--yes")
    assert {tuple(job["tags"]) for job in listed(cli, "--source", "telegram")} == {("water",)}
    cli.good("rm", "--tag", "water", "--yes")
    assert names(cli) == ["news"]
    assert cli.good("rm", "--tag", "water", "--yes").out == "No job matches.\n"


@pytest.mark.thorough
def test_what_fails_is_listed_and_the_others_are_changed(light: CommandLine) -> None:
    light.good("add", "telegram", "@harbour", "@pier")
    light.good("add", "web", "https://site.example/")
    answer = light("edit", "--all", "--target", "@quay", "--yes")
    assert answer.code == 1
    assert "web-site-example  " in answer.out
    assert "Changed 2 jobs: telegram-harbour, telegram-pier; 1 failed." in answer.out
    both = light("edit", "--all", "--target", "@dock", "--yes", "--atomic")
    assert (both.code, "Nothing was changed." in both.out) == (1, True)
    assert {job["target"] for job in listed(light, "--source", "telegram")} == {"@quay"}
    report = light("edit", "--all", "--target", "@dock", "--yes", "--json")
    assert [line["status"] for line in report.json["results"]] == ["changed", "changed", "failed"]


def test_many_jobs_are_run_by_filter(light: CommandLine) -> None:
    for name in ("one", "two"):
        light.good("add", "python", "feeds:news", "--name", name, "--stream", name, "--tag", "x")
    light.refused("run", "--tag", "x", says="this would run 2 jobs: one, two")
    assert "Requested runs of 2 jobs." in light.good("run", "--tag", "x", "--yes").out
    answer = light("run", "one", "two", "--param", "nothing=1", "--json")
    assert (answer.code, sorted(answer.json["failed"])) == (1, ["one", "two"])
    assert len(light.good("history", "--json").json) == 2


@pytest.mark.thorough
def test_jobs_are_kept_as_a_file_in_git(cli: CommandLine) -> None:
    cli.good("add", "telegram", "@harbour", "@pier", "--tag", "sea", "--history", "50")
    cli.good(
        "add", "feed", "https://site.example/feed?token=abc123", "--name", "feed", "--daily", "02:00", "--tag", "sea"
    )
    cli.good("add", "python", "feeds:news", "--name", "other", "--depends-on", "feed")
    text = cli.good("jobs", "export").out
    assert "abc123" not in text
    assert text == cli.good("jobs", "export").out
    write(cli, "jobs.toml", text)
    assert cli.good("apply", "jobs.toml").out == "4 unchanged. Nothing was changed.\n"

    cli.good("edit", "feed", "--daily", "03:00")
    cli.good("rm", "telegram-pier", "--yes")
    cli.good("add", "telegram", "@new_one", "--tag", "sea")
    difference = cli.good("apply", "jobs.toml", "--dry-run").out
    assert "~ feed\n    time_config: " in difference
    assert "+ telegram-pier  @pier" in difference
    assert "telegram-new-one" not in difference
    assert "Would be: 1 added, 1 changed, 2 unchanged. Nothing was changed." in difference
    cli.refused("apply", "jobs.toml", "--prune", says="this would add 1, change 1, delete 1 jobs")
    assert cli.good("apply", "jobs.toml", "--prune", "--yes").out.endswith(
        "1 added, 1 changed, 1 deleted, 2 unchanged.\n"
    )
    assert cli.good("jobs", "export").out == text
    assert listed(cli, "--source", "feed")[0]["target"].endswith("token=abc123")
    before = listed(cli)
    assert cli.good("apply", "jobs.toml", "--prune", "--yes").out == "4 unchanged. Nothing was changed.\n"
    assert listed(cli) == before


@pytest.mark.thorough
def test_feeds_are_exchanged_with_feed_readers(light: CommandLine) -> None:
    light.good("add", "feed", "https://a.example/feed?x=1&y=2", "--name", "a <b>", "--tag", "sea", "--tag", "news")
    light.good("add", "feed", "https://b.example/feed", "--name", "plain")
    light.good("add", "telegram", "@harbour")
    text = light.good("jobs", "export", "--format", "opml").out
    assert '<outline type="rss" text="a &lt;b&gt;"' in text
    assert "harbour" not in text
    before = {row["target"]: row["tags"] for row in listed(light, "--source", "feed")}
    light.good("rm", "a <b>", "plain", "--yes")
    write(light, "feeds.opml", text)
    light.good("add", "feed", "--from", "feeds.opml", "--every", "15m", "--yes")
    assert {row["target"]: row["tags"] for row in listed(light, "--source", "feed")} == before


@pytest.mark.thorough
def test_a_file_of_some_jobs_prunes_only_among_these(light: CommandLine) -> None:
    light.good("add", "telegram", "@harbour", "@pier", "--tag", "sea")
    light.good("add", "telegram", "@other")
    text = light.good("jobs", "export", "--tag", "sea", "--format", "json").out
    write(light, "sea.json", text)
    light.good("add", "telegram", "@new_one", "--tag", "sea")
    light.good("apply", "sea.json", "--prune", "--yes")
    assert names(light) == ["telegram-harbour", "telegram-other", "telegram-pier"]
    broken = text.replace('"target": "@pier"', '"target": 7')
    write(light, "sea.json", broken)
    light.refused("apply", "sea.json", "--prune", "--yes", says="nothing is deleted while jobs of the file are invalid")


async def _declare(url: str) -> None:
    database = open_database(url, events=Events())
    await Jobs(database, SystemClock()).declare(a_spec("ticks", name="ticks"))
    await database.close()


def test_jobs_that_code_declares_are_left_alone(light: CommandLine, sqlite_copy: str) -> None:
    asyncio.run(_declare(sqlite_copy))
    light.good("add", "telegram", "@harbour")
    text = light.good("jobs", "export").out
    assert "ticks" not in text
    more = '\n[[jobs]]\nname = "ticks"\nsource = "python"\ntarget = "feeds:news"\n'
    write(light, "jobs.toml", text + more)
    said = light.good("apply", "jobs.toml", "--prune", "--yes").out
    assert "ticks is left alone: code declares this job." in said
    assert listed(light, "--match", "ticks")[0]["target"] == "ticks"


def test_a_file_may_refer_to_variables_and_use_the_words_of_options(
    light: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[[jobs]]\nname = "a"\nsource = "feed"\ntarget = "https://site.example/${env:FEED_KEY}/rss"\nevery = "5m"\n'
    write(light, "jobs.toml", text)
    unset = light("apply", "jobs.toml", "--yes")
    assert (unset.code, "the variable FEED_KEY is not set" in unset.out) == (1, True)
    monkeypatch.setenv("FEED_KEY", "s3cret")
    said = light.good("apply", "jobs.toml", "--yes").out
    assert "s3cret" not in said
    [job] = listed(light)
    assert (job["target"], job["interval_seconds"]) == ("https://site.example/s3cret/rss", 300)
    assert light.good("apply", "jobs.toml").out == "1 unchanged. Nothing was changed.\n"


def test_the_mask_of_a_secret_is_not_a_secret_of_a_new_job(light: CommandLine) -> None:
    write(
        light,
        "jobs.toml",
        '[[jobs]]\nname = "a"\nsource = "python"\ntarget = "feeds:news"\nparams = { mode = "***" }\n',
    )
    answer = light("apply", "jobs.toml", "--yes")
    assert (answer.code, names(light)) == (1, [])
    assert "the mask of a secret" in answer.out


@pytest.mark.release
def test_a_process_that_is_killed_in_the_middle_of_a_file_can_start_again(light: CommandLine, sqlite_copy: str) -> None:
    """Each portion is there with its audit entries or not at all; the second time adds the rest."""
    write(light, "many.txt", "\n".join(f"@channel_{n}" for n in range(1100)))
    doomed = {**environment(), failpoints.VARIABLE: "operation.changed:kill@2"}
    with light.start("add", "telegram", "--from", "many.txt", env=doomed) as process:
        assert process.wait(120) == -signal.SIGKILL
    exported = tomllib.loads(light.good("jobs", "export").out)["jobs"]
    assert len(exported) == 500
    assert "Added 600 jobs" in light.good("add", "telegram", "--from", "many.txt").out
    audit = light.good("audit", "--json", "--limit", "500").json
    assert {entry["action"] for entry in audit} == {"job.added"}
    again = light.good("add", "telegram", "--from", "many.txt").out
    assert again == "1,100 there already. Nothing was changed.\n"
