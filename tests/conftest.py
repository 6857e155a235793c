"""What every test may ask for.

    postgres, valkey    the servers themselves, one of each per run, started when first asked for
    pg_url              a database of its own on `postgres`, dropped afterwards
    redis_url           `valkey` without a single key, before and after
    sqlite_url          a database file of its own, not yet there

`started` starts any other server of `servers` for a test, or skips it loudly.

A test that kills or pauses a server should start its own (`Valkey.start(own=True)`): with an address from
the environment the shared one is not ours to kill.
"""

import asyncio
import gc
import inspect
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # the library leaves it unannotated

from floodmark.observability.logs import CHATTY
from servers import Postgres, Server, ServerMissingError, Valkey
from skipping import not_tested

pytest_plugins = ("spec_coverage", "backends")
# Properties are tried with so many examples, unless a test says otherwise; every run draws others.
# Nor does a busy machine make a property wrong.
for _name, _examples in (("brief", 10), ("suite", 25)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
# `pytest_configure` chooses the brief one, unless more is asked for.
settings.load_profile("suite")
# Of the terminal that the tests were started from, which is none of theirs.
os.environ.pop("COLUMNS", None)
# A shell starts background commands with SIGINT ignored, and programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Before any test file imports them: pytest explains only the asserts of modules that it loads itself.
pytest.register_assert_rewrite("backends", "telegram_fixtures", "telegram_desk")

# What is imported and collected stays until the end: looking through it for garbage took a fifth of the suite's time.
gc.disable()

S = TypeVar("S", bound=Server)
# The model only computes; the deaths of processes are mostly waited for.
_BY_THEMSELVES = ("tests/chaos/test_model.py", "tests/chaos/test_deaths.py")
_OF_SOURCES = ("tests/chaos/test_telegram_", "tests/chaos/test_web_")
# What tests are parametrised with: databases of either kind, with and without Redis; commands that open the database
# themselves, and commands that ask a server.
_INSTALLATIONS = {
    *("sqlite", "sqlite_copy", "sqlite_url", "redis_on_sqlite"),
    *("postgresql", "postgres_only", "pg_clean", "pg_url", "redis_on_postgres"),
    *("here", "there"),
}


class SideBySide(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """Which tests follow each other when several run at a time: those of a file, which then starts its servers once,

    and most of the chaos tests, in two rows: each of them keeps several processes busy.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if not path.startswith("tests/chaos/") or path in _BY_THEMSELVES:
            return path
        return "chaos of sources" if path.startswith(_OF_SOURCES) else "chaos of the core"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SideBySide:
    """Let pytest-xdist hand out tests in this manner."""
    return SideBySide(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--thorough` adds the tests that take long, `--release` those that take longest."""
    parser.addoption("--thorough", action="store_true", help="run the tests that take long as well, as CI does")
    parser.addoption("--release", action="store_true", help="run every test, on each installation, before a release")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of each property without `--thorough`."""
    if not config.getoption("--thorough") and not config.getoption("--release"):
        settings.load_profile("brief")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run those of chaos first, which take longest. Omit what was not asked for, by an option or by its name."""
    items.sort(key=lambda item: "chaos" not in item.path.parts)
    if not config.getoption("--release") and not any("::" in argument for argument in config.args):
        omitted = ("release",) if config.getoption("--thorough") else ("release", "thorough")
        kept = on_one_installation([item for item in items if not any(map(item.get_closest_marker, omitted))])
        left_out = set(items).difference(kept)
        items[:] = kept
        config.hook.pytest_deselected(items=list(left_out))


def on_one_installation(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return each test that runs on several installations only once, about half of them on each kind.

    Tests of ports, of killed processes and of SQL itself run on all: what they prove is the same everywhere, so a test
    of something above them may trust it.
    """
    variants: dict[object, list[pytest.Item]] = {}
    for item in items:
        variants.setdefault(_without_installation(item) or item, []).append(item)
    # The name decides, so a test has the same database in every run and in every process.
    chosen = {id(several[crc32(repr(test).encode()) % len(several)]) for test, several in variants.items()}
    return [item for item in items if id(item) in chosen]


def _without_installation(item: pytest.Item) -> tuple[str, ...] | None:
    """Return what the variants of a test on several installations have in common; None for any other test."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    if set(item.path.parts) & {"contracts", "chaos"} or item.get_closest_marker("every_database"):
        return None
    params = item.callspec.params
    if not any(str(value) in _INSTALLATIONS for value in params.values()):
        return None
    others = [f"{name}={value!r}" for name, value in params.items() if str(value) not in _INSTALLATIONS]
    return (item.nodeid.partition("[")[0], *others)


def pytest_collection_finish() -> None:
    """Collect garbage from here on, in larger portions than usual, without what is there already."""
    gc.freeze()
    gc.set_threshold(5000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logs may be any text; what travels from one process to the other must be UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="replace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def is_release(pytestconfig: pytest.Config) -> bool:
    """Whether random tests are repeated as often as before a release."""
    return bool(pytestconfig.getoption("--release"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The run's PostgreSQL server."""
    with started(Postgres.start) as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """The run's Valkey server."""
    with started(Valkey.start) as server:
        yield server


@pytest.fixture
def pg_url(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty PostgreSQL database that no other test sees."""
    name = f"floodmark_{uuid4().hex[:12]}"
    postgres.revive()
    yield postgres.create_database(name)
    postgres.revive()
    postgres.drop_database(name)


@pytest.fixture
def redis_url(valkey: Valkey) -> Iterator[str]:
    """The URL of a Valkey database without any key."""
    valkey.revive()
    valkey.flush()
    yield valkey.url
    valkey.revive()
    valkey.flush()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite database that the test is the first to open."""
    return f"sqlite:///{tmp_path}/floodmark.db"


@pytest.fixture(autouse=True)
def no_task_left_behind(request: pytest.FixtureRequest) -> None:
    """Fail an async test that leaves tasks running: whoever starts one must also end it."""
    # Only for async tests, so that the others need no event loop.
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("tasks_at_the_end")


@pytest.fixture(autouse=True)
def no_collectors_left_behind() -> Iterator[None]:
    """Forget the `feeds` that a command imported in this process: a server judges functions of imported modules."""
    yield
    sys.modules.pop("feeds", None)


@pytest.fixture(autouse=True)
def no_log_level_left_behind() -> Iterator[None]:
    """Set the levels of loggers back that a command in this process has set. Otherwise each statement is logged."""
    yield
    for logger in (logging.getLogger(), *map(logging.getLogger, CHATTY)):
        logger.setLevel(logging.WARNING)


@pytest.fixture
async def tasks_at_the_end() -> AsyncIterator[None]:
    """The work of `no_task_left_behind`. Set up before all other fixtures, so it looks after them all."""
    yield
    # What was just cancelled needs a few turns of the loop to notice.
    for _ in range(5):
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if left:
        told = "\n".join(map(repr, left))
        pytest.fail(f"Tasks left behind; cancel and await them:\n{told}", pytrace=False)


def started(start: Callable[[], S]) -> S:
    """Start a server. One that cannot be had is a loud skip, and in CI a failure."""
    try:
        return start()
    except ServerMissingError as missing:
        not_tested(str(missing))
