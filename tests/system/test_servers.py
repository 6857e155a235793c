"""The servers that other tests stand on are real, separate from each other, and gone at the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
import redis
import redis.asyncio

import servers
from servers import Postgres, Valkey

ABANDON = """
from servers import Postgres, Valkey
postgres, valkey = Postgres.start(own=True), Valkey.start(own=True)
valkey.pause()
print(postgres.pid, valkey.pid, flush=True)
input()
"""


async def test_postgres_is_real(pg_url: str) -> None:
    connection = await asyncpg.connect(pg_url)
    version = await connection.fetchval("SELECT version()")
    await connection.close()

    assert version.startswith("PostgreSQL ")


async def test_two_databases_do_not_see_each_other(postgres: Postgres, pg_url: str) -> None:
    other_url = postgres.create_database("the_other")
    try:
        here, there = await asyncpg.connect(pg_url), await asyncpg.connect(other_url)
        await here.execute("CREATE TABLE mark (id int)")

        assert await here.fetchval("SELECT to_regclass('mark')::text") == "mark"
        assert await there.fetchval("SELECT to_regclass('mark')::text") is None
        await here.close()
        await there.close()
    finally:
        postgres.drop_database("the_other")


async def test_a_database_can_be_copied_from_a_template(postgres: Postgres, pg_url: str) -> None:
    connection = await asyncpg.connect(pg_url)
    await connection.execute("CREATE TABLE mark AS SELECT 7 AS id")
    await connection.close()

    try:
        copy = await asyncpg.connect(postgres.create_database("a_copy", template=pg_url.rpartition("/")[2]))
        assert await copy.fetchval("SELECT id FROM mark") == 7
        await copy.close()
    finally:
        postgres.drop_database("a_copy")


@pytest.mark.thorough
async def test_postgres_crashes_and_returns_with_what_was_committed() -> None:
    with Postgres.start(own=True) as postgres:
        connection = await asyncpg.connect(postgres.url)
        await connection.execute("CREATE TABLE mark AS SELECT 7 AS id")

        postgres.restart(mode="immediate")

        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT 1")
        connection = await asyncpg.connect(postgres.url)
        assert await connection.fetchval("SELECT id FROM mark") == 7
        await connection.close()


async def test_valkey_is_real(redis_url: str) -> None:
    async with redis.asyncio.from_url(redis_url, decode_responses=True) as client:
        entry = await client.xadd("stream", {"a": "1"})

        assert await client.xrange("stream") == [(entry, {"a": "1"})]


@pytest.mark.parametrize("turn", ["first", "second"])
async def test_each_test_begins_without_keys(redis_url: str, turn: str) -> None:
    async with redis.asyncio.from_url(redis_url) as client:
        assert await client.dbsize() == 0
        await client.set("left", turn)


def test_a_persistent_valkey_survives_a_kill_at_the_same_address() -> None:
    with Valkey.start(persist=True) as valkey:
        with redis.Redis.from_url(valkey.url) as client:
            client.xadd("stream", {"a": "1"})
        valkey.kill()
        assert valkey.pid is None

        valkey.start_again()
        with redis.Redis.from_url(valkey.url) as client:
            assert client.xlen("stream") == 1


def test_a_paused_valkey_keeps_silent_until_resumed() -> None:
    with (
        Valkey.start(own=True) as valkey,
        redis.Redis.from_url(valkey.url, socket_timeout=120) as client,
        redis.Redis.from_url(valkey.url, socket_timeout=0.1) as impatient,
    ):
        client.set("a", "1")
        valkey.pause()
        with pytest.raises(redis.TimeoutError):
            impatient.get("a")

        valkey.resume()
        assert client.get("a") == b"1"


@pytest.mark.thorough
def test_a_killed_run_leaves_no_server_and_no_folder(tmp_path: Path) -> None:
    """Not even a paused server, and not even after SIGKILL, when no handler can run."""
    run = subprocess.Popen(
        [sys.executable, "-c", ABANDON],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(servers.__file__).parent)},
    )
    with run:
        assert run.stdout
        pids = [int(word) for word in run.stdout.readline().split()]
        folders = [Path(os.readlink(f"/proc/{pid}/cwd")) for pid in pids] if Path("/proc/self").exists() else []
        run.send_signal(signal.SIGKILL)

    assert len(pids) == 2
    wait_until(lambda: not any(is_running(pid) for pid in pids), f"one of {pids} still runs")
    wait_until(lambda: not any(folder.exists() for folder in folders), f"one of {folders} is still there")


def is_running(pid: int) -> bool:
    """Whether there is such a process that is more than a zombie waiting for its parent."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] not in {"", "Z"}


def wait_until(check: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.02)
