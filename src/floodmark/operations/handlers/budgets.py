"""Handlers of budgets."""

from datetime import timedelta
from typing import Any

from floodmark.coordination.signals.port import Topic
from floodmark.model.budget import DEFAULT_FAIRNESS, BudgetRow, Period
from floodmark.model.page import Page, last_key, page_of
from floodmark.operations.budgets import BudgetOperations

from .base import Handlers

_SETTABLE = ("requests", "period", "max_delay_seconds", "fairness")


class BudgetHandlers(BudgetOperations, Handlers):
    """Budgets in the store."""

    async def budgets(self, *, cursor: str | None = None, limit: int = 50) -> Page[BudgetRow]:
        rows = await self.store.budgets.page(after=last_key("budgets", cursor, str), limit=limit + 1)
        return page_of(rows, limit, "budgets", lambda row: [row.name])

    async def budget(self, name: str) -> BudgetRow:
        return await self.store.budgets.show(name)

    async def set_budget(
        self,
        name: str,
        requests: float,
        period: Period = "minute",
        *,
        max_delay: timedelta | None = None,
        fairness: float = DEFAULT_FAIRNESS,
    ) -> BudgetRow:
        async with self.transaction(Topic.JOBS):
            before = await self.store.budgets.find(name)
            after = await self.store.budgets.put(
                name, requests=requests, period=period, max_delay=max_delay, fairness=fairness
            )
            was, now = None if before is None else _values(before), _values(after)
            if was != now:
                await self.record("budget.set", f"budget:{name}", before=was, after=now)
        return after

    async def remove_budget(self, name: str) -> BudgetRow:
        async with self.transaction(Topic.JOBS):
            before = await self.store.budgets.remove(name)
            await self.record("budget.removed", f"budget:{name}", before=_values(before))
        return before


def _values(row: BudgetRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _SETTABLE}
