"""Executions that failed permanently, and what a person does about them."""

from datetime import timedelta

import pytest

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.clock import SystemClock
from floodmark.model.dead_letters import fingerprint
from floodmark.model.execution import State
from floodmark.model.job import Priority
from floodmark.model.outcome import Dead
from floodmark.repositories.dead_letters import DeadLetters
from floodmark.repositories.history import ExecutionHistory
from floodmark.repositories.jobs import Jobs
from system.stores import TTL, AnyDatabase, Crew, a_spec, execution_row, put_execution

pytestmark = pytest.mark.every_database


@pytest.fixture
def letters(database: AnyDatabase) -> DeadLetters:
    return DeadLetters(database, SystemClock())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("Timeout after 30 s", "Timeout after # s"),
        ("user 'durov' not found", "user … not found"),
        ('no such "key"\nTraceback', "no such …"),
        ("can't reach it, isn't there", "can't reach it, isn't there"),
        ("object at 0x7f3a2b deadbeef01", "object at # #"),
        ("run 0197c2d0-1f2e-7abc-8def-001122334455 failed", "run # failed"),
        ("decade of facade", "decade of facade"),
        ("", "no error message"),
        (None, "no error message"),
    ],
)
def test_the_same_fault_has_the_same_fingerprint(error: str | None, expected: str) -> None:
    assert fingerprint(error) == expected


@pytest.mark.spec("T13")
async def test_letters_are_shown_newest_first(jobs: Jobs, letters: DeadLetters, crew: Crew) -> None:
    job = await jobs.add(a_spec(name="news"))
    ids = [(await crew.run(jobs, job, Dead(error=f"e{n}"))).execution_id for n in range(3)]
    await crew.run(jobs, job)

    first = await letters.page(limit=2)
    rest = await letters.page(before=(first[-1].completed_at, first[-1].execution_id))

    assert [letter.execution_id for letter in first + rest] == ids[::-1]
    assert await letters.page(job="nobody") == []
    assert len(await letters.page(job="news")) == len(await letters.page(job=job.job_id)) == 3


@pytest.mark.spec("T13")
async def test_letters_are_grouped_by_error(jobs: Jobs, letters: DeadLetters, crew: Crew) -> None:
    a, b = await jobs.add(a_spec(name="a")), await jobs.add(a_spec(name="b", target="b"))
    await crew.run(jobs, a, Dead(error="banned"))
    for n, job in enumerate((a, b, a)):
        await crew.run(jobs, job, Dead(error=f"Timeout after {n} s"))

    often, once = await letters.groups()

    assert (often.fingerprint, often.count, often.jobs) == ("Timeout after # s", 3, ("a", "b"))
    assert often.example == "Timeout after 2 s"
    assert (once.fingerprint, once.count) == ("banned", 1)
    assert [group.count for group in await letters.groups(job="b")] == [1]
    assert often.oldest < often.newest
    assert once.oldest == once.newest


@pytest.mark.spec("B10")
async def test_letters_of_one_group_are_listed_in_pages(jobs: Jobs, letters: DeadLetters, crew: Crew) -> None:
    job = await jobs.add(a_spec(name="news"))
    for n in range(4):
        await crew.run(jobs, job, Dead(error=f"Timeout after {n} s"))
        await crew.run(jobs, job, Dead(error="banned"))
    first = await letters.page(limit=3, group="Timeout after # s")
    rest = await letters.page(before=(first[-1].completed_at, first[-1].execution_id), group="Timeout after # s")
    assert [letter.error_message for letter in first + rest] == [f"Timeout after {n} s" for n in (3, 2, 1, 0)]
    assert await letters.page(group="no such group") == []


@pytest.mark.spec("T13", "V8")
async def test_a_retried_letter_starts_afresh_and_keeps_its_error(
    jobs: Jobs, history: ExecutionHistory, letters: DeadLetters, crew: Crew, database: AnyDatabase
) -> None:
    job = await jobs.add(a_spec(priority=Priority.HIGH))
    lease = await crew.run(jobs, job, Dead(error="boom", details={"status": 404}))

    [queued] = await letters.retry([lease.execution_id])

    assert (queued.execution_id, queued.priority) == (lease.execution_id, Priority.HIGH)
    run = await history.get_execution(lease.execution_id)
    assert (run.state, run.attempt, run.rescues, run.error_message) == (State.QUEUED, 0, 0, None)
    assert (run.completed_at, run.started_at, run.duration_seconds) == (None, None, None)
    assert [entry["error"] for entry in run.error_details] == ["boom"]
    assert (await execution_row(database, lease.execution_id))["queue_rank"] is not None
    [again] = await crew.leasing.claim([lease.execution_id], worker="w", ttl=TTL)
    assert again.attempt == 1
    await crew.end(again)
    assert (await history.get_execution(lease.execution_id)).state is State.DONE


async def test_an_error_that_no_attempt_wrote_down_is_kept_too(
    jobs: Jobs, letters: DeadLetters, database: AnyDatabase
) -> None:
    """A worker that dies again and again leaves a letter whose error is only in its message."""
    job = await jobs.add(a_spec())
    letter = await put_execution(
        database, job_id=job.job_id, state="dead", rescues=6, attempt=2, worker="w9", error_message="its worker died"
    )
    await letters.retry([letter])
    row = await execution_row(database, letter)
    assert row["error_details"] == [{"attempt": 2, "worker": "w9", "error": "its worker died", "details": None}]
    assert row["worker"] is None


@pytest.mark.spec("T13")
async def test_letters_are_retried_by_group_and_by_job(jobs: Jobs, letters: DeadLetters, crew: Crew) -> None:
    a, b = await jobs.add(a_spec("a", name="a")), await jobs.add(a_spec("b", name="b"))
    for job in (a, b):
        for error in ("Timeout after 3 s", "Timeout after 4 s", "banned"):
            await crew.run(jobs, job, Dead(error=error))

    assert len(await letters.retry(group="Timeout after # s", job="a")) == 2
    assert len(await letters.retry(group="Timeout after # s")) == 2
    assert len(await letters.retry(job="b")) == 1
    assert [letter.error_message for letter in await letters.page()] == ["banned"]


async def test_letters_of_a_deleted_job_can_only_be_dropped(
    jobs: Jobs, history: ExecutionHistory, letters: DeadLetters, crew: Crew
) -> None:
    job, other = await jobs.add(a_spec("a")), await jobs.add(a_spec("b"))
    gone = await crew.run(jobs, job, Dead(error="boom"))
    there = await crew.run(jobs, other, Dead(error="boom"))
    await jobs.remove(job)

    assert [queued.execution_id for queued in await letters.retry(group="boom")] == [there.execution_id]
    with pytest.raises(NotFound, match="deleted") as refused:
        await letters.retry([gone.execution_id])
    assert "dlq drop" in refused.value.hint
    assert await letters.drop([gone.execution_id], reason="no longer wanted") == 1
    run = await history.get_execution(gone.execution_id)
    assert (run.state, run.reason, run.error_message) == (State.CANCELLED, "no longer wanted", "boom")
    assert run.completed_at is not None


@pytest.mark.spec("G9")
async def test_what_is_not_a_dead_letter_is_left_alone(
    jobs: Jobs, history: ExecutionHistory, letters: DeadLetters, crew: Crew
) -> None:
    job = await jobs.add(a_spec())
    done = await crew.run(jobs, job)
    for name in (letters.retry, letters.drop):
        with pytest.raises(NotFound, match="no such dead letters"):
            await name([done.execution_id])
        with pytest.raises(InvalidInput, match="no dead letters were named"):
            await name()
    assert (await history.get_execution(done.execution_id)).state is State.DONE


async def test_a_letter_of_a_paused_job_waits_for_its_resumption(
    jobs: Jobs, history: ExecutionHistory, letters: DeadLetters, crew: Crew, database: AnyDatabase
) -> None:
    job = await jobs.add(a_spec())
    letter = await put_execution(database, job_id=job.job_id, state="dead", error_message="gone")
    job = await jobs.pause(job)
    await letters.retry([letter])
    assert await crew.leasing.claim([letter], worker="w", ttl=timedelta(seconds=5)) == []
    assert (await history.get_execution(letter)).reason == "the job is paused"
    await jobs.resume(job)
    assert [queued.execution_id for queued in await crew.upkeep.wake(limit=5)] == [letter]
