"""Budgets as people create, change and remove them. Tables: `budgets`, `budget_grants`, `budget_hours`.

The leader and the workers write the other columns: `next_free`, `price`, `sources`, `habits`, and the requests by hour.
"""

import math
import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, get_args

from sqlalchemy import ColumnElement, Select, delete, func, select, update

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.budget import (
    DEFAULT_FAIRNESS,
    LEAST_REQUESTS,
    MOST_REQUESTS,
    BudgetRow,
    Period,
)
from floodmark.model.clock import Clock
from floodmark.model.field import TEN_YEARS
from floodmark.rules.budgets import DEFAULT_BUDGET
from floodmark.rules.freshness import rate_of
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import chunks, present_moment
from floodmark.store.tables import budget_grants, budget_hours, budgets, jobs

from .repository import Repository, bound_limit

MOST_SHOWN = 500
DEFAULT_PER_MINUTE = 60.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_HOUR, _WEEK = timedelta(hours=1), timedelta(days=7)
_NAMED = 5


class Budgets(Repository):
    """Creates, lists, changes and removes budgets. `default_per_minute`: the requests of the budget `default`."""

    def __init__(self, database: Database, clock: Clock, *, default_per_minute: float = DEFAULT_PER_MINUTE) -> None:
        super().__init__(database, clock)
        self._default_per_minute = default_per_minute

    async def page(self, *, after: str | None = None, limit: int = 100) -> list[BudgetRow]:
        """Return budgets in order of name. The next page is `after` the name of the last one."""
        query = self._rows() if after is None else self._rows().where(budgets.c.name > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(budgets.c.name).limit(bound_limit(limit, MOST_SHOWN)))
            return [BudgetRow(**row) for row in rows.mappings()]

    async def find(self, name: str) -> BudgetRow | None:
        """Return the budget of this name, if there is one."""
        async with self._database.reading() as connection:
            return await self._read(connection, name)

    async def show(self, name: str) -> BudgetRow:
        """Return one budget. `NotFound` lists some names."""
        found = await self.find(name)
        if found is None:
            there = [known.name for known in await self.page(limit=_NAMED)]
            hint = f"there are: {', '.join(there)}" if there else _how_to_create("NAME")
            raise NotFound(f"there is no budget {name[:80]!r}", hint=hint)
        return found

    async def put(
        self,
        name: str,
        *,
        requests: float,
        period: Period = "minute",
        max_delay: timedelta | None = None,
        fairness: float = DEFAULT_FAIRNESS,
    ) -> BudgetRow:
        """Create a budget, or change it while it is in use. The version increases by one, unless nothing changes."""
        _check(name, requests, period, max_delay, fairness)
        values = {
            "requests": requests,
            "period": period,
            "max_delay_seconds": None if max_delay is None else max_delay.total_seconds(),
            "fairness": fairness,
        }
        async with self._database.writing() as connection:
            if not await self._insert(connection, name, values):
                await self._change(connection, name, values)
            found = await self._read(connection, name)
        assert found is not None
        return found

    async def remove(self, name: str) -> BudgetRow:
        """Delete a budget and return what it was. `Conflict` if jobs use it."""
        before = await self.show(name)
        async with self._database.writing() as connection:
            # Before the jobs are read: it waits for transactions that give the budget to a job.
            await connection.execute(delete(budgets).where(budgets.c.name == name))
            query = select(jobs.c.name).where(jobs.c.budget == name).order_by(jobs.c.name).limit(_NAMED + 1)
            users = list((await connection.execute(query)).scalars())
            if users:
                raise _in_use(name, users)
            for table in (budget_grants, budget_hours):
                await connection.execute(delete(table).where(table.c.budget == name))
        return before

    async def require(self, connection: AsyncConnection, names: Collection[str | None]) -> None:
        """Refuse unknown budgets. The others cannot be removed before the end of the transaction."""
        wanted = {name for name in names if name is not None}
        if not wanted:
            return
        if DEFAULT_BUDGET in wanted:
            await self._insert_default(connection)
        query = select(budgets.c.name).where(budgets.c.name.in_(wanted)).order_by(budgets.c.name)
        # The weakest lock: requests of the budget do not wait for it.
        there = set((await connection.execute(query.with_for_update(key_share=True, read=True))).scalars())
        for name in sorted(wanted - there):
            raise unknown_budget(name)

    async def find_missing(self, names: Collection[str | None]) -> set[str]:
        """Return the names that `require` would refuse."""
        wanted = sorted({name for name in names if name is not None} - {DEFAULT_BUDGET})
        there = set[str]()
        for some in chunks(wanted):
            rows = await self._database.fetch(select(budgets.c.name).where(budgets.c.name.in_(some)))
            there |= {row["name"] for row in rows}
        return set(wanted) - there

    async def _insert_default(self, connection: AsyncConnection) -> None:
        requests = {"requests": self._default_per_minute, "period": "minute", "fairness": DEFAULT_FAIRNESS}
        await self._insert(connection, DEFAULT_BUDGET, requests)

    async def _insert(self, connection: AsyncConnection, name: str, values: Mapping[str, Any]) -> bool:
        """Return False if the name is taken."""
        now, interval = self._now(), 1 / rate_of(values["requests"], values["period"])
        row = {"name": name, **values, "interval_seconds": interval, "next_free": now}
        statement = self._insert_into(budgets).values(**row, created_at=now, updated_at=now)
        made = await connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]))
        return bool(made.rowcount)

    async def _change(self, connection: AsyncConnection, name: str, values: Mapping[str, Any]) -> None:
        this = budgets.c.name == name
        query = select(*(budgets.c[column] for column in (*values, "interval_seconds", "next_free")))
        row = (await connection.execute(query.where(this).with_for_update(key_share=True))).mappings().one()
        if all(row[column] == value for column, value in values.items()):
            return
        changes = dict(values)
        rate = rate_of(values["requests"], values["period"])
        # The leader adjusts the price.
        if rate != rate_of(row["requests"], row["period"]):
            now = await present_moment(self._database, self._clock, connection)
            changes["interval_seconds"] = 1 / rate
            changes["next_free"] = _next_free(row["next_free"], row["interval_seconds"], 1 / rate, now)
        statement = update(budgets).where(this).values(**changes, version=budgets.c.version + 1, updated_at=self._now())
        await connection.execute(statement)

    async def _read(self, connection: AsyncConnection, name: str) -> BudgetRow | None:
        row = (await connection.execute(self._rows().where(budgets.c.name == name))).mappings().first()
        return None if row is None else BudgetRow(**row)

    def _rows(self) -> Select[Any]:
        used = {"used_this_hour": self._used(_HOUR), "used_this_week": self._used(_WEEK)}
        return select(
            *(used[name].label(name) if name in used else budgets.c[name] for name in BudgetRow.__struct_fields__)
        )

    def _used(self, time: timedelta) -> ColumnElement[int]:
        """Return the number of requests of the hours that began within the last `time`."""
        found = select(func.coalesce(func.sum(budget_hours.c.requests), 0))
        return found.where(
            budget_hours.c.budget == budgets.c.name, budget_hours.c.hour > self._now(-time)
        ).scalar_subquery()


def _next_free(before: datetime, old: float, new: float, now: datetime) -> datetime:
    """Return when the next request may be made after the seconds between two requests have changed.

    A faster budget need not wait out an old interval, which may be hours, but one of its own after the last request,
    which was made, or will be made, an old interval before `before`.
    """
    last = max(now, before - timedelta(seconds=old))
    return min(before, last + timedelta(seconds=new))


def _check(name: str, requests: float, period: str, max_delay: timedelta | None, fairness: float) -> None:
    if not _NAME.fullmatch(name):
        hint = "use letters, digits and any of - _ . (a letter or digit first, at most 200 characters)"
        raise InvalidInput(f"{name[:80]!r} is not a name of a budget", hint=hint)
    if not LEAST_REQUESTS <= requests <= MOST_REQUESTS:
        hint = f"use a number from {LEAST_REQUESTS:g} to {MOST_REQUESTS:,}"
        raise InvalidInput(f"{requests:g} is not a number of requests", hint=hint)
    if period not in get_args(Period):
        raise InvalidInput(f"{period[:80]!r} is not a period", hint=f"use one of: {', '.join(get_args(Period))}")
    if max_delay is not None and not 0 < max_delay.total_seconds() <= TEN_YEARS:
        raise InvalidInput("max_delay_seconds is out of range", hint="use more than 0 and at most ten years")
    if not 0 <= fairness <= 1 or math.isnan(fairness):
        raise InvalidInput(f"{fairness:g} is not a fairness", hint="use a number from 0 to 1; 0.25 is the default")


def unknown_budget(name: str) -> InvalidInput:
    """Return the error for a budget that does not exist."""
    return InvalidInput(f"there is no budget {name[:80]!r}", hint=_how_to_create(name))


def _how_to_create(name: str) -> str:
    return f"create it: floodmark budgets set {name} --per-minute 30"


def _in_use(name: str, users: list[str]) -> Conflict:
    more = ", ..." if len(users) > _NAMED else ""
    return Conflict(
        f"the budget {name} is used by {', '.join(users[:_NAMED])}{more}",
        hint=f"give these jobs another budget first: floodmark edit {users[0]} --budget NAME",
    )
