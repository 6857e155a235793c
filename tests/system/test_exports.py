"""Exports: stored items as JSON lines, CSV, Parquet and spreadsheets."""

import asyncio
import csv
import io
import json
import os
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from sqlalchemy import delete

from command_line import CommandLine
from doomed import KILLED, Doomed, doomed_commands
from floodmark.cli.export_items import ItemOptions, request_of
from floodmark.errors import Conflict, FloodmarkError, InvalidInput, Unavailable
from floodmark.exports import reading
from floodmark.exports.export import run_export
from floodmark.exports.request import ExportResult
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.operations.local import LocalOperations
from floodmark.process.failpoints import EXPORT_POINTS
from floodmark.settings import Settings, keys
from floodmark.sinks.staging import Staging
from floodmark.store.tables import outbox
from floodmark.testing.factories import Opened, given_lease, settle
from floodmark.wiring.resources import Resources, open_resources
from system.channel_posts import DAY, HARBOUR, a_post

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("B6")

POSTS = f"telegram:{HARBOUR}"


def read_workbook(path: Path) -> Any:
    # Here, because every process that collects the tests would import NumPy and Pillow with it.
    import openpyxl

    return openpyxl.load_workbook(path)


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.fixture
async def light(sqlite: Opened) -> AsyncIterator[Resources]:
    """For what does not depend on the database."""
    async with sqlite() as resources:
        yield resources


class Silent:
    """A progress bar that nobody sees."""

    def start(self, streams: int) -> None: ...

    def add(self, rows: int, stream: str | None) -> None: ...


async def keep(resources: Resources, posts: Sequence[Item], stream: str = POSTS, **job: Any) -> None:
    lease = await given_lease(resources, **job)
    await resources.keeping.keep(lease, Batch(posts, {"n": 1}, stream=stream))
    await settle(resources, lease, Done())


async def relay(resources: Resources) -> None:
    async def publish(_: Any) -> None: ...

    while await resources.keeping.relay(publish, limit=1000):
        pass


async def export(
    resources: Resources, out: Path | str, *streams: str, stdout: Any = None, operations: Any = None, **chosen: Any
) -> ExportResult:
    request = request_of(ItemOptions(out=str(out), streams=streams, **chosen), datetime.now(UTC))
    operations = operations or LocalOperations(resources, Actor(who="ada"))
    return await run_export(operations, request, Silent(), stdout or io.BytesIO())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def all_lines(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.rglob("*.jsonl")) for row in lines(path)]


def revisions(rows: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["key"], row["revision"]) for row in rows)


def files_in(folder: Path, suffix: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(f"*.{suffix}"))


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if ".floodmark-" in path.name]


async def test_what_a_search_finds_is_exported(resources: Resources, tmp_path: Path) -> None:
    await keep(resources, [a_post(number, text) for number, text in enumerate(("fire", "ferry", "big fire"), 1)])
    await keep(resources, [Item("a", {"title": "Fire"}, DAY)], "feed:https://example.org/feed", tags=["news"])
    await LocalOperations(resources, Actor(who="ada")).update_search_index()

    result = await export(resources, tmp_path / "all.jsonl", query="fire")
    assert (result.rows, result.streams) == (3, 2)
    assert [row["key"] for row in lines(tmp_path / "all.jsonl")] == [f"{HARBOUR}:3", f"{HARBOUR}:1", "a"]
    await export(resources, tmp_path / "posts.csv", query="fire", source="telegram")
    assert len((tmp_path / "posts.csv").read_text("utf-8").splitlines()) == 3
    await export(resources, tmp_path / "news.jsonl", tag="news")
    assert [row["source"] for row in lines(tmp_path / "news.jsonl")] == ["feed"]
    assert (await export(resources, tmp_path / "none.csv", query="nothing")).rows == 0
    with pytest.raises(InvalidInput, match="2 sources with different columns"):
        await export(resources, tmp_path / "both.csv", query="fire")
    assert not (tmp_path / "both.csv").exists()
    with pytest.raises(InvalidInput, match="newest revisions"):
        await export(resources, tmp_path / "all.jsonl", query="fire", revisions=True)


@pytest.mark.thorough
async def test_every_format_holds_the_same_rows(resources: Resources, tmp_path: Path) -> None:
    media = {"type": "photo", "id": "7"}
    await keep(
        resources, [a_post(1, "Ж 東京 👍\n\"x\", 'y'", views=10, media=media), a_post(2, "=1+1", edit_date=None)]
    )

    for kind in ("jsonl", "csv", "parquet", "xlsx"):
        result = await export(resources, tmp_path / f"posts.{kind}")
        assert (result.rows, result.streams, result.notes) == (2, 1, [])

    [first, second] = lines(tmp_path / "posts.jsonl")
    assert (first["source"], first["stream"], first["key"]) == ("telegram", POSTS, f"{HARBOUR}:1")
    assert (first["id"], first["views"], first["media_type"], first["media"]) == (1, 10, "photo", media)
    assert first["occurred_at"] == first["date"] == "2026-06-01T00:01:00Z"
    assert second["views"] is None
    with (tmp_path / "posts.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["text"] for row in written] == [first["text"], "'=1+1"]
    assert (written[0]["views"], written[1]["views"], json.loads(written[0]["media"])) == ("10", "", media)
    table = pyarrow.parquet.read_table(tmp_path / "posts.parquet")
    assert [(row["id"], row["text"], row["views"]) for row in table.to_pylist()] == [
        (1, first["text"], 10),
        (2, "=1+1", None),
    ]
    assert table.to_pylist()[0]["date"] == DAY + timedelta(minutes=1)
    sheet = read_workbook(tmp_path / "posts.xlsx")["telegram"]
    [head, *cells] = list(sheet.values)
    rows = [dict(zip(head, row, strict=True)) for row in cells]
    assert [row["text"] for row in rows] == [first["text"], "=1+1"]
    assert (rows[0]["views"], rows[0]["date"], rows[0]["deleted"]) == (10, datetime(2026, 6, 1, 0, 1), False)  # noqa: DTZ001
    assert list(first) == list(written[0]) == table.column_names == list(head)
    assert not left_behind(tmp_path)


@pytest.mark.thorough
async def test_parquet_columns_have_types(light: Resources, tmp_path: Path) -> None:
    await keep(light, [a_post(1)])
    await keep(light, [Item("p", {"url": "https://x/", "links": ["a", "b"]})], stream="web:https://x/")

    await export(light, f"{tmp_path}/out/", format="parquet")

    posts = pyarrow.parquet.read_schema(tmp_path / "out/telegram/items.parquet")
    types = {name: str(posts.field(name).type) for name in ("date", "views", "pinned", "media", "text")}
    assert types == {
        "date": "timestamp[us, tz=UTC]",
        "views": "int64",
        "pinned": "bool",
        "media": "string",
        "text": "string",
    }
    pages = pyarrow.parquet.read_table(tmp_path / "out/web/items.parquet")
    assert pages.schema.field("links").type == pyarrow.list_(pyarrow.string())
    assert pages.to_pylist()[0]["links"] == ["a", "b"]


async def test_items_of_a_source_without_columns_have_their_data(light: Resources, tmp_path: Path) -> None:
    await keep(light, [Item("a", {"price": 3}), Item("b", [1, 2])], stream="shop", source="python")

    await export(light, tmp_path / "shop.jsonl", "shop")

    rows = lines(tmp_path / "shop.jsonl")
    assert [(row["key"], row["data"]) for row in rows] == [("a", {"price": 3}), ("b", [1, 2])]
    assert "text" not in rows[0]


async def test_streams_are_chosen_by_name_job_and_pattern(resources: Resources, tmp_path: Path) -> None:
    await keep(resources, [a_post(1)], name="harbour", target="@harbour", stream=POSTS)
    await keep(resources, [a_post(1, chat=7)], stream="telegram:7")
    await keep(resources, [Item("k", {})], stream="python:shop")

    async def keys_of(*streams: str) -> list[str]:
        await export(resources, tmp_path / "out.jsonl", *streams)
        return [row["stream"] for row in lines(tmp_path / "out.jsonl")]

    assert await keys_of() == ["python:shop", POSTS, "telegram:7"]
    assert await keys_of("telegram:*") == [POSTS, "telegram:7"]
    assert await keys_of("telegram:?", "python:shop") == ["python:shop", "telegram:7"]
    assert await keys_of("harbour") == [POSTS]
    assert await keys_of("test:@harb*") == [POSTS], "the stream of its job, whose items are in another one"
    assert await keys_of("nothing:*") == []
    with pytest.raises(FloodmarkError, match="there is no stream 'nothing'"):
        await keys_of("nothing")


async def test_rows_are_chosen_by_time_and_conditions(resources: Resources, tmp_path: Path) -> None:
    day = timedelta(days=1)
    await keep(resources, [a_post(n, f"News {n}", views=n * 10, at=DAY + n * day) for n in range(8)])
    await keep(resources, [a_post(5, gone=True, at=DAY + 5 * day)])
    await keep(resources, [Item("k", {"price": 9})], stream="python:shop")

    async def ids(*where: str, streams: Sequence[str] = (POSTS,), **chosen: Any) -> list[int]:
        await export(resources, tmp_path / "out.jsonl", *streams, where=where, **chosen)
        return [row.get("id", -1) for row in lines(tmp_path / "out.jsonl")]

    assert await ids() == [0, 1, 2, 3, 4, 6, 7]
    assert await ids(deleted=True) == list(range(8))
    assert await ids(since="2026-06-03", until="2026-06-05") == [2, 3, 4]
    assert await ids("views>20", "text~NEWS 6") == [6]
    assert await ids("date=2026-06-04") == [3]
    assert await ids("data.views<=10") == [0, 1]
    assert await ids("price>3", streams=("*",)) == [-1]
    with pytest.raises(InvalidInput, match="there is no column 'price'"):
        await ids("price>3")
    with pytest.raises(InvalidInput, match="views is a number"):
        await ids("views>many")


async def test_revisions_and_deletions_are_optional(resources: Resources, tmp_path: Path) -> None:
    await keep(resources, [a_post(1, "one"), a_post(2)])
    await keep(resources, [a_post(1, "two"), a_post(2, gone=True)])

    async def found(**chosen: Any) -> list[tuple[int, int, bool]]:
        await export(resources, tmp_path / "out.jsonl", **chosen)
        return [(row["id"], row["revision"], row["deleted"]) for row in lines(tmp_path / "out.jsonl")]

    assert await found() == [(1, 2, False)]
    assert await found(revisions=True) == [(1, 1, False), (1, 2, False), (2, 1, False)]
    assert await found(revisions=True, deleted=True) == [(1, 1, False), (1, 2, False), (2, 1, False), (2, 2, True)]


async def test_days_are_folders(light: Resources, tmp_path: Path) -> None:
    await keep(light, [a_post(n, at=DAY + n * timedelta(hours=9)) for n in range(6)])
    await keep(light, [Item("k", {})], stream="python:shop")

    result = await export(light, tmp_path, format="parquet", partition="day")
    again = await export(light, tmp_path, "telegram:*", format="parquet", partition="day", since="2026-06-02")

    today = f"{datetime.now(UTC):%Y-%m-%d}"
    days = [f"telegram/day=2026-06-0{n}/items.parquet" for n in (1, 2)]
    assert result.files == [f"python/day={today}/items.parquet", *days]
    assert again.files == days[1:], "the others are gone: a folder holds one export"
    assert files_in(tmp_path, "parquet") == again.files
    table = pyarrow.parquet.read_table(tmp_path / days[1])
    assert [row["id"] for row in table.to_pylist()] == [3, 4, 5]


async def test_a_file_without_rows_has_columns(light: Resources, tmp_path: Path) -> None:
    await keep(light, [a_post(1)])

    for kind in ("jsonl", "csv", "parquet", "xlsx"):
        assert (await export(light, tmp_path / f"none.{kind}", where=("views>1",))).rows == 0

    assert (tmp_path / "none.jsonl").read_bytes() == b""
    assert (tmp_path / "none.csv").read_text().startswith("source,stream,key,")
    assert "views" in pyarrow.parquet.read_schema(tmp_path / "none.parquet").names
    assert read_workbook(tmp_path / "none.xlsx").sheetnames == ["telegram"]


async def test_a_spreadsheet_says_what_it_cannot_hold(
    light: Resources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts are cut, large numbers are text, and a further sheet follows a full one."""
    from floodmark.exports.formats import xlsx

    monkeypatch.setattr(xlsx.XlsxFile.__init__, "__kwdefaults__", {"most_rows": 3})
    long = "👍" * 20_000
    await keep(light, [a_post(1, long, views=2**60), a_post(2, "https://x/"), a_post(3, "@x"), a_post(4)])

    result = await export(light, tmp_path / "posts.xlsx")

    book = read_workbook(tmp_path / "posts.xlsx")
    assert book.sheetnames == ["telegram", "telegram (2)"]
    rows = [dict(zip(next(sheet.values), row, strict=True)) for sheet in book for row in list(sheet.values)[1:]]
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["text"].endswith("👍 [cut]")
    assert rows[0]["views"] == str(2**60)
    assert all(cell.data_type != "f" and cell.hyperlink is None for sheet in book for row in sheet for cell in row)
    assert result.notes == ["1 texts longer than 32,767 characters were cut"]


async def test_the_guard_against_formulas_can_be_undone(light: Resources, tmp_path: Path) -> None:
    texts = ["=cmd", "+1", "-1", "@x", "\tx", "'quoted", "plain", "＝full width", "1=1", ""]
    await keep(light, [a_post(n, text) for n, text in enumerate(texts)])

    async def written(**chosen: Any) -> list[str]:
        await export(light, tmp_path / "out.csv", **chosen)
        with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
            return [row["text"] for row in csv.DictReader(file)]

    guarded = await written()
    assert not any(text.startswith(("=", "+", "-", "@", "\t", "＝")) for text in guarded)
    assert [text.removeprefix("'") for text in guarded] == texts
    assert await written(formula_guard=False) == texts


async def test_values_that_do_not_fit_their_column_are_counted(light: Resources, tmp_path: Path) -> None:
    await keep(light, [a_post(1, views="many"), a_post(2, views="12", author=7), a_post(3, views=2**70)])

    result = await export(light, tmp_path / "out.jsonl", data=True)

    rows = lines(tmp_path / "out.jsonl")
    assert [(row["views"], row["author"]) for row in rows] == [(None, None), (12, "7"), (None, None)]
    assert rows[0]["data"]["views"] == "many"
    assert result.notes == [
        "2 values of telegram do not fit the type of the column views and are empty: "
        "the option --data adds the whole items"
    ]


# Continue


async def test_a_continued_export_writes_what_is_new(resources: Resources, tmp_path: Path) -> None:
    await keep(resources, [a_post(1), a_post(2)])
    await relay(resources)
    first = await export(resources, tmp_path, format="jsonl", continues=True)
    nothing = await export(resources, tmp_path, format="jsonl", continues=True)
    await keep(resources, [a_post(2, "edited"), a_post(3)])
    await keep(resources, [a_post(3, "edited at once"), a_post(1, gone=True)])
    await relay(resources)
    second = await export(resources, tmp_path, format="jsonl", continues=True)

    assert (first.rows, first.is_complete, first.position) == (2, True, 2)
    assert (nothing.rows, nothing.files, nothing.position) == (0, [], 2)
    assert (second.rows, second.is_complete, second.position) == (2, False, 6)
    [early, late] = [lines(tmp_path / name) for name in (*first.files, *second.files)]
    assert [(row["id"], row["revision"]) for row in early] == [(1, 1), (2, 1)]
    assert [(row["id"], row["revision"]) for row in late] == [(2, 2), (3, 2)], "each in its newest revision"


async def test_a_continued_export_has_all_revisions_and_deletions(resources: Resources, tmp_path: Path) -> None:
    chosen = {"format": "jsonl", "continues": True, "revisions": True, "deleted": True}
    await keep(resources, [a_post(1), a_post(2)])
    await keep(resources, [a_post(1, "two")])
    await relay(resources)
    await export(resources, tmp_path, **chosen)
    await keep(resources, [a_post(1, "three"), a_post(2, gone=True)])
    await relay(resources)

    await export(resources, tmp_path, **chosen)

    assert revisions(all_lines(tmp_path)) == [
        (f"{HARBOUR}:{n}", r) for n, r in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2))
    ]


class Meanwhile(LocalOperations):
    """Operations of an installation in which something happens after each page of items that is read."""

    happens: Callable[[], Any]

    async def call(self, operation: Any, arguments: dict[str, Any]) -> Any:
        result = await super().call(operation, arguments)
        if operation.name == "export_items":
            await self.happens()
        return result


@pytest.mark.parametrize("with_revisions", [False, True])
@pytest.mark.thorough
async def test_what_changes_during_the_first_run_is_written_once(
    resources: Resources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_revisions: bool
) -> None:
    """Items are added and changed before and behind the place of reading, numbered or not yet numbered."""
    monkeypatch.setattr(reading, "MOST_ROWS", 2)
    monkeypatch.setattr(reading, "_PATIENCE_STEPS", 1)
    monkeypatch.setattr(reading, "_STEP_SECONDS", 0.0)
    await keep(resources, [a_post(n) for n in range(100, 108)])
    await relay(resources)
    await keep(resources, [a_post(108)], name="not numbered")
    operations, step = Meanwhile(resources, Actor(who="ada")), 0

    async def happen() -> None:
        nonlocal step
        step += 1
        if step > 8:
            return
        await keep(resources, [a_post(100 + step, f"edit {step}"), a_post(107, f"edit {step}"), a_post(200 + step)])
        await keep(resources, [a_post(50 + step)], stream=f"telegram:{HARBOUR + step}")
        if step % 2:
            await relay(resources)

    operations.happens = happen
    chosen = {"format": "jsonl", "continues": True, "revisions": with_revisions}
    await export(resources, tmp_path, operations=operations, **chosen)
    await relay(resources)
    await export(resources, tmp_path, **chosen)

    rows = all_lines(tmp_path)
    written = Counter((row["stream"], row["key"], row["revision"]) for row in rows)
    assert set(written.values()) == {1}, "none twice"
    stored = await export(resources, tmp_path / "all.jsonl", revisions=with_revisions)
    newest = {(row["stream"], row["key"], row["revision"]) for row in lines(tmp_path / "all.jsonl")}
    assert stored.rows == len(newest)
    assert newest <= set(written), "none missing"
    if with_revisions:
        assert newest == set(written)


async def test_after_pruned_events_everything_is_written_again(resources: Resources, tmp_path: Path) -> None:
    await keep(resources, [a_post(1)])
    await relay(resources)
    await export(resources, tmp_path, format="jsonl", continues=True)
    await keep(resources, [a_post(2), a_post(3)])
    await relay(resources)
    async with resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.position < 3))

    result = await export(resources, tmp_path, format="jsonl", continues=True)

    assert result.is_complete
    assert [row["id"] for row in lines(tmp_path / result.files[0])] == [1, 2, 3]
    assert "events after position 1 were deleted" in result.notes[0]
    assert (await export(resources, tmp_path, format="jsonl", continues=True)).rows == 0


async def test_a_continued_export_keeps_its_options(light: Resources, tmp_path: Path) -> None:
    await keep(light, [a_post(1)])
    out = tmp_path / "out"
    await export(light, out, format="jsonl", continues=True, name="nightly")

    with pytest.raises(Conflict, match="was started with other options: deleted False"):
        await export(light, out, format="jsonl", continues=True, name="nightly", deleted=True)
    with pytest.raises(Conflict, match="export:nightly is written to"):
        await export(light, tmp_path / "else", format="jsonl", continues=True, name="nightly")
    with pytest.raises(Conflict, match="is the folder of an export that is continued"):
        await export(light, out, format="jsonl")
    await export(light, f"{tmp_path}/whole/", format="jsonl")
    with pytest.raises(Conflict, match="already has an export that is not continued"):
        await export(light, tmp_path / "whole", format="jsonl", continues=True)


async def test_two_exports_cannot_continue_in_one_folder_at_once(light: Resources, tmp_path: Path) -> None:
    from floodmark.sinks.staging import lock_folder_for_export

    with lock_folder_for_export(tmp_path), pytest.raises(Unavailable, match="another export is writing"):
        await export(light, tmp_path, format="jsonl", continues=True)


async def test_the_standard_output_can_be_continued(light: Resources) -> None:
    await keep(light, [a_post(1)])
    chosen = {"format": "csv", "continues": True, "name": "pipe"}
    texts = []
    for number in (2, None):
        stdout = io.BytesIO()
        await export(light, "-", stdout=stdout, **chosen)
        texts.append(stdout.getvalue().decode().splitlines())
        if number:
            await keep(light, [a_post(number)])

    assert [[line.split(",")[2] for line in text[1:]] for text in texts] == [[f"{HARBOUR}:1"], [f"{HARBOUR}:2"]]


# Killed


@pytest.fixture(scope="module")
def doomed() -> Iterator[Doomed]:
    with doomed_commands() as commands:
        yield commands


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    return CommandLine.installed(tmp_path, migrated_sqlite)


def fill(folder: Path, numbers: Sequence[int], **settings: Any) -> None:
    async def work() -> None:
        url = f"sqlite:///{folder}/.floodmark/floodmark.db"
        async with open_resources(Settings(database_url=url, **settings)) as resources:
            await keep(resources, [a_post(n, at=DAY + n * timedelta(hours=9)) for n in numbers])

    (folder / ".floodmark").mkdir(exist_ok=True)
    asyncio.run(work())


@pytest.mark.spec("G2")
@pytest.mark.parametrize("point", EXPORT_POINTS)
@pytest.mark.thorough
def test_kill_loses_and_doubles_no_row(point: str, cli: CommandLine, doomed: Doomed) -> None:
    """At each step between writing files and storing the position; in the first run, and in a later one."""
    command = ("export", "items", "--format", "jsonl", "--partition", "day", "--continue", "--out", "out")
    out = cli.folder / "out"
    rounds = (0, 6) if point == "export.recorded" else (0,)
    for number in rounds:
        fill(cli.folder, range(number, number + 4))
        assert doomed.run(cli.folder, command, failpoint=f"{point}:kill") == KILLED
        visible = revisions(all_lines_of(out))
        assert len(visible) == len(set(visible))
        fill(cli.folder, range(number + 4, number + 6))
        cli.good(*command)

    assert revisions(all_lines_of(out)) == sorted((f"{HARBOUR}:{n}", 1) for n in range(6 * len(rounds)))
    assert not left_behind(out)


def all_lines_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of complete files, as a reader finds them."""
    return [row for path in sorted(folder.glob("*/day=*/*.jsonl")) for row in lines(path)]


@pytest.mark.release
@pytest.mark.spec("G2")
@pytest.mark.timeout(1200)
def test_kills_at_any_moment_lose_and_double_no_row(cli: CommandLine) -> None:
    """Of a real process, while others collect."""
    command = ("export", "items", "--format", "csv", "--partition", "day", "--continue", "--out", "out")
    chance = random.Random(7)
    for number in range(15):
        fill(cli.folder, range(number * 200, number * 200 + 200))
        with cli.start(*command) as process:
            time.sleep(chance.uniform(0.3, 1.5))
            process.kill()
            process.communicate()
    cli.good(*command)

    keys = []
    for path in (cli.folder / "out").glob("*/day=*/*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            keys += [row["key"] for row in csv.DictReader(file)]
    assert sorted(keys) == sorted(f"{HARBOUR}:{n}" for n in range(3000))
    assert not left_behind(cli.folder / "out")


@pytest.mark.parametrize("kind", ["jsonl", "xlsx"])
@pytest.mark.thorough
def test_a_killed_export_leaves_the_old_file(kind: str, cli: CommandLine, doomed: Doomed) -> None:
    """Only temporary files are left, and the next run removes them; those of others stay."""
    command = ("export", "items", "--out", f"posts.{kind}")
    fill(cli.folder, range(3))
    cli.good(*command)
    before = (cli.folder / f"posts.{kind}").read_bytes()
    (cli.folder / ".mine.floodmark-tmp").mkdir()
    fill(cli.folder, range(3, 6))

    assert doomed.run(cli.folder, command, failpoint="export.staged:kill") == KILLED
    assert (cli.folder / f"posts.{kind}").read_bytes() == before
    assert len(left_behind(cli.folder)) == 2
    assert cli.good(*command, "--json").json["rows"] == 6
    assert left_behind(cli.folder) == [".mine.floodmark-tmp"]


async def test_the_files_of_a_living_export_stay(light: Resources, tmp_path: Path) -> None:
    """Another one writes the same file at the same time: the last one counts."""
    other = Staging.create(tmp_path, "posts.jsonl")
    await keep(light, [a_post(1)])

    await export(light, tmp_path / "posts.jsonl")

    assert left_behind(tmp_path) == [other.name]
    other.remove()


async def test_an_error_leaves_nothing(light: Resources, tmp_path: Path) -> None:
    await keep(light, [a_post(1)])
    await keep(light, [Item("k", {})], stream="python:shop")

    with pytest.raises(InvalidInput, match="2 sources with different columns: python, telegram"):
        await export(light, tmp_path / "all.csv")
    assert {name.partition("-")[0] for name in os.listdir(tmp_path)} == {"floodmark.db"}


# Memory


@pytest.mark.thorough
async def test_memory_does_not_grow_with_the_number_of_rows(light: Resources, tmp_path: Path) -> None:
    for start in range(0, 6000, 2000):
        await keep(light, [a_post(n, "x" * 2000) for n in range(start, start + 2000)])
    await export(light, tmp_path / "warm.jsonl", until="2026-06-01")
    tracemalloc.start()
    try:
        await export(light, tmp_path / "posts.jsonl")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "posts.jsonl").stat().st_size > 15_000_000
    assert peak < 13_000_000, f"{peak:,} bytes for pages of a thousand rows"


# The command line


def test_the_command_says_what_it_wrote(cli: CommandLine) -> None:
    fill(cli.folder, range(3))

    assert "Done: 3 rows: posts.csv" in cli.good("export", "items", "--out", "posts.csv").out
    answer = cli.good("export", "items", POSTS, "--out", "-", "--format", "jsonl")
    assert [json.loads(line)["id"] for line in answer.out.splitlines()] == [0, 1, 2]
    assert (
        "Done: 3 rows in 1 file: out"
        in cli.good("export", "items", "--format", "csv", "--continue", "--out", "out").out
    )
    assert "0 new rows in 0 files" in cli.good("export", "items", "--format", "csv", "--continue", "--out", "out").out
    listed = cli.good("readers").out
    assert f"export:{cli.folder}/out" in listed
    assert "No stored item matches" in cli.good("export", "items", "--until", "2020-01-01", "--out", "old.jsonl").out
    cli.good("readers", "rm", f"export:{cli.folder}/out", "--yes")
    assert "No positions are stored" in cli.good("readers").out


@pytest.mark.thorough
def test_wrong_options_are_refused(cli: CommandLine) -> None:
    fill(cli.folder, range(1))
    for words, says in (
        (("--out", "posts"), "the format of 'posts' is not known"),
        (("--out", "posts.txt", "--format", "xml"), "'xml' is not a format"),
        (("--out", "-", "--format", "xlsx"), "xlsx cannot be written to the standard output"),
        (("--out", "a.csv", "--continue"), "--continue adds a file each time, and a.csv is the name of a file"),
        (("--out", "a/", "--format", "csv", "--partition", "hour"), "--partition 'hour' is not known"),
        (("--out", "-", "--format", "csv", "--continue"), "--continue to the standard output needs a name"),
        (("--out", "a.csv", "--name", "x"), "--name is the name of a position for --continue"),
        (("--out", "a.csv", "--since", "2026-02-01", "--until", "2026-01-01"), "--until is before --since"),
        (("--out", "a.csv", "--where", "views"), "'views' is not a condition"),
        (("--out", "a.csv", "--where", "colour=red"), "there is no column 'colour'"),
        (("--out", "a.csv", "--since", "someday"), "'someday' is neither a duration nor a date"),
        (("nothing", "--out", "a.csv"), "there is no stream 'nothing'"),
    ):
        cli.refused("export", "items", *words, says=says)
    assert not list(cli.folder.glob("a*"))


@pytest.mark.thorough
def test_parquet_says_how_to_install_it(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    answer = cli.refused("export", "items", "--out", "x.parquet", says="Parquet needs pyarrow", code=1)
    assert "pip install 'floodmark[parquet]'" in answer.err


@pytest.mark.release
def test_a_closed_pipe_ends_the_export(cli: CommandLine) -> None:
    fill(cli.folder, range(3))
    with cli.start("export", "items", "--out", "-", "--format", "jsonl") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        process.stderr.close()
        assert process.wait(120) == 1
