"""The guarantees of named leases."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from floodmark.coordination.leases.port import Leases

Expire = Callable[[str], Awaitable[None]]
TTL = timedelta(seconds=60)


class LeasesContract:
    """The guarantees of every kind of lease. Subclass it and provide `leases`, `elsewhere` and `expire`.

    `elsewhere` accesses the same leases from another process; `expire` lets the lease with a given name expire.
    """

    async def test_a_free_lease_is_taken(self, leases: Leases) -> None:
        """The first process that asks gets it."""
        assert await leases.holder("leader") is None
        assert await leases.acquire("leader", holder="a", ttl=TTL)
        assert await leases.holder("leader") == "a"

    async def test_it_has_one_holder(self, leases: Leases, elsewhere: Leases) -> None:
        """Other processes do not get it."""
        assert await leases.acquire("leader", holder="a", ttl=TTL)

        assert not await elsewhere.acquire("leader", holder="b", ttl=TTL)
        assert not await leases.acquire("leader", holder="b", ttl=TTL)
        assert await elsewhere.holder("leader") == "a"

    async def test_names_do_not_meet(self, leases: Leases) -> None:
        """One holder may have many leases, and each lease may have a different holder."""
        assert await leases.acquire("leader", holder="a", ttl=TTL)
        assert await leases.acquire("session:1", holder="a", ttl=TTL)
        assert await leases.acquire("session:2", holder="b", ttl=TTL)
        assert await leases.holder("session:2") == "b"

    async def test_the_holder_renews_it(self, leases: Leases, elsewhere: Leases, expire: Expire) -> None:
        """A late renewal also works if no other process has taken the lease."""
        assert await leases.acquire("leader", holder="a", ttl=timedelta(milliseconds=1))
        assert await leases.acquire("leader", holder="a", ttl=TTL)
        assert not await elsewhere.acquire("leader", holder="b", ttl=TTL)

        await expire("leader")
        assert await leases.acquire("leader", holder="a", ttl=TTL)
        assert await leases.holder("leader") == "a"

    async def test_it_is_taken_over_when_it_has_run_out(
        self, leases: Leases, elsewhere: Leases, expire: Expire
    ) -> None:
        """After that the old holder cannot renew it."""
        assert await leases.acquire("leader", holder="a", ttl=TTL)
        await expire("leader")

        assert await leases.holder("leader") is None
        assert await elsewhere.acquire("leader", holder="b", ttl=TTL)
        assert not await leases.acquire("leader", holder="a", ttl=TTL)
        assert await leases.holder("leader") == "b"

    async def test_what_is_given_back_can_be_taken_at_once(self, leases: Leases, elsewhere: Leases) -> None:
        """A released lease does not have to expire first."""
        assert await leases.acquire("leader", holder="a", ttl=TTL)
        await leases.release("leader", holder="a")

        assert await elsewhere.holder("leader") is None
        assert await elsewhere.acquire("leader", holder="b", ttl=TTL)

    async def test_a_stranger_cannot_give_it_back(self, leases: Leases, elsewhere: Leases) -> None:
        """A former holder cannot release it either."""
        await leases.release("leader", holder="a")
        assert await leases.acquire("leader", holder="a", ttl=TTL)

        await elsewhere.release("leader", holder="b")

        assert await leases.holder("leader") == "a"

    async def test_of_many_who_ask_at_once_one_wins(self, leases: Leases, elsewhere: Leases) -> None:
        """Exactly one of many concurrent requests succeeds."""
        names = [f"holder-{n}" for n in range(10)]
        answers = await asyncio.gather(
            *(
                where.acquire("leader", holder=f"{name}-{n}", ttl=TTL)
                for name in names
                for n, where in enumerate((leases, elsewhere))
            )
        )

        assert sum(answers) == 1
        assert await leases.holder("leader") is not None
