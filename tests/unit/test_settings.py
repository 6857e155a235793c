"""Settings: where they come from, what is refused, and what is never shown."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from floodmark.errors import InvalidInput
from floodmark.model.job import CatchUp
from floodmark.settings import Settings, keys, load
from floodmark.settings.__main__ import example, page

CANARY = "canary-3f9a1c"


def refused(folder: Path, *, cli: dict[str, str] | None = None, environ: dict[str, str] | None = None) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load(cli or {}, folder=folder, environ=environ or {})
    return caught.value


@pytest.mark.spec("G8")
def test_nothing_needs_to_be_configured(tmp_path: Path) -> None:
    settings = load({}, folder=tmp_path, environ={})
    assert settings.database_url == "sqlite:///.floodmark/floodmark.db"
    assert settings.redis is None
    assert settings.host == "127.0.0.1"
    assert {row.origin for row in settings.rows()} == {"default"}


@pytest.mark.spec("E7", "V2", "V3", "V5", "V6", "F1", "F2", "F4", "F5", "T1", "T4", "T5")
def test_the_defaults_are_those_of_the_ledger() -> None:
    shown = {row.key: row.value for row in Settings().rows()}
    promised = {
        "PARSER_SCHEDULER_INTERVAL_SEC": "300",
        "PARSER_MODE_OVERRIDE": "auto",
        "PARSER_RETRY_MAX": "3",
        "PARSER_MAX_CONCURRENCY": "4",
        "RETRY_MAX_ATTEMPTS": "5",
        "RETRY_MAX_ELAPSED_SECONDS": "120",
        "BACKOFF_BASE_SECONDS": "0.5",
        "BACKOFF_MAX_SECONDS": "10",
        "CIRCUIT_BREAKER_WINDOW_SECONDS": "30",
        "CIRCUIT_BREAKER_FAILURE_THRESHOLD": "5",
        "CIRCUIT_BREAKER_OPEN_TIMEOUT_SECONDS": "60",
        "SCHEMA_VERSION": "1.0.0",
        "PARALLELISM_MAX": "2",
        "RATE_LIMIT_STRATEGY": "adaptive",
        "REQUEST_TIMEOUT": "10s",
        "MAX_WORKERS": "5",
        "JOB_MAX_INSTANCES": "1",
        "JOB_COALESCE": "true",
        "JOB_MISFIRE_GRACE_TIME": "5m",
        "SCHEDULER_QUEUE_PREFIX": "crawler",
        "SCHEDULER_WORKER_POOL_SIZE": "10",
        "SCHEDULER_JOB_TIMEOUT": "1h",
        "SCHEDULER_QUEUE_BATCH_SIZE": "50",
        "SCHEDULER_CB_THRESHOLD": "5",
        "SCHEDULER_CB_TIMEOUT": "1m",
        "SCHEDULER_LEADER_TTL": "30s",
        "SCHEDULER_LEADER_KEY": "scheduler-leader",
        "PORT": "8060",
    }
    assert {key: shown[key] for key in promised} == promised


def test_the_later_source_wins_and_each_value_knows_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PORT=2\nSCHEDULER_PORT=2\nWORKER_PORT=2\n")
    (tmp_path / "floodmark.toml").write_text("scheduler_port = 3\nWORKER_PORT = 3\n")
    environ = {"REDIS_PORT": "1", "PORT": "1", "SCHEDULER_PORT": "1", "WORKER_PORT": "1"}
    settings = load({"WORKER_PORT": "4"}, folder=tmp_path, environ=environ)
    assert (settings.redis_port, settings.port, settings.scheduler_port, settings.worker_port) == (1, 2, 3, 4)
    assert settings.origin("REDIS_PORT") == "environment"
    assert settings.origin("PORT") == ".env"
    assert settings.origin("SCHEDULER_PORT") == "floodmark.toml"
    assert settings.origin("WORKER_PORT") == "command line"
    assert settings.origin("HOST") == "default"
    assert Settings(port=1).origin("PORT") == "code"


def test_an_empty_value_puts_a_key_back_to_its_default(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("REDIS_URL=\nPORT=''\nREDIS_PASSWORD=   # optional\n")
    settings = load({}, folder=tmp_path, environ={"REDIS_URL": "redis://there", "PORT": "99"})
    assert settings.redis is None
    assert settings.port == 8060
    assert settings.redis_password is None
    assert settings.origin("PORT") == "default"


def test_a_dotenv_file_may_have_quotes_comments_exports_and_foreign_keys(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "\ufeff# ours\n\nexport LOG_LEVEL=DEBUG  # all of it\nHOSTNAME=\"a # b\"\nOTHER_PROGRAM='x'\n"
        "SCHEDULER_LEADER_KEY=a#b\n",
        encoding="utf-8",
    )
    settings = load({}, folder=tmp_path, environ={})
    assert (settings.log_level, settings.hostname, settings.scheduler_leader_key) == ("debug", "a # b", "a#b")


def test_the_values_of_floodmark_toml_keep_their_types(tmp_path: Path) -> None:
    (tmp_path / "floodmark.toml").write_text(
        'job_coalesce = false\nbackoff_base_seconds = 0.25\njob_catch_up = "ALL"\nexecution_lease = 0.5\n'
    )
    settings = load({}, folder=tmp_path, environ={})
    assert settings.job_coalesce is False
    assert settings.backoff_base_seconds == 0.25
    assert settings.job_catch_up is CatchUp.ALL
    assert settings.execution_lease == timedelta(milliseconds=500)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("5m", 300), ("1h", 3600), ("0.5s", 0.5), ("1h30m", 5400)]
)
def test_durations_are_read_as_people_write_them(tmp_path: Path, text: str, seconds: float) -> None:
    settings = load({"SCHEDULER_LEADER_TTL": text}, folder=tmp_path, environ={})
    assert settings.scheduler_leader_ttl == timedelta(seconds=seconds)


@pytest.mark.spec("G9")
def test_a_bad_value_is_named_with_its_place_and_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SCHEDULER_WORKER_POOL_SIZE=ten\n")
    assert str(refused(tmp_path)) == (
        'SCHEDULER_WORKER_POOL_SIZE="ten" (from .env) is not a whole number of at least 1'
    )


@pytest.mark.spec("G9")
def test_all_bad_values_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "floodmark.toml").write_text("log_levle = 1\nport = true\nhost = ['a']\n")
    error = refused(tmp_path, cli={"LOG_FORMAT": "xml"}, environ={"JOB_CATCH_UP": "some"})
    assert set(str(error).splitlines()) == {
        '"log_levle" (from floodmark.toml) is not a setting',
        "HOST (from floodmark.toml) is not a single value",
        'LOG_FORMAT="xml" (from command line) is not one of auto, console, json',
        'PORT="true" (from floodmark.toml) is not a port from 0 to 65535',
        'JOB_CATCH_UP="some" (from environment) is not one of none, one, all',
    }
    assert "Did you mean LOG_LEVEL?" in error.hint
    assert "Correct it there" in error.hint


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DATABASE_URL", "mysql://h/db"),
        ("DATABASE_URL", "sqlite:///"),
        ("DATABASE_URL", "postgres://h/db"),
        ("REDIS_URL", "http://h"),
        ("API_URL", "ftp://h"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("REDIS_DB", "9" * 5000),
        ("SCHEDULER_CB_THRESHOLD", "0"),
        ("SCHEDULER_LEADER_TTL", "0"),
        ("SCHEDULER_LEADER_TTL", "-5s"),
        ("SCHEDULER_LEADER_TTL", "P1D"),
        ("SCHEDULER_LEADER_TTL", "999999999w"),
        ("BACKOFF_MAX_SECONDS", "nan"),
        ("BACKOFF_MAX_SECONDS", "inf"),
        ("FLOODMARK_APP", "no colon"),
        ("FLOODMARK_APP", "module:app\nx"),
        ("JOB_COALESCE", "maybe"),
        ("RATE_LIMIT_STRATEGY", "hope"),
    ],
)
def test_values_that_make_no_sense_are_refused(tmp_path: Path, key: str, value: str) -> None:
    error = refused(tmp_path, environ={key: value})
    assert str(error).startswith(f"{key}=")
    assert "(from environment) is not " in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 250


@pytest.mark.spec("G9")
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, cli={"DATABASE_POOL_MIN": "20", "EXECUTION_RETRY_BASE": "1h"})
    assert str(error).splitlines() == [
        "DATABASE_POOL_MIN=20 is more than DATABASE_POOL_MAX=10",
        "EXECUTION_RETRY_BASE=1h is more than EXECUTION_RETRY_MAX=15m",
    ]


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (".env", b"just words\n", ".env, line 1: expected KEY=VALUE"),
        (".env", b"\xff\xfe\x00", ".env is not UTF-8 text"),
        ("floodmark.toml", b"port = \n", "floodmark.toml cannot be read: Invalid value (at line 1, column 8)"),
        ("floodmark.toml", b"port = 1\nPORT = 2\n", "PORT is given twice (in floodmark.toml)"),
        ("floodmark.toml", b"[jobs]\nx = 1\n", '"jobs" (from floodmark.toml) is not a setting'),
    ],
)
def test_a_broken_file_is_refused_with_the_place(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert str(refused(tmp_path)) == told


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "floodmark.toml").mkdir()
    assert "floodmark.toml cannot be read" in str(refused(tmp_path))


def test_an_unknown_key_on_the_command_line_is_refused(tmp_path: Path) -> None:
    assert "Did you mean SCHEDULER_PORT" in refused(tmp_path, cli={"SHEDULER_PORT": "1"}).hint
    with pytest.raises(InvalidInput):
        Settings().origin("NOPE")


@pytest.mark.spec("E9")
def test_redis_is_found_by_url_or_by_its_parts() -> None:
    assert Settings(redis_host="h").redis == "redis://h:6379/0"
    parts = Settings.model_validate({"redis_host": "h", "redis_password": "p@s/s:w", "redis_db": "2"})
    assert parts.redis == "redis://:p%40s%2Fs%3Aw@h:6379/2"
    assert Settings(redis_host="::1").redis == "redis://[::1]:6379/0"
    assert Settings(redis_url="redis://u/1", redis_host="h").redis == "redis://u/1"
    assert Settings(redis_port=1).redis is None


@pytest.mark.spec("E9", "G9")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("REDIS_PASSWORD", CANARY),
        ("REDIS_URL", f"redis://:{CANARY}@h/0"),
        ("REDIS_URL", f"redis://u:a@{CANARY}@h/0"),
        ("DATABASE_URL", f"postgresql://u:{CANARY}@h/db"),
        ("DATABASE_URL", f"postgresql://h/db?password={CANARY}"),
        ("API_URL", f"https://{CANARY}@h/schedules"),
        ("API_URL", f"https://h/schedules?api_token={CANARY}"),
    ],
)
def test_no_secret_is_ever_shown(tmp_path: Path, key: str, value: str) -> None:
    settings = load({}, folder=tmp_path, environ={key: value})
    shown = {row.key: row.value for row in settings.rows()}
    assert "***" in shown[key]
    assert CANARY not in repr(shown) + repr(settings) + str(settings)


@pytest.mark.spec("E9", "G9")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DATABASE_URL", f"mysql://u:{CANARY}@h/db"),
        ("DATABASE_URL", f"u:{CANARY}@h/db"),
        ("REDIS_URL", f"redis:/{CANARY}@h"),
        ("API_URL", f"ftp://h/?token={CANARY}"),
    ],
)
def test_no_secret_is_shown_when_its_value_is_refused(tmp_path: Path, key: str, value: str) -> None:
    error = refused(tmp_path, environ={key: value})
    assert CANARY not in str(error) + error.hint + repr(error.__cause__)
    assert "***" in str(error)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1


@given(st.sampled_from(keys()), st.text(st.characters(exclude_characters="\0"), max_size=30))
def test_any_text_is_either_taken_or_refused_in_words(key: str, value: str) -> None:
    try:
        settings = load({key: value}, folder=Path("/nowhere"), environ={})
    except InvalidInput as error:
        assert key in str(error)  # noqa: PT017 - most texts are refused, some are not
    else:
        assert settings.origin(key) == ("command line" if value.strip() else "default")


@pytest.mark.parametrize("key", keys())
def test_what_is_shown_can_be_typed_again(key: str, tmp_path: Path) -> None:
    shown = {row.key: row.value for row in Settings().rows()}[key]
    again = load({key: shown}, folder=tmp_path, environ={})
    assert getattr(again, key.lower()) == getattr(Settings(), key.lower())


def test_large_numbers_are_shown_in_full() -> None:
    settings = Settings(backoff_max_seconds=12345678.5, execution_lease=timedelta(seconds=12345678.5))
    shown = {row.key: row.value for row in settings.rows()}
    assert (shown["BACKOFF_MAX_SECONDS"], shown["EXECUTION_LEASE"]) == ("12345678.5", "12345678.5s")


def test_the_example_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(re.sub(r"^#([A-Z0-9_]+=)", r"\1", example(), flags=re.MULTILINE))
    loaded = load({}, folder=tmp_path, environ={})
    assert {row.key: row.value for row in loaded.rows()} == {row.key: row.value for row in Settings().rows()}


def test_the_page_is_printed_by_its_command() -> None:
    command = [sys.executable, "-W", "error", "-m", "floodmark.settings"]
    environ = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    printed = subprocess.run(command, capture_output=True, check=True, env=environ)
    assert printed.stdout.decode() == page()


@pytest.mark.spec("G8")
def test_extensions_read_their_own_section_from_every_place(tmp_path: Path) -> None:
    """`MASTODON_TOKEN` and `[extensions.mastodon] token` are the same setting; the file wins."""
    (tmp_path / ".env").write_text("MASTODON_LIMIT=5\nOTHER_KEY=1\n")
    (tmp_path / "floodmark.toml").write_text('[extensions.mastodon]\ntoken = "from the file"\n')

    settings = load({}, folder=tmp_path, environ={"MASTODON_TOKEN": "from outside", "MASTODON_URL": "http://a"})

    assert settings.section("mastodon") == {"token": "from the file", "limit": "5", "url": "http://a"}
    assert settings.section("nobody") == {}
    assert "from the file" not in repr(settings)
