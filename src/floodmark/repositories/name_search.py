"""Find jobs and streams by what a person typed, and suggest similar names when there is no match."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from heapq import nlargest
from itertools import pairwise
from typing import Any

from sqlalchemy import Column, Select, case, func, or_, select, union

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.clean_text import clean
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.tables import jobs, watermarks

# The names before and after the typed one, among which similar ones are searched, and the most that are compared.
_NEIGHBOURS, _COMPARED = 1000, 100
# The names after the typed one, among which those that begin with it are searched.
_FOLLOWING = 1000
_SHOWN = 10


async def find_job(connection: AsyncConnection, text: str) -> str:
    """Return the id of the job with this name or id, or with a name or id that starts with the text."""
    found = await try_job(connection, text)
    if found is not None:
        return found
    typed = clean(text.strip())
    hint = await _suggest(connection, jobs.c.name, typed, "floodmark ls")
    raise NotFound(f"there is no job {typed[:60]!r}", hint=hint)


async def try_job(connection: AsyncConnection, text: str) -> str | None:
    """Do the same, and return None if there is no such job."""
    typed = clean(text.strip())
    # Ids are stored without dashes, but imported ones may have them.
    exact = or_(jobs.c.name == typed, jobs.c.job_id.in_((typed, typed.replace("-", "").lower())))
    best = case((jobs.c.name == typed, 0), else_=1)
    found = (await connection.execute(select(jobs.c.job_id).where(exact).order_by(best).limit(1))).scalar()
    return await _by_beginning(connection, typed) if found is None else str(found)


async def find_jobs(connection: AsyncConnection, texts: Sequence[str]) -> list[str]:
    """Return the ids of several jobs, each once, in the given order."""
    return list(dict.fromkeys([await find_job(connection, text) for text in texts]))


async def no_such_stream(connection: AsyncConnection, stream: str) -> NotFound:
    """Return the error for an unknown stream."""
    hint = await _suggest(connection, watermarks.c.stream, stream, "floodmark watermark")
    return NotFound(f"there is no stream {stream[:60]!r}", hint=hint)


async def _by_beginning(connection: AsyncConnection, typed: str) -> str | None:
    fitting = union(*(_beginning(jobs.c[name], text) for name, text in (("name", typed), ("job_id", typed.lower()))))
    query = select(fitting.subquery()).order_by("name").limit(_SHOWN + 1)
    rows = (await connection.execute(query)).all() if typed else []
    if len(rows) == 1:
        return str(rows[0].job_id)
    if rows:
        more = ", ..." if len(rows) > _SHOWN else ""
        names = ", ".join(row.name for row in rows[:_SHOWN])
        count = f"more than {_SHOWN}" if more else str(len(rows))
        raise InvalidInput(f"{typed!r} fits {count} jobs", hint=f"write out one of: {names}{more}")
    return None


def _beginning(column: Column[Any], typed: str) -> Select[Any]:
    """Return the query of jobs whose name or id begins with a text: they follow it in the index of the column.

    A collation that ignores punctuation mixes them with others, so more than those that are shown are read.
    """
    following = select(jobs.c.job_id, jobs.c.name, column.label("text")).where(column >= typed)
    some = following.order_by(column).limit(_FOLLOWING).subquery()
    # LIKE is case-sensitive on one database only.
    return select(some.c.job_id, some.c.name).where(func.substr(some.c.text, 1, len(typed)) == typed)


async def _suggest(connection: AsyncConnection, column: Column[Any], typed: str, command: str) -> str:
    """Return a hint with up to three similar names, among those before and after the text in the order of names."""
    before = select(column).where(column < typed).order_by(column.desc()).limit(_NEIGHBOURS)
    after = select(column).where(column >= typed).order_by(column).limit(_NEIGHBOURS)
    names = [name for query in (before, after) for name in (await connection.execute(query)).scalars()]
    close = _similar(typed.lower()[:200], {name.lower(): name for name in names})
    # "durov" should find "telegram-durov".
    close += sorted(name for name in names if typed and typed.lower() in name.lower())
    if close:
        return f"did you mean {', '.join(list(dict.fromkeys(close))[:3])}?"
    return f"see what there is with: {command}"


def _similar(typed: str, folded: dict[str, str]) -> list[str]:
    """Return similar names. Only those that have the most letters in common are compared, which takes long."""
    wanted = _pairs(typed)
    compared = nlargest(_COMPARED, folded, key=lambda name: len(wanted & _pairs(name)) / (len(name) + 1))
    return [folded[match] for match in get_close_matches(typed, compared, n=3, cutoff=0.5)]


def _pairs(name: Iterable[str]) -> set[tuple[str, str]]:
    return set(pairwise(name))
