"""What must hold after any run, asked of the store by bare SQL, and then of the doctor."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from chaos.fleet import Probe, eventually
from chaos.numbered import TICK, TICK_SECONDS, Plan, key
from floodmark import Settings
from floodmark.model.fleet import Finding
from floodmark.observability.events import Events
from floodmark.operations.doctor import Doctor
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.wiring.resources import open_resources

_UNFINISHED = "SELECT job_name, state, count(*) FROM executions WHERE state IN ({states}) GROUP BY 1, 2 ORDER BY 1"
_FENCES_HELD = """
SELECT w.stream, w.fence FROM watermarks w JOIN executions e ON e.execution_id = w.holder
 WHERE e.worker = '{}' AND e.state = 'running' AND e.fence = w.fence
"""
_ACTIVE = "'queued', 'waiting', 'running'"


def moment(value: Any) -> datetime:
    """A time as either database gives it."""
    return datetime.fromisoformat(value).astimezone(UTC) if isinstance(value, str) else value.astimezone(UTC)


async def wait_for_items(probe: Probe, plan: Plan, *, seconds: float) -> None:
    """Until every number is there."""

    async def count() -> list[tuple[Any, ...]]:
        return await probe.rows(
            "SELECT stream, count(*) FROM items WHERE stream LIKE '%numbers-%' GROUP BY 1 ORDER BY 1"
        )

    await eventually(count, lambda rows: sum(row[1] for row in rows) >= plan.items, seconds=seconds, what="all items")


async def come_to_rest(probe: Probe, *, seconds: float) -> datetime:
    """Have nothing fire any more, then wait until all that fired has ended. Returns when firing ended."""
    until = datetime.now(UTC)

    async def planned() -> datetime:
        return moment(await probe.value("SELECT min(planned_until) FROM jobs WHERE schedule_type = 'interval'"))

    await eventually(planned, lambda reached: reached >= until, seconds=seconds, what=f"planned until {until}")
    await probe.rows("UPDATE jobs SET schedule_enabled = FALSE")

    async def unfinished() -> list[tuple[Any, ...]]:
        return await probe.rows(_UNFINISHED.format(states=_ACTIVE))

    await eventually(unfinished, lambda rows: not rows, seconds=seconds, what="no unfinished execution")

    async def unsent() -> Any:
        return await probe.value("SELECT count(*) FROM outbox WHERE position IS NULL")

    await eventually(unsent, lambda count: count == 0, seconds=seconds, what="an empty outbox")
    return until


async def prepare(url: str) -> None:
    """The schema, which on a server is made by someone's word only."""
    database = open_database(url, events=Events())
    try:
        await migrate(database)
    finally:
        await database.close()


async def passed_on(probe: Probe, worker: str, *, seconds: float) -> None:
    """Wait until everything this worker held is in other hands."""
    held = dict(await probe.rows(_FENCES_HELD.format(worker)))

    async def overtaken() -> list[str]:
        now = dict(await probe.rows("SELECT stream, fence FROM watermarks"))
        return [stream for stream, fence in held.items() if now[stream] > fence]

    await eventually(overtaken, lambda gone: len(gone) == len(held), seconds=seconds, what=f"{held} have passed on")


async def check_all(probe: Probe, plan: Plan, until: datetime, settings: dict[str, Any]) -> None:
    """Every number once, every event once and in order, every instant once; and the doctor finds nothing."""
    assert await probe.rows(_UNFINISHED.format(states=f"{_ACTIVE}, 'dead', 'cancelled'")) == []
    await check_items(probe, plan)
    await check_events(probe)
    for name in [TICK, *(plan.name(stream) for stream in range(1, plan.streams, 2))]:
        await check_instants(probe, name, until)
    await check_ticks_kept(probe)
    streams = range(plan.streams)
    await check_health({f"python:{plan.name(stream)}": plan.keys(stream) for stream in streams}, settings)


async def check_stored(probe: Probe, plan: Plan) -> None:
    """What holds at any moment: no watermark is ahead of what is stored or behind, and each item has its event."""
    for stream in range(plan.streams):
        name = f"python:{plan.name(stream)}"
        # In one statement, so in one snapshot.
        stored = await probe.rows(
            f"SELECT 'item', key, revision FROM items WHERE stream = '{name}' UNION ALL"
            f" SELECT 'event', key, revision FROM outbox WHERE stream = '{name}' UNION ALL"
            f" SELECT 'mark', CAST(value AS text), 1 FROM watermarks WHERE stream = '{name}' AND value IS NOT NULL"
        )
        kept: dict[str, list[str]] = {"item": [], "event": [], "mark": []}
        for kind, value, revision in stored:
            assert revision == 1, f"{name} has another revision of {value}"
            kept[kind].append(value)
        first, count = plan.numbers(stream)[0], len(kept["item"])
        assert sorted(kept["item"]) == [key(first + n) for n in range(count)], f"{name} has a gap or a key twice"
        assert sorted(kept["event"]) == sorted(kept["item"]), f"{name} has an event too many or too few"
        reached = [mark for mark in kept["mark"] if f'"value":{first + count - 1}' in mark.replace(" ", "")]
        assert len(reached) == len(kept["mark"]) == bool(count), f"{name} has {count} items at {kept['mark']}"


async def check_items(probe: Probe, plan: Plan) -> None:
    """The stored set is the source's set, at revision 1, and no watermark is ahead of it or behind."""
    for stream in range(plan.streams):
        name = f"python:{plan.name(stream)}"
        stored = await probe.rows(f"SELECT key, revision FROM items WHERE stream = '{name}'")
        keys = [key for key, _ in stored]
        assert len(keys) == len(set(keys)), f"{name} holds a key twice"
        missing, strange = plan.keys(stream) - set(keys), set(keys) - plan.keys(stream)
        assert not missing | strange, f"{name}: missing {sorted(missing)[:5]}, not from there {sorted(strange)[:5]}"
        assert {revision for _, revision in stored} == {1}
        value = await probe.value(f"SELECT value FROM watermarks WHERE stream = '{name}'")
        assert f'"value":{plan.numbers(stream)[-1]}' in str(value).replace(" ", "")
    assert await probe.value("SELECT count(*) FROM item_revisions") == 0


async def check_events(probe: Probe) -> None:
    """One event an item, all of them sent, numbered without a gap, and in each stream in the order of its items."""
    told = await probe.rows("SELECT stream, key, revision, position FROM outbox ORDER BY position")
    events = {(stream, key, revision) for stream, key, revision, _ in told}
    assert len(events) == len(told), "an event is in the outbox twice"
    assert events == {tuple(row) for row in await probe.rows("SELECT stream, key, revision FROM items")}
    positions = [position for *_, position in told]
    assert None not in positions
    assert len(set(positions)) == len(positions)
    for stream in {stream for stream, *_ in events}:
        if "numbers-" in stream:
            keys = [key for found, key, _, _ in told if found == stream]
            assert keys == sorted(keys), f"events of {stream} are out of order"


async def check_instants(probe: Probe, name: str, until: datetime) -> None:
    """From the anchor, second by second: each instant has one execution, and there are no others."""
    anchor = moment(await probe.value(f"SELECT created_at FROM jobs WHERE name = '{name}'"))
    rows = await probe.rows(f"SELECT scheduled_for FROM executions WHERE job_name = '{name}' ORDER BY 1")
    fired = [moment(row[0]) for row in rows]
    assert len(fired) == len(set(fired)), f"{name}: an instant fired twice"
    step = timedelta(seconds=TICK_SECONDS)
    due = {anchor + n * step for n in range((until - anchor) // step + 1)}
    early = {instant for instant in fired if instant <= until}
    assert early == due, f"{name}: missing {sorted(due - early)[:5]}, not due {sorted(early - due)[:5]}"
    # What fired between looking at the clock and disabling the job lies on the same grid.
    assert all((instant - anchor) % step == timedelta() for instant in fired)


async def check_ticks_kept(probe: Probe) -> None:
    """Each tick that fired ran, and kept the one item that is its instant's."""
    fired = await probe.rows(f"SELECT scheduled_for FROM executions WHERE job_name = '{TICK}' AND state = 'done'")
    kept = await probe.rows(f"SELECT key FROM items WHERE stream = 'python:{TICK}'")
    assert {moment(row[0]) for row in fired} == {moment(row[0]) for row in kept}
    assert len(kept) == len(fired)


async def check_health(keys: Mapping[str, set[str]], settings: dict[str, Any]) -> None:
    """What `floodmark doctor` would say while the processes are still there; `keys` of a stream are all it holds."""
    # The fleet's leases are short, and so are its time-outs: a busy machine may take longer to answer the doctor.
    patient = Settings(**{**settings, "execution_lease": "180", "scheduler_leader_ttl": "180"})
    async with open_resources(patient) as resources:
        doctor = Doctor(
            resources.database,
            resources.clock,
            leases=resources.leases,
            leader_key=resources.settings.scheduler_leader_key,
            execution_lease=Settings(**settings).execution_lease,
            redis=resources.redis,
            prefix=resources.settings.scheduler_queue_prefix,
        )

        async def ill() -> list[Finding]:
            found = await doctor.check()
            for stream, expected in keys.items():
                found += await doctor.check_stream(stream, expected)
            return [finding for finding in found if not finding.ok]

        # A process that has just been started may not have shown itself yet.
        await eventually(ill, lambda found: not found, seconds=120, what="a clean bill of health")
