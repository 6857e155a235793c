"""Lists of jobs in files: every format, hostile files, and jobs that are exported and read again."""

import tomllib
from datetime import timedelta
from operator import attrgetter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.importers.job_lists.columns import RowColumns
from floodmark.importers.job_lists.exporting import defaults_of, export_jobs, write_json, write_toml
from floodmark.importers.job_lists.reading import read_list
from floodmark.importers.job_lists.references import References
from floodmark.importers.job_lists.rows import JobList
from floodmark.importers.job_lists.toml_text import toml_table
from floodmark.model.job import Frequency, Job, Overlap, Policy, Priority, ScheduleType, When
from floodmark.model.job_fields import SETTABLE
from floodmark.operations.handlers.job_columns import spec_of
from floodmark.repositories.dependencies import find_cycle
from floodmark.rules.cycles import find_cyclic
from floodmark.rules.streams import stream_name
from floodmark.settings import Settings
from floodmark.sources.telegram.form import FORM

pytestmark = pytest.mark.spec("B9")

DEFAULTS = defaults_of(Policy(), timedelta(hours=1), 3)
OPML = """<?xml version="1.0"?><opml version="2.0"><head><title>Feeds</title></head><body>
<outline text="Tech"><outline title="Sub  folder" text="x">
  <outline text="One" type="rss" xmlUrl=" https://one.example/rss "/></outline>
  <outline text="Two" xmlUrl="https://two.example/feed"/></outline>
<outline text="Site" type="link" url="https://site.example/"/>
<outline text="Three" XMLURL="https://three.example/feed"/>
</body></opml>"""


def found(listed: JobList) -> list[tuple[str, dict[str, Any]]]:
    return [(row.where, dict(row.values)) for row in listed.rows]


def refused(content: str | bytes, says: str, **options: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        read_list(content if isinstance(content, bytes) else content.encode(), **options)
    assert says in str(error.value)
    assert error.value.hint


def test_a_line_is_a_target_and_comments_are_left_out() -> None:
    listed = read_list(b"# channels\n@a\r\n\n  https://site.example/#top  # the top\n@c#d\n")
    assert found(listed) == [
        ("line 2", {"target": "@a"}),
        ("line 4", {"target": "https://site.example/#top"}),
        ("line 5", {"target": "@c#d"}),
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_has_columns_and_empty_cells_are_left_out(separator: str) -> None:
    lines = ["Target,Max delay,params.depth", "@a,,2", '"b""c"', ",,", "@d,1h,3"]
    listed = read_list("\n".join(lines).replace(",", separator).encode())
    assert listed.header == ["target", "max_delay", "params.depth"]
    assert found(listed) == [
        ("line 2", {"target": "@a", "params.depth": "2"}),
        ("line 3", {"target": 'b"c'}),
        ("line 5", {"target": "@d", "max_delay": "1h", "params.depth": "3"}),
    ]


def test_a_line_of_csv_with_too_many_values_fails_alone() -> None:
    listed = read_list(b"target,name\n@a,b,c\n@d\n", form="csv")
    assert str(listed.rows[0].error) == "it has 3 values for 2 columns"
    assert listed.rows[1].values == {"target": "@d"}


def test_folders_of_opml_become_tags() -> None:
    listed = read_list(OPML.encode())
    assert found(listed) == [
        ("line 3", {"target": "https://one.example/rss", "tags": ["Tech", "Sub folder"]}),
        ("line 4", {"target": "https://two.example/feed", "tags": ["Tech"]}),
        ("line 6", {"target": "https://three.example/feed"}),
    ]
    assert listed.notes == ["Outlines that are not feeds were left out: 1"]


def test_json_and_toml_have_texts_or_objects() -> None:
    listed = read_list(b'["@a", {"target": "@b", "every": "5m"}, 7]')
    assert found(listed)[:2] == [("entry 1", {"target": "@a"}), ("entry 2", {"target": "@b", "every": "5m"})]
    assert "neither a text nor an object" in str(listed.rows[2].error)
    document = '[defaults]\nevery = "5m"\n[[jobs]]\nname = "a"\n[[jobs]]\nname = 2026-01-01\n'
    listed = read_list(document.encode())
    assert (listed.defaults, found(listed)[0]) == ({"every": "5m"}, ("entry 1", {"name": "a"}))
    assert str(listed.rows[1].error) == "name is a date"


@pytest.mark.parametrize(
    ("content", "name", "form"),
    [
        ("@a\n@b", "list", "lines"),
        ("target,x\n@a,b", "list", "csv"),
        ("a,b\n@a,b", "jobs.CSV", "csv"),
        ("<opml/>", "-", "opml"),
        ('["@a"]', "-", "json"),
        ('{"jobs": []}', "-", "json"),
        ("# jobs\nversion = 1\n[[jobs]]\n", "-", "toml"),
        ("[[jobs]]\n", "-", "toml"),
    ],
)
def test_the_format_follows_from_the_name_or_the_content(content: str, name: str, form: str) -> None:
    assert found(read_list(content.encode(), name=name)) == found(read_list(content.encode(), form=form))


def test_files_have_a_byte_order_mark_or_none() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert found(read_list("@ä\n@b".encode(encoding)))[0][1] == {"target": "@ä"}


def test_hostile_files_are_refused_with_the_line() -> None:
    bomb = '<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<opml>&b;</opml>'
    refused(bomb, "line 2: the file declares the entity 'a'")
    outside = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><opml>&a;</opml>'
    refused(outside, "declares the entity")
    refused("<opml>\n<body>\n<outline></body></opml>", "line 3: it is not OPML: mismatched tag")
    refused("<opml>" + "<outline>" * 101, "outlines are nested deeper than 100")
    refused(b"@a\n@b\n\xff\xfe\xfa", "line 3: it is not UTF-8")
    refused("\n" * 50_000_001, "more than 50,000,000 bytes")
    refused("@a\n" * 100_001, "line 100,001: a file may have 100,000 jobs at most")
    refused('target\n"@a', "line 2: it is not CSV")
    refused("target,target\n@a,@b", "two columns have the name 'target'")
    refused("target,\n@a,@b", "a column has no name", form="csv")
    refused("target\n" + "x" * 200_000, "field larger than field limit", form="csv")
    refused("target" + ",x" * 5000, "there are 5,001 columns", form="csv")
    refused("[" * 10_000, "it is not JSON", form="json")
    refused("[" * 40 + "]" * 40, "nested too deeply", form="json")
    refused("a = " + "[" * 10_000, "nested too deeply", form="toml")
    refused("a = ", "it is not TOML", form="toml")
    refused('{"jobs": 5}', "it has no list of jobs")
    refused('{"job": []}', "it has an unknown part 'job'")
    refused('{"version": 2, "jobs": []}', "it has version 2, and 1 is known here")
    refused("{}", "'yaml' is not a format", form="yaml")


def test_a_huge_line_fails_alone() -> None:
    listed = read_list(b"@a\n" + b"x" * 30_000 + b"\n@b\n")
    assert [str(row.error) for row in listed.rows] == ["None", "it has 30,000 characters", "None"]


def test_a_row_is_read_as_the_options_of_add_are() -> None:
    reader = RowColumns(FORM.options)
    texts = {
        "target": "@a", "tag": "news; daily", "every": "5m", "tz": "Europe/Berlin", "retries": "2", "timeout": "10m",
        "priority": "high", "history": "500", "params.revisit": "48h", "params": '{"x": 1}', "disabled": "yes",
        "weight": "1.5", "max_delay": "1h", "tenant": "acme", "coalesce": "no",
    }  # fmt: skip
    assert reader.read(texts) == {
        "target": "@a", "tags": ["news", "daily"], "schedule_type": ScheduleType.INTERVAL, "interval_seconds": 300,
        "timezone": "Europe/Berlin", "retry_max": 2, "timeout_seconds": 600, "priority": 1, "schedule_enabled": False,
        "params": {"x": 1, "history": "500", "revisit": "48h"}, "weight": 1.5, "max_delay_seconds": 3600,
        "tenant_id": "acme", "coalesce": False,
    }  # fmt: skip
    typed = {"tags": ["a"], "interval_seconds": 60, "params": {"history": 5}, "once": False, "schedule_enabled": True}
    assert reader.read(typed) == {name: value for name, value in typed.items() if name != "once"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"tagret": "@a"}, "there is no column 'tagret'"),
        ({"retries": "many"}, "retries is 'many'"),
        ({"retry_max": "many"}, "retry_max is 'many'"),
        ({"coalesce": "perhaps"}, "coalesce is 'perhaps'"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a length of time"),
        ({"params": "[1]"}, "params is '[1]'"),
        ({"priority": "9"}, "priority"),
        ({"every": "5m", "cron": "* * * * *"}, "every and cron contradict each other"),
        ({"every": "5m", "interval_seconds": "5"}, "every and interval_seconds contradict each other"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(values: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says.replace("[", r"\[")) as error:
        RowColumns().read(values)
    assert error.value.hint


def test_references_are_replaced_and_hidden() -> None:
    references = References({"TOKEN": "s3cret"})
    columns = references.resolve(
        {"target": "https://x/${env:TOKEN}", "params": {"a": ["${env:TOKEN}"]}, "name": "${x}"}
    )
    assert columns == {"target": "https://x/s3cret", "params": {"a": ["s3cret"]}, "name": "${x}"}
    assert references.hide("it is s3cret") == "it is ${env:TOKEN}"
    with pytest.raises(InvalidInput, match="the variable OTHER is not set"):
        references.resolve({"params": {"a": "${env:OTHER}"}})


def test_an_export_has_no_secrets_no_defaults_and_a_stable_order() -> None:
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=300)
    first = Job(
        job_id="1",
        name="b",
        source="web",
        target="https://ada:pw@site.example/",
        stream="web:https://ada:pw@site.example/",
        params={"api_token": "12345", "depth": None},
        when=when,
    )
    second = msgspec.structs.replace(first, name="a", target="https://site.example/", stream="shared", params={})
    text = write_toml(export_jobs([first, second], DEFAULTS, {"tag": "news"}))
    assert "12345" not in text
    assert ":pw@" not in text
    jobs = tomllib.loads(text)["jobs"]
    assert jobs == [
        {"name": "a", "source": "web", "target": "https://site.example/", "stream": "shared", "interval_seconds": 300},
        {
            "name": "b",
            "source": "web",
            "target": "https://ada:***@site.example/",
            "params": '{"api_token": "***", "depth": null}',
            "interval_seconds": 300,
        },
    ]
    assert write_toml(export_jobs([second, first], DEFAULTS, {"tag": "news"})) == text
    assert read_list(text.encode()).selection == {"tag": "news"}


_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_PLAIN = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_TEXT, _PLAIN, max_size=4))
def test_what_is_written_as_toml_is_read_as_the_same(values: dict[str, Any]) -> None:
    assert tomllib.loads(toml_table(values)) == values


_WHENS = st.one_of(
    st.builds(When, schedule_type=st.just(ScheduleType.INTERVAL), interval_seconds=st.sampled_from([1.5, 60.0])),
    st.builds(When, schedule_type=st.just(ScheduleType.CRON), cron_expression=st.just("0 6 * * *")),
    st.builds(
        When,
        schedule_type=st.just(ScheduleType.CALENDAR),
        frequency=st.sampled_from(Frequency),
        time_config=st.just({"minute": 5}),
        timezone=st.sampled_from(["UTC", "Europe/Berlin"]),
    ),
    st.builds(When, schedule_type=st.sampled_from([ScheduleType.EVENT, ScheduleType.ADAPTIVE, ScheduleType.IMMEDIATE])),
)
_JOBS = st.builds(
    Job,
    job_id=st.just("1"),
    name=st.just("news"),
    source=st.just("python"),
    target=st.just("feeds:news"),
    stream=st.sampled_from(["python:feeds:news", "other"]),
    params=st.dictionaries(st.sampled_from(["depth", "limit"]), st.none() | _PLAIN, max_size=2),
    tags=st.lists(st.sampled_from(["a", "b, c"]), unique=True).map(tuple),
    when=_WHENS,
    schedule_enabled=st.booleans(),
    priority=st.sampled_from(Priority),
    timeout=st.sampled_from([timedelta(hours=1), timedelta(seconds=1.5)]),
    budget=st.none() | st.just("news"),
    max_delay=st.none() | st.just(timedelta(minutes=5)),
    weight=st.sampled_from([1.0, 0.5]),
    retry_max=st.integers(0, 5),
    policy=st.builds(Policy, overlap=st.sampled_from(Overlap), coalesce=st.booleans()),
    depends_on=st.sampled_from([(), ("first",)]),
    tenant_id=st.none() | st.just("acme"),
)


@given(_JOBS, st.sampled_from([write_toml, write_json]))
def test_a_job_that_is_exported_is_read_as_the_same_job(job: Job, write: Any) -> None:
    """Columns that the file leaves out have their default, so nothing differs after it was applied."""
    listed = read_list(write(export_jobs([job], DEFAULTS)).encode())
    columns = RowColumns().read({**listed.defaults, **listed.rows[0].values})
    spec = spec_of(columns, Settings())
    stream = stream_name(spec.stream, spec.source, spec.target)
    read = {field.name: attrgetter(field.path)(spec) for field in SETTABLE} | {"stream": stream}
    assert read == {field.name: attrgetter(field.path)(job) for field in SETTABLE}


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3), max_size=6))
def test_nodes_on_a_cycle_are_found(edges: dict[str, list[str]]) -> None:
    cyclic = find_cyclic(edges)
    on_cycle = {node for node in "abcdef" if find_cycle(edges, node, edges.get(node, ()))}
    assert on_cycle <= cyclic
    assert bool(on_cycle) == bool(cyclic)
    assert not find_cyclic(
        {node: [end for end in ends if end not in cyclic] for node, ends in edges.items() if node not in cyclic}
    )
