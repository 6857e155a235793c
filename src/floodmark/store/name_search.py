"""Find a thing by what a person typed, and tell them what comes close when it is not there."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Column, case, func, or_, select

from floodmark.errors import InvalidInput, NotFound

from .async_engine import AsyncConnection
from .tables import jobs, watermarks

# How many names are compared to find those that come close.
_COMPARED = 2000
_SHOWN = 10


async def find_job(connection: AsyncConnection, text: str) -> str:
    """The id of the job with this name, this id, or the only one whose name or id begins so."""
    typed = text.strip()
    # Ids are kept without dashes, but those taken over from an older scheduler may have them.
    exact = or_(jobs.c.name == typed, jobs.c.job_id.in_((typed, typed.replace("-", "").lower())))
    best = case((jobs.c.name == typed, 0), else_=1)
    found = (await connection.execute(select(jobs.c.job_id).where(exact).order_by(best).limit(1))).scalar()
    if found is not None:
        return str(found)
    return await _by_beginning(connection, typed)


async def find_jobs(connection: AsyncConnection, texts: Sequence[str]) -> list[str]:
    """The ids of several jobs, each once, in the order they were named."""
    return list(dict.fromkeys([await find_job(connection, text) for text in texts]))


async def no_such_stream(connection: AsyncConnection, stream: str) -> NotFound:
    """What to raise for a stream nobody knows."""
    names = await _compared(connection, watermarks.c.stream, stream)
    return NotFound(f"there is no stream {stream[:60]!r}", hint=_close(stream, names, "floodmark watermark"))


async def _by_beginning(connection: AsyncConnection, typed: str) -> str:
    begins = or_(_begins(jobs.c.name, typed), _begins(jobs.c.job_id, typed.lower()))
    query = select(jobs.c.job_id, jobs.c.name).where(begins).order_by(jobs.c.name).limit(_SHOWN + 1)
    rows = (await connection.execute(query)).all() if typed else []
    if len(rows) == 1:
        return str(rows[0].job_id)
    if rows:
        more = ", ..." if len(rows) > _SHOWN else ""
        fitting = ", ".join(row.name for row in rows[:_SHOWN])
        count = f"more than {_SHOWN}" if more else str(len(rows))
        raise InvalidInput(f"{typed!r} fits {count} jobs", hint=f"write out one of: {fitting}{more}")
    names = await _compared(connection, jobs.c.name, typed)
    raise NotFound(f"there is no job {typed[:60]!r}", hint=_close(typed, names, "floodmark ls"))


def _begins(column: Column[Any], typed: str) -> Any:
    # LIKE heeds case on one database and not on the other.
    return func.substr(column, 1, len(typed)) == typed


async def _compared(connection: AsyncConnection, column: Column[Any], typed: str) -> list[str]:
    """Names to compare with; those that begin alike first, should there be too many."""
    alike = case((_begins(column, typed[:1]), 0), else_=1)
    return list((await connection.execute(select(column).order_by(alike, column).limit(_COMPARED))).scalars())


def _close(typed: str, names: Sequence[str], command: str) -> str:
    folded = {name.lower(): name for name in names}
    close = [folded[match] for match in get_close_matches(typed.lower()[:200], folded, n=3, cutoff=0.5)]
    # "durov" should find "telegram-durov".
    close += [name for name in names if typed and typed.lower() in name.lower()]
    if close:
        return f"did you mean {', '.join(list(dict.fromkeys(close))[:3])}?"
    return f"see what there is with: {command}"
