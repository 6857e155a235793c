"""Names of sinks, patterns of streams, and the settings of each sink."""

import re
from fnmatch import translate
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.model.sinks import parse_sinks
from floodmark.rules.sinks import rest_after, sink_state
from floodmark.rules.stream_patterns import LONGEST_PATTERNS, StreamPatterns
from floodmark.settings import Settings, load
from floodmark.sinks.kafka import KafkaSink
from floodmark.sinks.loading import open_one, open_sinks
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.testing.services import open_services
from floodmark.wiring.services import unconnected_services

pytestmark = pytest.mark.spec("B7")

words = st.text("ab:*-", max_size=8)


def test_sinks_have_a_name_and_a_kind() -> None:
    assert parse_sinks("archive=webhook, lake = kafka ,webhook") == {
        "archive": "webhook",
        "lake": "kafka",
        "webhook": "webhook",
    }
    assert parse_sinks(" , ") == {}
    for wrong in ("Archive=webhook", "a_b=webhook", "=webhook", "a=", "a=webhook,a=kafka", "x" * 41, "a b=c"):
        with pytest.raises(ValueError, match=r"name|kind|twice"):
            parse_sinks(wrong)


@given(st.lists(words.filter(lambda word: word and "," not in word), max_size=3), words)
def test_patterns_match_as_a_shell_would(patterns: list[str], stream: str) -> None:
    found = StreamPatterns.parse(", ".join(patterns)).match(stream)
    expected = any(re.fullmatch(translate(pattern), stream) for pattern in patterns)
    assert found is bool(expected)


def test_patterns_are_bounded_and_fast() -> None:
    with pytest.raises(ValueError, match="longer than"):
        StreamPatterns.parse("x" * (LONGEST_PATTERNS + 1))
    # A regular expression with backtracking would not end within this year.
    assert not StreamPatterns.parse("*a" * 900).match("a" * 800 + "b")


def test_the_state_of_a_sink_is_the_first_that_applies() -> None:
    usual = {"is_configured": True, "is_paused": False, "is_failing": False, "is_filling": False}
    assert sink_state(**usual) == "ok"
    assert sink_state(**{**usual, "is_filling": True}) == "filling"
    assert sink_state(**{**usual, "is_filling": True, "is_failing": True}) == "failing"
    assert sink_state(**{**usual, "is_paused": True, "is_failing": True}) == "paused"
    assert sink_state(**{**usual, "is_paused": True, "is_configured": False}) == "removed"
    assert [rest_after(failures).total_seconds() for failures in (1, 2, 3, 9, 99)] == [1, 2, 4, 256, 300]


def test_a_sink_has_settings_of_its_own(tmp_path: Path) -> None:
    environ = {
        "SINKS": "archive=webhook, archive-eu=webhook",
        "SINK_ARCHIVE_URL": "https://a.example/",
        "SINK_ARCHIVE_EU_URL": "https://b.example/",
        "SINK_ARCHIVE_EU_MAX_BYTES": "5000",
        "SINK_OTHER_URL": "https://c.example/",
    }
    settings = load({}, folder=tmp_path, environ=environ)
    assert settings.sink_section("archive") == {"url": "https://a.example/"}
    assert settings.sink_section("archive-eu") == {"url": "https://b.example/", "max_bytes": "5000"}
    (tmp_path / ".env").write_text("SINK_ARCHIVE_URL=https://d.example/\n")
    assert load({}, folder=tmp_path, environ=environ).sink_section("archive") == {"url": "https://d.example/"}


def test_sinks_are_tables_of_floodmark_toml(tmp_path: Path) -> None:
    (tmp_path / "floodmark.toml").write_text(
        '[sinks.archive]\nkind = "webhook"\nurl = "https://a.example/"\nbatch = 5\n[sinks.lake]\nkind = "kafka"\n'
    )
    settings = load({}, folder=tmp_path, environ={})
    assert settings.sinks == "archive=webhook, lake=kafka"
    assert settings.origin("SINKS") == "floodmark.toml"
    assert settings.sink_section("archive") == {"url": "https://a.example/", "batch": "5"}
    (tmp_path / "floodmark.toml").write_text('[sinks.archive]\nurl = "https://a.example/"\n')
    with pytest.raises(InvalidInput, match="not a table of sinks with a kind each"):
        load({}, folder=tmp_path, environ={})
    (tmp_path / "floodmark.toml").write_text('sinks = "archive=webhook"\n')
    assert load({}, folder=tmp_path, environ={}).sinks == "archive=webhook"


def test_wrong_sinks_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'SINKS="Archive" .* is not names of sinks with their kinds'):
        load({}, folder=tmp_path, environ={"SINKS": "Archive"})


@pytest.mark.parametrize(
    ("sinks", "options", "says"),
    [
        ("a=pigeon", {}, "'pigeon' is not in floodmark.sinks"),
        ("a=webhook", {}, "SINK_A_URL is not set"),
        ("a=webhook", {"SINK_A_URL": "https://x/", "SINK_A_SECRETS": "canary"}, "SINK_A_SECRETS is set, but"),
        ("a=webhook", {"SINK_A_URL": "https://x/", "SINK_A_BATCH": "canary"}, "SINK_A_BATCH is not a whole number"),
        ("a=webhook", {"SINK_A_URL": "https://x/", "SINK_A_FROM": "canary"}, "SINK_A_FROM is not one of"),
        ("a=webhook", {"SINK_A_URL": "https://x/", "SINK_A_STREAMS": "x" * 3000}, "SINK_A_STREAMS: the patterns are"),
        ("a=files", {}, "SINK_A_FOLDER is not set"),
        ("a=redis", {}, "SINK_A_URL is not set"),
        ("a=redis", {"SINK_A_URL": "canary"}, "SINK_A_URL is not a URL that begins with redis://"),
        ("files=webhook", {"SINK_FILES_URL": "https://x/"}, "there already is one of that name"),
    ],
)
async def test_a_wrong_sink_is_explained_without_its_values(
    tmp_path: Path, sinks: str, options: dict[str, str], says: str
) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/x.db", sinks=sinks, artifacts_dir=tmp_path / "posts")
    async with unconnected_services(settings) as services_for:
        with pytest.raises(InvalidInput, match=re.escape(says)) as refusal:
            open_sinks(settings.with_foreign(options), services_for)
        assert "canary" not in f"{refusal.value}{refusal.value.hint}"


async def test_several_sinks_of_one_kind_and_those_of_their_own_settings(tmp_path: Path) -> None:
    sinks = "a=webhook, b=webhook, lake=kafka, copy=redis, more=files"
    options = {
        "SINK_A_URL": "https://a.example/",
        "SINK_B_URL": "https://b.example/",
        "SINK_B_STREAMS": "telegram:*, web:*",
        "SINK_B_FROM": "newest",
        "SINK_LAKE_SERVERS": "kafka:9092",
        "SINK_LAKE_TOPIC": "events",
        "SINK_COPY_URL": "redis://redis.example/1",
        "SINK_MORE_FOLDER": str(tmp_path / "more"),
        "SINK_FILES_STREAMS": "telegram:1",
        # Another program's: not a sink without a name in SINKS.
        "WEBHOOK_URL": "https://other.example/",
    }
    settings = Settings(database_url=f"sqlite:///{tmp_path}/x.db", sinks=sinks, artifacts_dir=tmp_path / "posts")
    settings = settings.with_foreign(options)
    async with unconnected_services(settings) as services_for:
        found = {one.name: one for one in open_sinks(settings, services_for)}
        assert open_one(settings, services_for, "b").sink.place == "https://b.example"
        with pytest.raises(InvalidInput, match="not in floodmark"):
            open_one(settings.model_copy(update={"sinks": "a=pigeon"}), services_for, "a")
    assert {name: (one.kind, one.streams.text, one.traits.starts) for name, one in found.items()} == {
        "a": ("webhook", None, "oldest"),
        "b": ("webhook", "telegram:*,web:*", "newest"),
        "copy": ("redis", None, "newest"),
        "files": ("files", "telegram:1", "oldest"),
        "lake": ("kafka", None, "oldest"),
        "more": ("files", None, "oldest"),
    }
    assert isinstance(found["copy"].sink, RedisStreamSink)
    assert isinstance(found["lake"].sink, KafkaSink)
    async with found["copy"].sink:
        pass


async def test_a_kind_of_another_package_can_be_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads its section, and need not know about SINKS."""
    from floodmark_ndjson import NdjsonSink, open_sink

    from floodmark.sinks import loading

    monkeypatch.setattr(loading, "load_extension", lambda group, name: open_sink)
    settings = Settings(sinks="second=ndjson").with_foreign({"SINK_SECOND_URL": "https://a.example/events"})
    async with open_services("second", tmp_path) as services:
        found = open_one(settings, partial(lambda services, _: services, services), "second")
        assert isinstance(found.sink, NdjsonSink)
        with pytest.raises(InvalidInput, match="names the ndjson sink second, but it is not configured"):
            open_one(settings.with_foreign({}), partial(lambda services, _: services, services), "second")
