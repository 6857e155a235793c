"""Find jobs and streams by what a person typed, and suggest similar names when there is no match."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Column, case, func, or_, select

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.clean_text import clean

from .async_engine import AsyncConnection
from .tables import jobs, watermarks

# The most names that are compared to find similar ones.
_COMPARED = 2000
_SHOWN = 10


async def find_job(connection: AsyncConnection, text: str) -> str:
    """Return the id of the job with this name or id, or with a name or id that starts with the text."""
    typed = clean(text.strip())
    # Ids are stored without dashes, but imported ones may have them.
    exact = or_(jobs.c.name == typed, jobs.c.job_id.in_((typed, typed.replace("-", "").lower())))
    best = case((jobs.c.name == typed, 0), else_=1)
    found = (await connection.execute(select(jobs.c.job_id).where(exact).order_by(best).limit(1))).scalar()
    if found is not None:
        return str(found)
    return await _by_beginning(connection, typed)


async def find_jobs(connection: AsyncConnection, texts: Sequence[str]) -> list[str]:
    """Return the ids of several jobs, each once, in the given order."""
    return list(dict.fromkeys([await find_job(connection, text) for text in texts]))


async def no_such_stream(connection: AsyncConnection, stream: str) -> NotFound:
    """Return the error for an unknown stream."""
    hint = await _suggest(connection, watermarks.c.stream, stream, "floodmark watermark")
    return NotFound(f"there is no stream {stream[:60]!r}", hint=hint)


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
    hint = await _suggest(connection, jobs.c.name, typed, "floodmark ls")
    raise NotFound(f"there is no job {typed[:60]!r}", hint=hint)


def _begins(column: Column[Any], typed: str) -> Any:
    # LIKE is case-sensitive on one database only.
    return func.substr(column, 1, len(typed)) == typed


async def _suggest(connection: AsyncConnection, column: Column[Any], typed: str, command: str) -> str:
    """Return a hint with up to three similar names; names with the same first letter are compared first."""
    alike = case((_begins(column, typed[:1]), 0), else_=1)
    names = list((await connection.execute(select(column).order_by(alike, column).limit(_COMPARED))).scalars())
    folded = {name.lower(): name for name in names}
    close = [folded[match] for match in get_close_matches(typed.lower()[:200], folded, n=3, cutoff=0.5)]
    # "durov" should find "telegram-durov".
    close += [name for name in names if typed and typed.lower() in name.lower()]
    if close:
        return f"did you mean {', '.join(list(dict.fromkeys(close))[:3])}?"
    return f"see what there is with: {command}"
