"""The source `telegram`: channels, read by the accounts that are stored. Light to import: Telethon comes with a run."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

import structlog
from msgspec.structs import replace

from floodmark.errors import AccountLost, InvalidInput, NotFound, Permanent, SlowDown
from floodmark.extensions.services import Services
from floodmark.model.accounts import AccountRow
from floodmark.model.batch import Batch, Watermark
from floodmark.model.spec import JobSpec
from floodmark.observability.events import BreakersInUse, ModeChosen, RunEnded
from floodmark.rules.starting import FORCED
from floodmark.settings import Settings
from floodmark.sources.port import Context, Target

from .accounts import NO_ACCOUNT
from .choosing import choose
from .modes import ChannelMark, Mode, ReadingPlan, ReadingRules, is_revisit_due, mark_of, plan
from .port import Ports
from .sessions import Session, Sessions, scope_of
from .targets import NAMES, canonical, completed, parse_params

if TYPE_CHECKING:
    from .reading import ChannelReading

HOW_TO_ADD = "Add one: floodmark accounts add NAME --phone +..."

_log = structlog.get_logger()
# So many accounts are named in a message.
_NAMED = 5


class TelegramSource:
    """Collects Telegram channels. Without services it can only check jobs."""

    kind = "telegram"
    one_job_per_target = True

    def __init__(self, settings: Settings, ports: Ports | None = None) -> None:
        self._settings = settings
        self._rules = ReadingRules(
            override=settings.parser_mode_override,
            max_age=timedelta(hours=settings.lpa_max_age_hours),
            is_incremental=settings.feature_incremental_parsing_enabled,
        )
        self._ports: Ports | None = None
        self._sessions: Sessions | None = None
        if ports is not None:
            self._use(ports)

    def use_services(self, services: Services) -> None:
        """Read channels with the accounts in the database of the process."""
        self._use(Ports.of(services))

    def _use(self, ports: Ports) -> None:
        settings = self._settings
        self._ports = ports
        self._sessions = Sessions(
            ports,
            ttl=settings.telegram_session_ttl,
            linger=settings.telegram_session_linger,
            lanes=settings.parser_max_concurrency,
        )

    async def __aenter__(self) -> "TelegramSource":
        if self._ports is None:
            return self
        active = await self._ports.accounts.names()
        self._ports.events.emit(BreakersInUse([scope_of(row.name) for row in active]))
        missing = await what_is_missing(self._ports)
        if missing is not None:
            _log.warning("telegram has no account", reason=missing, hint=HOW_TO_ADD)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sessions is not None:
            await self._sessions.close()

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` can be a channel and `params` make sense."""
        canonical(target)
        parse_params(params)

    def param_names(self, target: str) -> frozenset[str]:
        """What can be said about how a channel is read."""
        return NAMES

    def complete(self, spec: JobSpec) -> JobSpec:
        """A job with its channel in its one form; without a schedule it runs as often as the settings say."""
        return completed(spec, every=timedelta(seconds=self._settings.parser_scheduler_interval_sec))

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Posts of a channel, oldest first, a page at a time."""
        if self._ports is None or self._sessions is None:
            raise InvalidInput("this process can only check channels", hint="Start floodmark up, or a worker")
        collection = _Collection(self._ports, self._sessions, self._rules, target=target, since=since, context=context)
        return collection.batches()


class _Collection:
    """One run: chooses mode and account, reads, and tells how it went."""

    def __init__(
        self,
        ports: Ports,
        sessions: Sessions,
        rules: ReadingRules,
        *,
        target: Target,
        since: Watermark | None,
        context: Context,
    ) -> None:
        self._ports, self._sessions, self._rules = ports, sessions, rules
        self._target, self._context = target, context
        self._mark = mark_of(since)
        try:
            self._name, self._params = canonical(target.name), parse_params(target.params)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        self._began = time.monotonic()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """All that there is to read."""
        if self._params.day is not None and self._mark.complete:
            self._context.result.update(mode="historical", parsed_count=0, requests=0)
            return
        chosen = await self._plan()
        reading: ChannelReading | None = None
        try:
            account = await self._account()
            async with self._sessions.borrow(account.name) as session:
                self._ports.events.emit(ModeChosen(self._target.stream, chosen.mode, chosen.forced))
                reading = self._reading(session, chosen)
                async with aclosing(reading.batches(revisit_from=self._revisit_from())) as batches:
                    async for batch in batches:
                        yield batch
        except SlowDown:
            if reading is not None:
                self._ended(chosen.mode, "waiting", reading)
            raise
        except AccountLost as lost:
            self._ended(chosen.mode, "failed", reading)
            await self._raise_unless_another(lost)
        except Exception:
            self._ended(chosen.mode, "failed", reading)
            raise
        else:
            self._context.result.update(reading.result)
            self._ended(chosen.mode, "done" if reading.parsed else "empty", reading)

    async def _plan(self) -> ReadingPlan:
        checked = await self._ports.memory.checked_at(self._target.stream)
        return plan(self._mark, self._params, self._rules, last_checked_at=checked, now=self._ports.clock.now())

    def _revisit_from(self) -> Any:
        now, run = self._ports.clock.now(), self._mark.run
        if self._params.revisit is None:
            return None
        is_under_way = run is not None and run.phase == "revisit"
        is_asked_for = self._context.trigger == FORCED
        if self._mark.id is None or not (
            is_under_way or is_revisit_due(self._mark, self._params, is_asked_for=is_asked_for, now=now)
        ):
            return None
        return now - self._params.revisit

    def _reading(self, session: Session, chosen: ReadingPlan) -> "ChannelReading":
        from .reading import ChannelReading  # noqa: PLC0415 - Telethon takes a while to import

        mark = self._mark
        if self._params.revisit is not None and mark.id is None and mark.run is None:
            # What is read for the first time is as it is now.
            mark = replace(mark, revisited_at=self._ports.clock.now())
        return ChannelReading(self._ports, session, chosen, mark, self._context, target=self._name)

    async def _account(self) -> AccountRow:
        """Who reads it: whom the job names, else the one that knows the channel, else the one with the least to do."""
        accounts, named = self._ports.accounts, self._target.account
        if named is not None:
            try:
                row = await accounts.show(named)
            except NotFound as error:
                raise AccountLost(named, "there is no such account", hint=error.hint) from error
            if row.state != "active":
                raise AccountLost(named, row.reason or "it is parked", hint=_again(named))
            return row
        rows = await accounts.names(self._context.tenant_id)
        if not rows:
            raise await self._no_account()
        if len(rows) == 1:
            return rows[0]
        number = self._mark.channel or (None if self._name.startswith("@") else int(self._name))
        known = await self._ports.channels.acquaintances(channel_id=number, username=self._name.removeprefix("@"))
        return choose(rows, known, await self._sessions.desks([row.name for row in rows]))

    async def _no_account(self) -> AccountLost:
        parked = await self._ports.accounts.parked(self._context.tenant_id)
        if not parked:
            return AccountLost(NO_ACCOUNT, "no Telegram account is set up", hint=HOW_TO_ADD)
        named = ", ".join(f"{row.name} ({row.reason or 'parked'})" for row in parked[:_NAMED])
        more = f" and {len(parked) - _NAMED} more" if len(parked) > _NAMED else ""
        return AccountLost(NO_ACCOUNT, f"every Telegram account is parked: {named}{more}", hint=_again(parked[0].name))

    async def _raise_unless_another(self, lost: AccountLost) -> None:
        """A job that names no account goes on with another, if there is one."""
        if self._target.account is None and await self._ports.accounts.names(self._context.tenant_id):
            raise SlowDown(timedelta(seconds=1), None, f"{lost}, goes on with another account") from lost
        raise lost

    def _ended(self, mode: Mode, status: str, reading: "ChannelReading | None") -> None:
        mark: ChannelMark = self._mark if reading is None else reading.mark
        # A single day says nothing about how far the channel is collected.
        channel_id = mark.channel if self._params.day is None else None
        self._ports.events.emit(
            RunEnded(
                stream=self._target.stream,
                channel_id=channel_id,
                mode=mode,
                status=status,
                seconds=time.monotonic() - self._began,
                parsed=0 if reading is None else reading.parsed,
            )
        )


def _again(name: str) -> str:
    return f"Log in again: floodmark accounts add {name} --replace"


async def what_is_missing(ports: Ports) -> str | None:
    """Why Telegram jobs cannot run, in one sentence; None if they can, or if there are none."""
    if await ports.accounts.names():
        return None
    count = await ports.memory.count_jobs("telegram")
    if not count:
        return None
    jobs = "1 Telegram job" if count == 1 else f"{count} Telegram jobs"
    return f"{jobs}, but no Telegram account is set up: nothing can be collected"
