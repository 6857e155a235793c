"""Columns of exports: declared once for each source, documented, and read in their types."""

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cookies.kept import a_scan
from floodmark.errors import InvalidInput
from floodmark.exports import tables
from floodmark.exports.fields import FieldReader
from floodmark.exports.formats.csv import CsvFile, guard_formula
from floodmark.exports.formats.port import FormatOptions
from floodmark.exports.tables import SHARED, ExportTable, known_sources, load_table
from floodmark.process.entry_points import find_extensions
from floodmark.schemas import schema
from floodmark.sources.columns import ColumnKind, ExportColumn
from floodmark.sources.cookies.report import make_report
from floodmark.sources.port import SOURCES
from floodmark.sources.telegram.columns import COLUMNS as POST_COLUMNS

pytestmark = pytest.mark.spec("B6")

KINDS: tuple[ColumnKind, ...] = get_args(ColumnKind)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
# What Parquet takes for a column of a type.
FITS: dict[ColumnKind, Any] = {
    "text": str,
    "int": int,
    "float": float,
    "bool": bool,
    "time": datetime,
    "texts": list,
    "json": object,
}


def test_built_in_sources_have_columns_with_unique_names() -> None:
    assert known_sources() == ["cookies", "feed", "telegram", "web"]
    assert set(known_sources()) < set(find_extensions(SOURCES))
    for source in known_sources():
        table = load_table(source)
        assert table.names[: len(SHARED)] == [column.name for column in SHARED]
        assert len(set(table.names)) == len(table.names)
        assert all(column.kind in KINDS and column.help.endswith(".") for column in table.columns)
        assert load_table(source, with_data=True).names == [*table.names, "data"]
    assert load_table("unknown").names == [*(column.name for column in SHARED), "data"]


def test_every_documented_field_of_a_post_is_a_column() -> None:
    fields = set(schema("artifact-1.0.0")["$defs"]["post"]["properties"])
    assert fields <= {column.name for column in POST_COLUMNS}


def test_every_field_of_a_cookie_report_is_a_column() -> None:
    report, _ = make_report(a_scan(), began=datetime.now(UTC), seconds=1.0)
    assert set(report) <= set(load_table("cookies").names)


def test_a_source_with_a_column_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "find_extensions", lambda _: {"mine": None})
    for columns in (
        (ExportColumn("key", "text", "Its key."),),
        (ExportColumn("a", "text", "One."), ExportColumn("b", "text", "Two.", "a")),
    ):
        monkeypatch.setattr(tables, "load_extension", lambda *_, found=columns: found)
        with pytest.raises(InvalidInput, match="the columns of mine have a name or a path twice"):
            load_table("mine")


def test_values_get_the_types_of_their_columns() -> None:
    columns = [ExportColumn(kind, kind, "A value.") for kind in KINDS]
    reader = FieldReader([*columns, ExportColumn("inner", "int", "Within another.", "json.n")])
    exact = {
        "text": "x",
        "int": 3,
        "float": 1.5,
        "bool": True,
        "time": "2026-06-01T14:00:00+02:00",
        "texts": ["a"],
        "json": {"n": 7},
    }
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert reader.read(json.dumps(exact)) == ["x", 3, 1.5, True, noon, ["a"], {"n": 7}, 7]
    near = {"text": 5, "int": "12", "float": "0.5", "time": "2026-06-01 12:00:00", "texts": "one", "json": [{"n": 1}]}
    assert reader.read(json.dumps(near)) == ["5", 12, 0.5, None, noon, ["one"], [{"n": 1}], None]
    assert reader.unfit == {"inner": 1}
    far = {"int": 2**63, "float": "x", "bool": 1, "time": 5, "texts": 5}
    assert reader.read(json.dumps(far)) == [None] * 8
    assert reader.unfit == {"inner": 1, "int": 1, "float": 1, "bool": 1, "time": 1, "texts": 1}
    for nothing in ("{}", "null", "[]", "not JSON"):
        assert reader.read(nothing) == [None] * 8


@given(data=st.dictionaries(st.sampled_from([*KINDS, "other"]), JSON, max_size=8))
def test_any_item_has_values_that_fit_their_columns(data: dict[str, Any]) -> None:
    columns = [ExportColumn(kind, kind, "A value.") for kind in KINDS]
    reader = FieldReader([*columns, ExportColumn("nested", "text", "Within another.", "json.x")])
    values = reader.read(msgspec.json.encode(data).decode())
    assert len(values) == len(KINDS) + 1
    for kind, value in zip(KINDS, values, strict=False):
        assert value is None or isinstance(value, FITS[kind])
        assert kind != "time" or value is None or value.utcoffset().total_seconds() == 0


@given(text=st.text())
def test_the_guard_against_formulas_can_be_undone_for_any_text(text: str) -> None:
    guarded = guard_formula(text)
    assert guarded.removeprefix("'") == text or guarded == text
    assert not guarded.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert (guarded[1:] if guarded.startswith("'") else guarded) == text


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=5)
)
def test_any_text_survives_csv(texts: list[str]) -> None:
    table = ExportTable("mine", [ExportColumn("text", "text", "A text."), ExportColumn("json", "json", "A value.")])
    shared = ["mine", "s", "k", 1, False, None, datetime(2026, 6, 1, tzinfo=UTC), None, None]
    for guards in (True, False):
        stream = io.BytesIO()
        CsvFile(stream, FormatOptions(None, guards)).write(table, [[*shared, text, [text]] for text in texts])
        rows = list(csv.DictReader(io.StringIO(stream.getvalue().decode(), newline="")))
        found = [row["text"].removeprefix("'") if guards and row["text"] else row["text"] for row in rows]
        assert found == texts
        assert [json.loads(row["json"]) for row in rows] == [[text] for text in texts]
        assert rows[0]["collected_at"] == "2026-06-01T00:00:00Z"
