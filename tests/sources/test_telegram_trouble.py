"""What becomes of a run when Telegram, the account or the channel is in trouble."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from floodmark.observability.events import AccountParked, RunEnded, SlotsChanged
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.tables import accounts, telegram_channels
from floodmark.testing.factories import rows_of
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from telegram_desk import asked, expected, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")

HISTORY = "messages.getHistory"


@pytest.mark.spec("T4", "G4")
async def test_a_flood_wait_in_mid_history_frees_the_slot_and_goes_on_at_that_page(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    # Where it begins, and the first page; then it is told to wait.
    server.flood(HISTORY, seconds=5, after=2)
    listen = (RunEnded, SlotsChanged)
    async with working(server, sqlite_copy, listen=listen, rate_limit_strategy="fixed") as desk:
        await desk.account()
        execution = await desk.ask(await desk.job())
        waiting = await desk.reaches(execution, "waiting")

        last = expected(channel)[99]
        assert waiting.reason is not None
        assert waiting.reason.startswith("FloodWait on account reader1 (messages.getHistory) until ")
        assert waiting.reason.endswith(f", continues at message {last + 1}")
        assert (waiting.attempt, waiting.items_new) == (0, 100)
        assert desk.happened(SlotsChanged)[-1].busy == 0
        assert desk.happened(RunEnded)[-1].status == "waiting"
        [limit] = await desk.limits.page()
        assert limit.key == "telegram:reader1:messages.getHistory"

        done = await desk.reaches(execution, "done")

        assert list(await desk.posts(stream_of(channel))) == expected(channel)
        assert done.result["parsed_count"] == len(expected(channel))
        assert done.result["requests"] == len(asked(server))
        # One page was asked for twice, by the call that was refused; none was read twice.
        read = [call.offset_id or 0 for call in server.calls(HISTORY) if call.result == "ok"]
        assert all(earlier < later for earlier, later in pairwise(read[1:]))
        assert read[2] == last + 1
    assert server.violations == []


@pytest.mark.spec("T4")
async def test_while_an_account_has_to_wait_nothing_connects(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        await desk.limits.set(f"telegram:reader1:{HISTORY}", timedelta(minutes=5), "FloodWait on reader1")
        waiting = await desk.reaches(await desk.ask(await desk.job()), "waiting")
        assert waiting.reason == "FloodWait on reader1"
    assert server.connections == 0


@pytest.mark.spec("T13")
@pytest.mark.thorough
async def test_a_channel_that_became_private_pauses_its_job(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        channel.make_private()

        dead = await desk.run(job)

        assert dead.state == "dead"
        assert [letter.execution_id for letter in await desk.letters.page(job.name)] == [dead.execution_id]
        assert "paused: @harbour is private" in await desk.explain(job)
        assert (await rows_of(desk.resources, accounts))[0]["state"] == "active"


@pytest.mark.parametrize(
    ("target", "why"), [("@nobody_here", "does not exist"), ("4242424242", "does not know channel 4242424242")]
)
async def test_a_channel_that_cannot_be_found_pauses_its_job(
    server: LoopbackTelegram, sqlite_copy: str, target: str, why: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job(target)
        assert (await desk.run(job)).state == "dead"
        assert why in await desk.explain(job)


@pytest.mark.spec("T1")
@pytest.mark.thorough
async def test_without_an_account_jobs_wait_for_one_and_go_on_by_themselves(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.job()
        assert (await desk.run(job)).state == "dead"
        explained = await desk.explain(job)
        assert "account (none): no Telegram account is set up" in explained
        assert "floodmark accounts add" in explained
        await desk.account()
        assert (await desk.run(job)).state == "done"


@pytest.mark.thorough
async def test_a_revoked_session_parks_the_account_and_says_why(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy, listen=(AccountParked,)) as desk:
        job = await desk.collected()
        server.revoke("reader1")

        assert (await desk.run(job)).state == "dead"
        assert "account reader1: the session was logged out" in await desk.explain(job)
        assert "floodmark accounts add reader1 --replace" in await desk.explain(job)
        assert desk.happened(AccountParked) == [AccountParked("reader1", "the session was logged out")]
        [row] = await rows_of(desk.resources, accounts)
        assert (row["state"], row["holder"]) == ("parked", None)

        # A new session brings the job back.
        server.restore("reader1")
        await desk.account(replace=True)
        assert (await desk.run(job)).state == "done"


@pytest.mark.thorough
async def test_a_job_that_names_no_account_goes_on_with_another(
    server: LoopbackTelegram, backend: TelegramBackend, channel: Channel, sqlite_copy: str
) -> None:
    backend.account("reader2")
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        await desk.account("reader2")
        server.revoke("reader1")
        new = channel.post("news")

        assert (await desk.run(job)).state == "done"
        assert new in await desk.posts(stream_of(channel))
        assert server.calls(HISTORY, account="reader2") != []


async def test_a_job_that_names_its_account_waits_for_that_one(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    backend.account("reader2")
    async with working(server, sqlite_copy) as desk:
        await desk.account("reader2")
        job = await desk.job(account="reader1")
        assert (await desk.run(job)).state == "dead"
        assert "account reader1: there is no such account" in await desk.explain(job)
        await desk.account("reader1")
        assert (await desk.run(job)).state == "done"
        assert server.calls(HISTORY, account="reader2") == []


@pytest.mark.spec("T4")
@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.thorough
async def test_a_dropped_connection_costs_neither_a_post_nor_an_attempt(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, when: str
) -> None:
    server.drop(when=when, method=HISTORY, after=2, times=2)  # type: ignore[arg-type]  # drawn from its values
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        ended = await desk.run(await desk.job())
        assert (ended.state, ended.attempt) == ("done", 1)
        posts = await desk.posts(stream_of(channel))
        assert list(posts) == expected(channel)


@pytest.mark.spec("T4")
@pytest.mark.thorough
async def test_an_answer_that_never_comes_is_asked_for_again(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    server.hang(method=HISTORY, after=1)
    server.half_close(method=HISTORY, after=3)
    async with working(server, sqlite_copy, telegram_call_timeout=timedelta(seconds=3)) as desk:
        await desk.account()
        ended = await desk.run(await desk.job())
        assert (ended.state, ended.attempt) == ("done", 1)
        assert list(await desk.posts(stream_of(channel))) == expected(channel)


@pytest.mark.thorough
async def test_a_server_that_hangs_up_at_once_is_not_stormed(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    server.accept_and_close()
    open_for: dict[str, Any] = {"circuit_breaker_open_timeout_seconds": 5.0, "circuit_breaker_failure_threshold": 3}
    async with working(server, sqlite_copy, **open_for) as desk:
        await desk.account()
        execution = await desk.ask(await desk.job())
        waiting = await desk.reaches(execution, "waiting")
        assert waiting.reason is not None
        assert "breaker telegram:reader1 is open" in waiting.reason
        tried = server.connections
        assert tried <= 6
        server.heal()
        await desk.reaches(execution, "done")
        assert list(await desk.posts(stream_of(channel))) == expected(channel)


@pytest.mark.thorough
async def test_a_server_that_is_away_is_waited_for(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    server.refuse()
    async with working(server, sqlite_copy, retry_max_attempts=2) as desk:
        await desk.account()
        execution = await desk.ask(await desk.job())
        await desk.reaches(execution, "waiting")
        server.accept()
        await desk.reaches(execution, "done")
        assert list(await desk.posts(stream_of(channel))) == expected(channel)


@pytest.mark.spec("T6", "T7")
@pytest.mark.thorough
async def test_two_workers_and_two_accounts_share_the_work_without_a_duplicate(
    server: LoopbackTelegram, backend: TelegramBackend, pg_clean: str
) -> None:
    backend.account("reader2")
    names = [f"pier_{n}" for n in range(6)]
    for name in names:
        backend.channel(name).fill(30)
    brief: dict[str, Any] = {"telegram_session_linger": timedelta(seconds=0.2)}
    async with (
        working(server, pg_clean, **brief) as first,
        working(server, pg_clean, scheduler=False, **brief) as second,
    ):
        await first.account("reader1")
        await first.account("reader2")
        jobs = [await first.job(f"@{name}", params={"history": "all"}) for name in names]
        for _ in range(2):
            executions = await asyncio.gather(*(first.ask(job) for job in jobs))
            ended = [await first.reaches(execution, "done", "dead") for execution in executions]
            assert {e.state for e in ended} == {"done"}
            for name in names:
                channel = backend.find_channel(name)
                assert channel is not None
                posts = await second.posts(stream_of(channel))
                assert list(posts) == expected(channel)
                assert {post["revision"] for post in posts.values()} == {1}
                channel.post("news")
    # Each name was looked up once, by one of the two.
    assert len(server.calls("contacts.resolveUsername")) == len(names)
    assert {call.account for call in server.calls(HISTORY)} == {"reader1", "reader2"}


@pytest.mark.spec("T5")
async def test_channels_that_are_new_at_once_are_shared_among_the_accounts(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    backend.account("reader2")
    for n in range(4):
        backend.channel(f"pier_{n}").fill(5)
    async with working(server, sqlite_copy) as desk:
        await desk.account("reader1")
        await desk.account("reader2")
        jobs = [await desk.job(f"@pier_{n}") for n in range(4)]
        executions = await asyncio.gather(*(desk.ask(job) for job in jobs))
        for execution in executions:
            await desk.reaches(execution, "done")
        known = [row["account"] for row in await rows_of(desk.resources, telegram_channels)]
        assert sorted(known) == ["reader1", "reader1", "reader2", "reader2"]


@pytest.mark.spec("T13", "T4")
@pytest.mark.thorough
async def test_a_refusal_of_one_channel_harms_no_account_and_pauses_the_job_after_three_runs(
    server: LoopbackTelegram, backend: TelegramBackend, channel: Channel, sqlite_copy: str
) -> None:
    """Telethon counts every error 406 among those of a lost session."""
    backend.channel("pier").fill(5)
    backend.account("reader2")
    async with working(server, sqlite_copy) as desk:
        await desk.account("reader1")
        await desk.account("reader2")
        job, pier = await desk.job(), await desk.job("@pier")
        server.fail(HISTORY, "SOMETHING_NEW", code=406, channel=channel, times=None)
        for run in range(3):
            dead = await desk.run(job)
            assert (dead.state, "SOMETHING_NEW" in (dead.error_message or "")) == ("dead", True)
            assert (await desk.jobs.get(job.job_id)).paused == (run == 2)
        assert {row["state"] for row in await rows_of(desk.resources, accounts)} == {"active"}
        assert (await desk.run(pier)).state == "done"


@pytest.mark.spec("T4")
@pytest.mark.thorough
async def test_a_success_in_between_forgives_refusals(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        for name in ("CHAT_ADMIN_REQUIRED", "CHAT_ADMIN_REQUIRED", None, "CHAT_ADMIN_REQUIRED", "CHAT_ADMIN_REQUIRED"):
            if name is not None:
                server.fail(HISTORY, name)
            assert (await desk.run(job)).state == ("done" if name is None else "dead")
        assert not (await desk.jobs.get(job.job_id)).paused


@pytest.mark.spec("T13")
async def test_when_all_accounts_are_parked_they_are_named(
    server: LoopbackTelegram, backend: TelegramBackend, channel: Channel, sqlite_copy: str
) -> None:
    backend.account("reader2")
    async with working(server, sqlite_copy) as desk:
        for name in ("reader1", "reader2"):
            await desk.account(name)
            await desk.services.accounts.park(name, f"{name} was logged out")
        dead = await desk.run(await desk.job())
        assert "reader1 (reader1 was logged out), reader2 (reader2 was logged out)" in (dead.error_message or "")


@pytest.mark.spec("T13", "G3")
@pytest.mark.parametrize("how", ["parked", "removed"])
@pytest.mark.thorough
async def test_a_renamed_channel_survives_the_loss_of_its_account(
    server: LoopbackTelegram, channel: Channel, backend: TelegramBackend, sqlite_copy: str, how: str
) -> None:
    """Another account finds it by the name under which the first one saw it last."""
    backend.account("reader2")
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        channel.rename("old_harbour")
        backend.channel("harbour").fill(3)
        channel.post("under the new name")
        assert (await desk.run(job)).state == "done"

        if how == "parked":
            await desk.services.accounts.park("reader1", "logged out")
        else:
            await Accounts(desk.resources.database, desk.resources.clock, Vault.of(desk.resources.settings)).remove(
                "reader1", force=True
            )
        await desk.account("reader2")
        new = channel.post("read by another account")
        assert (await desk.run(job)).state == "done"
        assert new in await desk.posts(stream_of(channel))
        assert list(await desk.posts(stream_of(channel))) == expected(channel)
