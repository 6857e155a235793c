"""Dependencies between jobs. Cycles are refused."""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from sqlalchemy import delete, insert, select, text, tuple_

from floodmark.errors import Conflict
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.tables import job_dependencies, jobs

# Two transactions that each add one half of a cycle would not see the other half.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('floodmark.dependencies'))")
_SHOWN = 12


async def set_dependencies(connection: AsyncConnection, database: Database, job_id: str, on: Sequence[str]) -> bool:
    """Make a job depend on exactly these jobs (ids). Returns whether anything changed; `Conflict` for a cycle."""
    return await set_all_dependencies(connection, database, {job_id: on})


async def set_all_dependencies(
    connection: AsyncConnection, database: Database, wanted: Mapping[str, Sequence[str]]
) -> bool:
    """The same for several jobs at once, with few statements."""
    if database.dialect == "postgresql":
        await connection.execute(_ONE_AT_A_TIME)
    edge = job_dependencies.c
    rows = await connection.execute(select(edge.job_id, edge.depends_on).where(edge.job_id.in_(list(wanted))))
    before = {(row.job_id, row.depends_on) for row in rows}
    after = {(job_id, needed) for job_id, on in wanted.items() for needed in on}
    if before == after:
        return False
    edges = {**await reachable_edges(connection, sorted({needed for _, needed in after})), **wanted}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError:
        cycle = next(filter(None, (find_cycle(edges, job_id, wanted[job_id]) for job_id in wanted)), [])
        raise Conflict(
            f"the jobs would wait for each other: {await _draw_cycle(connection, cycle)}",
            hint="leave out one of these dependencies",
        ) from None
    if before - after:
        await connection.execute(
            delete(job_dependencies).where(tuple_(edge.job_id, edge.depends_on).in_(sorted(before - after)))
        )
    added = [{"job_id": job_id, "depends_on": needed} for job_id, needed in sorted(after - before)]
    if added:
        await connection.execute(insert(job_dependencies), added)
    return True


async def dependency_names(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return, by job, the names of the jobs it depends on, in order."""
    query = (
        select(job_dependencies.c.job_id, jobs.c.name)
        .join(jobs, jobs.c.job_id == job_dependencies.c.depends_on)
        .where(job_dependencies.c.job_id.in_(job_ids))
        .order_by(jobs.c.name)
    )
    found: dict[str, tuple[str, ...]] = {}
    for job_id, name in await connection.execute(query):
        found[job_id] = (*found.get(job_id, ()), name)
    return found


def find_cycle(edges: Mapping[str, Iterable[str]], job: str, on: Iterable[str]) -> list[str]:
    """Return the path from `job` through one of `on` back to `job`, both ends included; empty if there is none."""
    ahead = list(on)
    reached_from = dict.fromkeys(ahead, job)
    # No recursion: chains may be longer than Python's stack.
    while ahead and job not in reached_from:
        here = ahead.pop()
        new = [there for there in edges.get(here, ()) if there not in reached_from]
        reached_from.update(dict.fromkeys(new, here))
        ahead += new
    if job not in reached_from:
        return []
    path = [job, reached_from[job]]
    while path[-1] != job:
        path.append(reached_from[path[-1]])
    return path[::-1]


async def reachable_edges(connection: AsyncConnection, on: Sequence[str]) -> dict[str, list[str]]:
    """Return the edges that are reachable from `on`, in one query."""
    edge = job_dependencies.c
    start = select(edge.job_id, edge.depends_on).where(edge.job_id.in_(on)).cte("walk", recursive=True)
    walk = start.union(select(edge.job_id, edge.depends_on).where(edge.job_id == start.c.depends_on))
    edges: dict[str, list[str]] = {}
    for job_id, needed in await connection.execute(select(walk.c.job_id, walk.c.depends_on)):
        edges.setdefault(job_id, []).append(needed)
    return edges


async def _draw_cycle(connection: AsyncConnection, cycle: Sequence[str]) -> str:
    """Return a text such as `a -> b -> a`; of a long cycle only its ends."""
    shown, half = list(cycle), _SHOWN // 2
    if len(shown) > _SHOWN:
        shown = shown[:half] + shown[-half:]
    rows = await connection.execute(select(jobs.c.job_id, jobs.c.name).where(jobs.c.job_id.in_(shown)))
    names = {row.job_id: row.name for row in rows}
    steps = [names.get(step, step) for step in shown]
    if len(cycle) > _SHOWN:
        steps.insert(half, f"... {len(cycle) - len(shown)} more ...")
    return " -> ".join(steps)
