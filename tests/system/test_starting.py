"""What a process checks before it begins: a database that answers, and a Redis prefix of its own."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from faulty_proxy import FaultyProxy
from floodmark import Floodmark
from floodmark.errors import Conflict, Unreachable
from floodmark.settings import Settings
from floodmark.testing.eventually import eventually
from floodmark.wiring.resources import open_resources
from servers import Postgres

KEY = "crawler:installation"


@pytest.mark.spec("V2", "G8")
@pytest.mark.thorough
async def test_two_installations_do_not_share_a_prefix_in_redis(tmp_path: Path, redis_url: str) -> None:
    def settings(name: str, prefix: str = "crawler") -> Settings:
        url = f"sqlite:///{tmp_path}/{name}.db"
        return Settings(database_url=url, redis_url=redis_url, scheduler_queue_prefix=prefix)

    async with Redis.from_url(redis_url, protocol=2) as redis:

        async def owner() -> object:
            return await redis.get(KEY)

        stop = asyncio.Event()
        first = asyncio.create_task(Floodmark(settings("first")).serve(port=0, stop=stop))
        ours = await eventually(owner)

        with pytest.raises(Conflict, match=r"'crawler' .* belongs to another installation") as refused:
            await Floodmark(settings("second")).serve(port=0, seconds=0)
        told = f"{refused.value} {refused.value.hint}"
        for name in ("SCHEDULER_QUEUE_PREFIX", "REDIS_URL", "DATABASE_URL", f"redis-cli DEL {KEY}", "second.db"):
            assert name in told
        await Floodmark(settings("second", "other")).serve(port=0, seconds=0)

        await redis.flushall()
        assert await eventually(owner) == ours, "an emptied Redis heals by itself"
        assert not first.done()
        # Started while Redis was away, and now it turns out to be that of others.
        await redis.set(KEY, "0123456789abcdef")
        await asyncio.wait([first], timeout=60)
        with pytest.raises(Conflict, match=r"\(01234567\)"):
            await first
        assert stop.is_set()


@pytest.mark.spec("G8")
async def test_a_redis_that_may_delete_the_queue_is_refused(tmp_path: Path, redis_url: str) -> None:
    """A policy that deletes only keys with an expiry is accepted: streams have none."""
    settings = Settings(database_url=f"sqlite:///{tmp_path}/floodmark.db", redis_url=redis_url)
    async with Redis.from_url(redis_url, protocol=2) as redis:
        try:
            await redis.config_set("maxmemory-policy", "allkeys-lru")
            with pytest.raises(Conflict, match=r"maxmemory-policy is allkeys-lru") as refused:
                await Floodmark(settings).serve(port=0, seconds=0)
            assert "noeviction" in refused.value.hint
            assert not await redis.exists(KEY)
            await redis.config_set("maxmemory-policy", "volatile-lru")
            await Floodmark(settings).serve(port=0, seconds=0)
        finally:
            await redis.config_set("maxmemory-policy", "noeviction")


@pytest.mark.spec("G8")
async def test_a_process_waits_for_a_database_that_does_not_answer_yet(postgres: Postgres, pg_clean: str) -> None:
    with FaultyProxy(pg_clean) as proxy:
        proxy.refuse()
        told = Settings(database_url=proxy.url, startup_wait=timedelta(seconds=60))

        async def opened() -> str:
            async with open_resources(told, waits=True) as resources:
                return resources.name

        with capture_logs() as logs:
            opening = asyncio.create_task(opened())
            await eventually(lambda: logs)
            assert not opening.done()
            proxy.heal()
            assert await asyncio.wait_for(opening, 60)
        assert logs[0]["event"] == "waiting for the database"
        assert "does not answer" in logs[0]["reason"]
        assert 50 <= logs[0]["gives_up_in_seconds"] <= 60

        proxy.refuse()
        with pytest.raises(Unreachable, match=r"waited 0.2 s, as STARTUP_WAIT says"):
            async with open_resources(
                Settings(database_url=proxy.url, startup_wait=timedelta(seconds=0.2)), waits=True
            ):
                pass
    with pytest.raises(Unreachable, match='"nowhere" does not exist') as unknown:
        async with open_resources(Settings(database_url=f"{postgres.url.rpartition('/')[0]}/nowhere"), waits=True):
            pass
    assert not unknown.value.may_return, "waiting would not help"
