"""A process that stands still for longer than its leases, and wakes up: its session and its batch are not its own
any more.

Nobody can close the connection of a process that stands still. So whoever takes its session over meets it at the
server, and for that time there are two: this is the one case in which `duplicates` is not empty. Telegram ends a
session for that when the two come from different addresses. What is promised is that the one that wakes up leaves by
itself, before it does anything else.
"""

import signal
from collections.abc import Iterator

import pytest

from chaos.fleet import Fleet, eventually, shown_at_the_end
from chaos.invariants import passed_on
from chaos.town import HISTORY, add_job, keys_of, town_on
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from telegram_desk import stream_of

FROZEN, OTHER = "worker-frozen", "worker-other"
MESSAGES = 1_000


@pytest.fixture
def server() -> Iterator[LoopbackTelegram]:
    backend = TelegramBackend(seed=14)
    backend.account("reader1")
    backend.channel("harbour").fill(MESSAGES, kind="plain")
    with LoopbackTelegram.thread(backend) as one:
        yield one


@pytest.mark.spec("T6", "T7", "G3")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_a_process_that_wakes_up_after_its_lease_leaves_and_writes_nothing(
    fleet: Fleet, server: LoopbackTelegram, pg_url: str, redis_url: str
) -> None:
    """It is stopped with a batch in its hands, replaced, and woken when everything is done."""
    [channel] = server.backend.channels.values()
    # An idle session is kept for longer than the test lasts: what closes it is that its lease is over.
    async with town_on(fleet, server, pg_url, redis_url, telegram_session_linger="120") as town:
        with shown_at_the_end(fleet, {}):
            await town.start("scheduler")
            await town.start(FROZEN, failpoint="keep.begun:stop@3")
            job = await add_job(town, channel)
            execution_id = await town.desk.ask(job)
            note = await fleet.stopped(FROZEN, 180)
            [old] = server.connected("reader1")

            await town.start(OTHER)
            await passed_on(town.probe, note["worker"], seconds=120)
            await town.reaches(execution_id, "done")
            # On a busy machine the new holder may connect more than once.
            assert {duplicate.connections[0] for duplicate in server.duplicates} == {old}
            duplicates = len(server.duplicates)
            asked = len(calls_on(server, old))

            fleet.send(FROZEN, signal.SIGCONT)

            async def connected() -> list[int]:
                return server.connected("reader1")

            await eventually(connected, lambda open_ones: old not in open_ones, seconds=180, what=f"{old} is closed")
            # What it had handed to its socket before it was stopped may still go out, and nothing else.
            assert len(calls_on(server, old)) <= asked + 1

            async def told() -> set[str]:
                return {found["kind"] for found in fleet.happened(child=fleet.children[FROZEN])}

            refused = {"BatchRefused", "LeaseLost"}
            await eventually(
                told, lambda kinds: bool(kinds & refused), seconds=180, what="it learns of its replacement"
            )
            await town.comes_to_rest()
            await town.check()

            # It is none the worse for it: when the other is gone, it goes on with a connection of its own.
            fleet.kill(OTHER)
            channel.post("The ferry is late")
            await town.reaches(await town.desk.ask(job), "done")
            await town.comes_to_rest()
            await town.check_posts({stream_of(channel): keys_of(channel)})
            assert len(server.duplicates) == duplicates
        assert fleet.fallen == [], fleet.tails()


def calls_on(server: LoopbackTelegram, connection: int) -> list[object]:
    """The calls that came over one connection."""
    return [call for call in server.calls(HISTORY) if call.connection == connection]
