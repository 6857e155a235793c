"""External triggers. Tables: `triggers`; of `jobs` the columns trigger_webhook and trigger_channel.

`triggers.jobs` holds ids, so that a job can be renamed; names typed by hand work as well. The secret is encrypted, with
the id of its trigger as the label.
"""

import re
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct, field
from sqlalchemy import Column, ColumnElement, delete, func, or_, select, update

from floodmark.errors import Conflict, InvalidInput, NotFound, Unavailable
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.external_triggers import LONGEST_DEBOUNCE, SHORTEST_SECRET, Kind, NewTrigger, TriggerRow, the_only
from floodmark.model.ids import new_id
from floodmark.repositories.name_search import find_jobs
from floodmark.security.vault import Vault
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database, PostgresDatabase, SqliteDatabase, encode_json
from floodmark.store.dialects import chunks, insert_into, present
from floodmark.store.postgres_connection import Connection
from floodmark.store.rows import decode_json
from floodmark.store.tables import IS_OPEN_CHANNEL, IS_OPEN_PATH, facts, jobs
from floodmark.triggers.matching import LONGEST, check_params, path_pattern

from .tables import triggers

MOST_SHOWN = 500
# The facts with the counts of deliveries without a job and of unreadable messages.
UNMATCHED, UNREADABLE = "triggers.unmatched", "triggers.unreadable"

_MOST_JOBS = 1000
_ID = re.compile(r"[0-9a-f]{8,32}", re.ASCII)
# The enabled triggers of a kind, then the patterns that jobs name themselves, without an id.
_RULES = """
SELECT * FROM (SELECT trigger_id, pattern, jobs, params, secret, debounce_seconds FROM triggers
                WHERE kind = '{kind}' AND enabled ORDER BY trigger_id) registered
 UNION ALL SELECT NULL, of_jobs.pattern, NULL, NULL, NULL, NULL FROM ({patterns}) of_jobs
"""
_NO_PATTERNS = "SELECT '' AS pattern WHERE FALSE"
_ALL_PATTERNS = "SELECT DISTINCT {column} AS pattern FROM jobs WHERE {column} IS NOT NULL ORDER BY {column}"
# Only those that may match: equal to a subject, or more than a literal.
_MAY_MATCH = """
SELECT {column} AS pattern FROM jobs WHERE {column} {{given}}
 UNION SELECT {column} FROM jobs WHERE {is_open}
 ORDER BY 1
"""
_POSTGRES_GIVEN, _SQLITE_GIVEN = "= ANY ($1::text[])", "IN (SELECT value FROM json_each(?))"
_NAMED_BY_JOBS = (
    ("webhook", "trigger_webhook", IS_OPEN_PATH),
    ("channel", "trigger_channel", IS_OPEN_CHANNEL),
)
_PATTERNS: Mapping[tuple[str, bool], str] = {
    (kind, is_narrow): (_MAY_MATCH if is_narrow else _ALL_PATTERNS).format(
        # Formatted once more with what is given.
        column=column,
        is_open=is_open.replace("{", "{{"),
    )
    for kind, column, is_open in _NAMED_BY_JOBS
    for is_narrow in (False, True)
}
_COLUMN_OF: Mapping[str, Column[Any]] = {"webhook": jobs.c.trigger_webhook, "channel": jobs.c.trigger_channel}


class DeliveryCount(Struct):
    """A count, and the last counted delivery."""

    count: int = 0
    last: str | None = None

    def add(self, last: str, count: int = 1) -> None:
        """Count deliveries."""
        self.count, self.last = self.count + count, last


class Tally(Struct):
    """Counts of refused deliveries since the last write. `refusals`: by trigger id and reason, the newest last."""

    refusals: dict[str, dict[str, int]] = field(default_factory=dict)
    unmatched: DeliveryCount = field(default_factory=DeliveryCount)
    unreadable: DeliveryCount = field(default_factory=DeliveryCount)

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return not (self.refusals or self.unmatched.count or self.unreadable.count)

    def refuse(self, trigger_id: str, reason: str, count: int = 1) -> None:
        """Count refusals by one trigger."""
        reasons = self.refusals.setdefault(trigger_id, {})
        reasons[reason] = reasons.pop(reason, 0) + count

    def merge(self, later: "Tally") -> None:
        """Add later counts."""
        for trigger_id, reasons in later.refusals.items():
            for reason, count in reasons.items():
                self.refuse(trigger_id, reason, count)
        for mine, theirs in ((self.unmatched, later.unmatched), (self.unreadable, later.unreadable)):
            if theirs.last is not None:
                mine.add(theirs.last, theirs.count)


class Rule(Struct, frozen=True, kw_only=True):
    """An enabled trigger. `jobs` are ids or names; `sealed` is its encrypted secret."""

    trigger_id: str
    pattern: str
    jobs: tuple[str, ...]
    params: Mapping[str, str]
    sealed: str | None
    debounce: timedelta


class TriggerRules(Struct, frozen=True, kw_only=True):
    """All enabled triggers of one kind. `of_jobs`: patterns that jobs name themselves."""

    registered: Sequence[Rule]
    of_jobs: Sequence[str]


def new_secret() -> str:
    """Return a random secret without characters that a shell treats specially."""
    return secrets.token_hex(32)


class Triggers:
    """The repository of triggers and of their counts."""

    def __init__(self, database: Database, clock: Clock, vault: Vault) -> None:
        self._database, self._clock, self._vault = database, clock, vault

    async def add(self, new: NewTrigger, *, replace: bool = False) -> TriggerRow:
        """Create a trigger; `Conflict` if the pattern exists.

        With `replace` the existing one is changed; it keeps its counts, and its secret unless a new one is given.
        """
        pattern = check_trigger(new)
        async with self._database.writing() as connection:
            mine = (triggers.c.kind == new.kind) & (triggers.c.pattern == pattern)
            query = select(triggers.c.trigger_id).where(mine).with_for_update()
            there = (await connection.execute(query)).scalar()
            if there is not None and not replace:
                raise _refuse_taken(new.kind, pattern)
            trigger_id = there or new_id()
            values = await self._values(connection, new, trigger_id)
            if there is None:
                await self._insert(connection, {**values, "kind": new.kind, "pattern": pattern}, trigger_id)
            else:
                await connection.execute(update(triggers).where(mine).values(**values))
            [row] = await self._rows(connection, triggers.c.trigger_id == trigger_id)
            return row

    async def get(self, text: str, kind: Kind | None = None) -> TriggerRow:
        """Return the trigger with this pattern or id; the beginning of an id is enough."""
        typed = text.strip()
        which = triggers.c.pattern == typed
        if _ID.fullmatch(typed):
            which = or_(which, triggers.c.trigger_id.startswith(typed, autoescape=True))
        where = [which] if kind is None else [which, triggers.c.kind == kind]
        async with self._database.reading() as connection:
            found = await self._rows(connection, *where)
        return the_only(found, typed)

    async def remove(self, trigger_id: str) -> None:
        """Delete a trigger. Its executions stay."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(triggers).where(triggers.c.trigger_id == trigger_id))
            if not gone.rowcount:
                raise NotFound("the trigger was already removed", hint="list the others with: floodmark triggers ls")

    async def page(self, kind: Kind | None = None, *, after: str | None = None, limit: int = 100) -> list[TriggerRow]:
        """Return triggers, the oldest first, at most 500. The next page is `after` the id of the last one."""
        where: list[ColumnElement[bool]] = [] if kind is None else [triggers.c.kind == kind]
        if after is not None:
            where.append(triggers.c.trigger_id > after)
        async with self._database.reading() as connection:
            return await self._rows(connection, *where, limit=max(1, min(limit, MOST_SHOWN)))

    async def rules(self, kind: Kind, subjects: Sequence[str] | None = None) -> TriggerRules:
        """Return the enabled triggers of a kind, and the patterns that jobs name themselves.

        With `subjects`, only those patterns of jobs that may match one of them.
        """
        rows = await self._read_rules(kind, subjects)
        registered = [
            Rule(
                trigger_id=trigger_id,
                pattern=pattern,
                jobs=tuple(map(str, decode_json(jobs))),
                params=decode_json(params),
                sealed=secret,
                debounce=timedelta(seconds=debounce),
            )
            for trigger_id, pattern, jobs, params, secret, debounce in rows
            if trigger_id is not None
        ]
        return TriggerRules(registered=registered, of_jobs=[row[1] for row in rows if row[0] is None])

    async def _read_rules(self, kind: Kind, subjects: Sequence[str] | None) -> Sequence[Any]:
        """Read them with one statement and without SQLAlchemy, because every webhook and message needs them."""
        patterns, database = _PATTERNS.get((kind, subjects is not None)), self._database
        given = None if subjects is None or patterns is None else list(subjects)
        if isinstance(database, PostgresDatabase):
            statement = _read_statement(kind, patterns, _POSTGRES_GIVEN)

            async def work(connection: Connection) -> Sequence[Any]:
                return await connection.fetch(statement, *(() if given is None else (given,)))

            return await database.hot("rules", work)
        assert isinstance(database, SqliteDatabase)

        def read(connection: sqlite3.Connection) -> Sequence[Any]:
            statement = _read_statement(kind, patterns, _SQLITE_GIVEN)
            return connection.execute(statement, () if given is None else (encode_json(given),)).fetchall()

        return await database.hot_read(read)

    async def count_jobs(self, kind: Kind, limit: int = MOST_SHOWN) -> dict[str, int]:
        """Return the patterns that jobs name themselves, each with the number of its jobs."""
        column = _COLUMN_OF.get(kind)
        if column is None:
            return {}
        query = select(column, func.count()).where(column.is_not(None)).group_by(column).order_by(column).limit(limit)
        async with self._database.reading() as connection:
            return {str(pattern): int(count) for pattern, count in await connection.execute(query)}

    async def add_tally(self, tally: Tally) -> None:
        """Add to the counts of refused deliveries."""
        async with self._database.writing() as connection:
            await self._add_refusals(connection, tally.refusals)
            for name, counted in ((UNMATCHED, tally.unmatched), (UNREADABLE, tally.unreadable)):
                if counted.last is not None:
                    await self._add_to_fact(connection, name, counted)

    async def _add_refusals(self, connection: AsyncConnection, refusals: Mapping[str, Mapping[str, int]]) -> None:
        cell = triggers.c
        for some in chunks(sorted(refusals)):
            query = select(cell.trigger_id, cell.refusals).where(cell.trigger_id.in_(some))
            rows = (await connection.execute(query.order_by(cell.trigger_id).with_for_update())).all()
            for trigger_id, before in rows:
                added = refusals[trigger_id]
                values = {
                    "refused": cell.refused + sum(added.values()),
                    "refusals": before | {reason: before.get(reason, 0) + count for reason, count in added.items()},
                    "last_refusal": list(added)[-1],
                    "last_refused_at": present(self._database, self._clock),
                }
                await connection.execute(update(triggers).where(cell.trigger_id == trigger_id).values(**values))

    async def _add_to_fact(self, connection: AsyncConnection, name: str, counted: DeliveryCount) -> None:
        now = present(self._database, self._clock)
        query = select(facts.c.value).where(facts.c.name == name).with_for_update()
        before = (await connection.execute(query)).scalar() or {"count": 0}
        value = {"count": before["count"] + counted.count, "last": clean(counted.last)}
        statement = insert_into(self._database, facts).values(name=name, value=value, updated_at=now)
        changes = {"value": value, "updated_at": now}
        await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=changes))

    def secret(self, rule: Rule) -> str:
        """Return the secret of a trigger that has one."""
        assert rule.sealed is not None
        try:
            return self._vault.open(rule.sealed, label=secret_label(rule.trigger_id))
        except Conflict as error:
            # A fault of the installation, not of the webhook.
            raise Unavailable(
                f"the secret of the trigger {rule.pattern} cannot be decrypted: {error}",
                hint="give every process the FLOODMARK_SECRET_KEY it was encrypted with, or set a new secret: "
                f"floodmark triggers add webhook '{rule.pattern}' --signed --replace",
            ) from error

    async def _values(self, connection: AsyncConnection, new: NewTrigger, trigger_id: str) -> dict[str, Any]:
        values = {
            "jobs": await find_jobs(connection, new.jobs),
            "params": clean(dict(new.params)),
            "debounce_seconds": new.debounce.total_seconds(),
            "enabled": new.enabled,
            "updated_at": present(self._database, self._clock),
        }
        if new.secret is not None:
            values["secret"] = self._vault.seal(new.secret, label=secret_label(trigger_id))
        return values

    async def _insert(self, connection: AsyncConnection, values: Mapping[str, Any], trigger_id: str) -> None:
        now = present(self._database, self._clock)
        statement = insert_into(self._database, triggers).values(trigger_id=trigger_id, created_at=now, **values)
        statement = statement.on_conflict_do_nothing(index_elements=["kind", "pattern"])
        if (await connection.execute(statement.returning(triggers.c.trigger_id))).scalar() is None:
            raise _refuse_taken(values["kind"], values["pattern"])

    async def _rows(
        self, connection: AsyncConnection, *where: ColumnElement[bool], limit: int = MOST_SHOWN
    ) -> list[TriggerRow]:
        query = select(triggers).where(*where).order_by(triggers.c.trigger_id).limit(limit)
        found = (await connection.execute(query)).mappings().all()
        texts = [str(text) for row in found for text in row["jobs"]]
        names = {text: name for text, (_, name) in (await _find_named(connection, texts)).items()}
        return [_row(dict(row), names) for row in found]


def check_trigger(new: NewTrigger) -> str:
    """Return the pattern of a trigger as it is stored; `InvalidInput` if the trigger is invalid."""
    check_params(new.params)
    if len(new.jobs) > _MOST_JOBS:
        hint = f"set the pattern as trigger_{new.kind} of the other jobs"
        raise InvalidInput(f"a trigger lists at most {_MOST_JOBS} jobs", hint=hint)
    if not timedelta() <= new.debounce <= LONGEST_DEBOUNCE:
        raise InvalidInput(f"a debounce of {new.debounce} is too long", hint="use 0 to 1h, for example 10s")
    if new.secret is not None:
        _check_secret(new.kind, new.secret)
    if new.kind == "webhook":
        return path_pattern(new.pattern.strip()).text
    pattern = new.pattern
    if not pattern or len(pattern) > LONGEST or not pattern.isprintable() or pattern != pattern.strip():
        example = "content:new or content:*" if new.kind == "channel" else "orders"
        raise InvalidInput(f"{pattern[:60]!r} is not the name of a {new.kind}", hint=f"for example {example}")
    return pattern


def _check_secret(kind: str, secret: str) -> None:
    if kind != "webhook":
        raise InvalidInput(f"a {kind} has no secret", hint="guard your Redis with a password instead")
    if len(secret) < SHORTEST_SECRET:
        hint = "generate one with --signed, or in the API with signed: true"
        raise InvalidInput(f"a secret needs at least {SHORTEST_SECRET} characters", hint=hint)


def _read_statement(kind: Kind, patterns: str | None, given: str) -> str:
    return _RULES.format(kind=kind, patterns=_NO_PATTERNS if patterns is None else patterns.format(given=given))


async def _find_named(connection: AsyncConnection, texts: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the id and name of each job that one of the texts names."""
    found: dict[str, tuple[str, str]] = {}
    wanted = list(dict.fromkeys(texts))
    for some in chunks(wanted):
        query = select(jobs.c.job_id, jobs.c.name).where(or_(jobs.c.job_id.in_(some), jobs.c.name.in_(some)))
        for job_id, name in await connection.execute(query):
            found |= dict.fromkeys((job_id, name), (job_id, name))
    return {text: found[text] for text in wanted if text in found}


def _row(row: Mapping[str, Any], names: Mapping[str, str]) -> TriggerRow:
    known = {name: row[name] for name in TriggerRow.__struct_fields__ if name in row}
    listed = tuple(names.get(str(text), str(text)) for text in row["jobs"])
    return TriggerRow(**{**known, "jobs": listed, "signed": row["secret"] is not None})


def secret_label(trigger_id: str) -> str:
    """Return the label with which the secret of a trigger is encrypted."""
    return f"trigger:{trigger_id}"


def _refuse_taken(kind: str, pattern: str) -> Conflict:
    return Conflict(
        f"there is already a {kind} trigger {pattern!r}",
        hint="change it with --replace (in the API replace: true), or remove it: floodmark triggers rm",
    )
