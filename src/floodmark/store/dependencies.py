"""Which job waits for which. No job may wait for itself, by whatever detour."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import delete, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from floodmark.errors import Conflict

from .database import Database
from .tables import job_dependencies, jobs

# Two people closing a cycle from both ends would not see each other's half.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('floodmark.dependencies'))")
_SHOWN = 12


async def set_dependencies(connection: AsyncConnection, database: Database, job_id: str, on: Sequence[str]) -> bool:
    """Let a job wait for exactly these (ids); whether that changed anything. Raises `Conflict` for a cycle."""
    if database.dialect == "postgresql":
        await connection.execute(_ONE_AT_A_TIME)
    mine = job_dependencies.c.job_id == job_id
    before = set((await connection.execute(select(job_dependencies.c.depends_on).where(mine))).scalars())
    if before == set(on):
        return False
    cycle = find_cycle(await _reachable(connection, on), job_id, on)
    if cycle:
        raise Conflict(
            f"the jobs would wait for each other: {await _drawn(connection, cycle)}",
            hint="leave out one of these dependencies",
        )
    await connection.execute(delete(job_dependencies).where(mine, job_dependencies.c.depends_on.not_in(on)))
    added = [{"job_id": job_id, "depends_on": needed} for needed in on if needed not in before]
    if added:
        await connection.execute(insert(job_dependencies), added)
    return True


async def dependency_names(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By job, the names of those it waits for, in order."""
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
    """The way from `job` through one of `on` back to `job`, both ends included; empty if there is none."""
    reached_from: dict[str, str] = {}
    ahead = list(on)
    reached_from.update(dict.fromkeys(ahead, job))
    # A list of what lies ahead instead of recursion: chains may be longer than Python's stack.
    while ahead and job not in reached_from:
        here = ahead.pop()
        new = [there for there in edges.get(here, ()) if there not in reached_from]
        reached_from.update(dict.fromkeys(new, here))
        ahead += new
    if job not in reached_from:
        return []
    way = [job, reached_from[job]]
    while way[-1] != job:
        way.append(reached_from[way[-1]])
    return way[::-1]


async def _reachable(connection: AsyncConnection, on: Sequence[str]) -> dict[str, list[str]]:
    """The edges that can be walked from `on`, in one query."""
    edge = job_dependencies.c
    start = select(edge.job_id, edge.depends_on).where(edge.job_id.in_(on)).cte("walk", recursive=True)
    walk = start.union(select(edge.job_id, edge.depends_on).where(edge.job_id == start.c.depends_on))
    edges: dict[str, list[str]] = {}
    for job_id, needed in await connection.execute(select(walk.c.job_id, walk.c.depends_on)):
        edges.setdefault(job_id, []).append(needed)
    return edges


async def _drawn(connection: AsyncConnection, cycle: Sequence[str]) -> str:
    """ "a -> b -> a"; of a long way only its ends."""
    shown, half = list(cycle), _SHOWN // 2
    if len(shown) > _SHOWN:
        shown = shown[:half] + shown[-half:]
    rows = await connection.execute(select(jobs.c.job_id, jobs.c.name).where(jobs.c.job_id.in_(shown)))
    names = {row.job_id: row.name for row in rows}
    steps = [names.get(step, step) for step in shown]
    if len(cycle) > _SHOWN:
        steps.insert(half, f"... {len(cycle) - len(shown)} more ...")
    return " -> ".join(steps)
