"""The source `telegram` reads channels with the stored accounts. A run imports Telethon, the module does not."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

import structlog
from msgspec.structs import replace

from floodmark.coordination.service import Service
from floodmark.coordination.signals.port import Bell
from floodmark.errors import AccountLost, InvalidInput, NotFound, Permanent, SlowDown
from floodmark.extensions.services import Services
from floodmark.model.accounts import AccountRow
from floodmark.model.batch import Batch, Watermark
from floodmark.model.completeness import GapKind
from floodmark.model.durations import parse_times
from floodmark.model.execution import Lease
from floodmark.model.spec import JobSpec
from floodmark.observability.events import BreakersInUse, ModeChosen, RunEnded
from floodmark.rules.starting import FORCED
from floodmark.settings import Settings
from floodmark.sources.port import Context, Target

from .account_choice import choose_account
from .accounts import NO_ACCOUNT
from .downloads import LazyFetcher
from .hints import HOW_TO_ADD, relogin_hint
from .placement import Placement
from .plans import Mode, ReadingPlan, ReadingRules, is_revisit_due, may_revisit_changes, parse_mark, plan_reading
from .preview.reading import PreviewReading
from .services import TelegramServices
from .sessions import Session, Sessions, scope_of
from .targets import (
    NAMES,
    complete_job,
    default_schedule,
    is_basic_group,
    normalise_target,
    parse_params,
    require_account,
    require_name,
)

if TYPE_CHECKING:
    from .reading import ChannelReading

_log = structlog.get_logger()
_LOOK_FOR_MEDIA = timedelta(seconds=5)
# The number of accounts that a message names.
_NAMED = 5


class TelegramSource:
    """Collects Telegram channels. Without services it can only check jobs."""

    kind = "telegram"
    fills: frozenset[GapKind] = frozenset({"unread", "unseen"})
    one_job_per_target = True

    def __init__(self, settings: Settings, services: TelegramServices | None = None) -> None:
        self._settings = settings
        self._rules = ReadingRules(
            override=settings.parser_mode_override,
            max_age=timedelta(hours=settings.lpa_max_age_hours),
            is_incremental=settings.feature_incremental_parsing_enabled,
            engagement=settings.telegram_engagement,
        )
        self._media_bell = Bell()
        self._services: TelegramServices | None = None
        self._sessions: Sessions | None = None
        if services is not None:
            self._use(services)

    def use_services(self, services: Services) -> None:
        """Read channels with the accounts in the database of the process."""
        self._use(TelegramServices.of(services))

    def _use(self, services: TelegramServices) -> None:
        settings = self._settings
        self._services = services
        self._sessions = Sessions(
            services,
            ttl=settings.telegram_session_ttl,
            linger=settings.telegram_session_linger,
            max_runs=settings.parser_max_concurrency,
        )

    async def __aenter__(self) -> "TelegramSource":
        if self._services is None:
            return self
        active = await self._services.accounts.active()
        self._services.events.emit(BreakersInUse([scope_of(row.name) for row in active]))
        missing = await explain_missing_account(self._services)
        if missing is not None:
            _log.warning("telegram has no account", reason=missing, hint=HOW_TO_ADD)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sessions is not None and self._services is not None:
            await self._sessions.close()
            await self._services.updates.close()

    def services(self) -> Sequence[Service]:
        """Return the download of files, if there is a folder for them."""
        folder = self._settings.artifacts_dir
        if folder is None or self._services is None or self._sessions is None:
            return ()
        media = LazyFetcher(self._services, self._sessions, folder, per_minute=self._settings.telegram_media_per_minute)
        return (Service("telegram media", media.step, _LOOK_FOR_MEDIA, self._media_bell),)

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` can be a channel and `params` are valid."""
        name = normalise_target(target)
        if parse_params(params).preview:
            require_name(name)

    def param_names(self, target: str) -> frozenset[str]:
        """Return the names of the params."""
        return NAMES

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the job with its channel in canonical form, and with the schedule of the settings if it has none."""
        return complete_job(spec, default=default_schedule(self._settings))

    async def preferred_workers(self, leases: Sequence[Lease]) -> Sequence[str | None]:
        """Return the workers that have, or should have, the sessions of the accounts that will be used."""
        if self._services is None or self._sessions is None:
            return [None] * len(leases)
        return await Placement(self._services, self._sessions).workers_of(leases)

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Yield the posts of a channel, oldest first, page by page."""
        if self._services is None or self._sessions is None:
            raise InvalidInput("this process can only check channels", hint="Start floodmark up, or a worker")
        collection = _Collection(
            self._services, self._sessions, self._rules, target=target, since=since, context=context
        )
        return self._ring_after(collection)

    async def _ring_after(self, collection: "_Collection") -> AsyncGenerator[Batch, None]:
        """Yield the batches of a run; files that it has found are downloaded soon."""
        async with aclosing(collection.batches()) as batches:
            async for batch in batches:
                yield batch
                if batch.files:
                    self._media_bell.ring()


class _Collection:
    """One run: chooses mode and account, reads the channel, and reports the result."""

    def __init__(
        self,
        services: TelegramServices,
        sessions: Sessions,
        rules: ReadingRules,
        *,
        target: Target,
        since: Watermark | None,
        context: Context,
    ) -> None:
        self._services, self._sessions, self._rules = services, sessions, rules
        self._target, self._context = target, context
        self._mark = parse_mark(since)
        try:
            self._name, self._params = normalise_target(target.name), parse_params(target.params)
            require_account(self._name, target.account)
            if self._params.preview:
                require_name(self._name)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        self._began = time.monotonic()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield the batches of the run."""
        if self._params.day is not None and self._mark.complete and not self._context.gaps:
            self._context.result.update(mode="historical", parsed_count=0, requests=0)
            return
        chosen = await self._plan()
        reading: ChannelReading | PreviewReading | None = None
        try:
            async with self._open_reading(chosen) as reading, aclosing(self._read(reading)) as batches:
                self._services.events.emit(ModeChosen(self._target.stream, chosen.mode, chosen.forced))
                async for batch in batches:
                    yield batch
        except SlowDown:
            if reading is not None:
                self._report_end(chosen.mode, "waiting", reading)
            raise
        except AccountLost as lost:
            self._report_end(chosen.mode, "failed", reading)
            if self._target.account is not None or not await self._active_accounts():
                raise
            raise SlowDown(timedelta(seconds=1), None, f"{lost}, continues with another account") from lost
        except Exception:
            self._report_end(chosen.mode, "failed", reading)
            raise
        else:
            self._context.result.update(reading.result)
            self._report_end(chosen.mode, "done" if reading.parsed else "empty", reading)

    @asynccontextmanager
    async def _open_reading(self, chosen: ReadingPlan) -> "AsyncGenerator[ChannelReading | PreviewReading, None]":
        if self._params.preview:
            yield PreviewReading(self._services, chosen, self._mark, self._context, target=self._name)
            return
        account = await self._choose_account()
        async with self._sessions.borrow(account.name) as session:
            yield self._reading(session, chosen)

    def _read(self, reading: "ChannelReading | PreviewReading") -> AsyncGenerator[Batch, None]:
        if isinstance(reading, PreviewReading):
            return reading.batches()
        return reading.batches(revisit_from=self._revisit_from(), changes_from=self._changes_from())

    async def _plan(self) -> ReadingPlan:
        checked, now = await self._services.collected.last_checked_at(self._target.stream), self._services.clock.now()
        return plan_reading(self._mark, self._params, self._rules, last_checked_at=checked, now=now)

    def _revisit_from(self) -> datetime | None:
        now, run = self._services.clock.now(), self._mark.run
        if self._params.revisit is None or self._mark.id is None:
            return None
        is_unfinished = run is not None and run.phase == "revisit"
        is_forced = self._context.trigger == FORCED
        if is_unfinished or is_revisit_due(self._mark, self._params, is_forced=is_forced, now=now):
            return now - self._params.revisit
        return None

    def _changes_from(self) -> datetime | None:
        now = self._services.clock.now()
        if self._params.revisit is None or not may_revisit_changes(self._mark, self._params, now=now):
            return None
        return now - self._params.revisit

    def _reading(self, session: Session, chosen: ReadingPlan) -> "ChannelReading":
        from .reading import ChannelReading  # noqa: PLC0415 - Telethon takes a while to import

        mark = self._mark
        if is_basic_group(self._name):
            mark = replace(mark, account=_require_same_account(mark.account, session.account.name))
        if self._params.revisit is not None and mark.id is None and mark.run is None:
            # Posts that are read for the first time are in their current state.
            mark = replace(mark, revisited_at=self._services.clock.now())
        return ChannelReading(
            self._services,
            session,
            chosen,
            mark,
            self._context,
            target=self._name,
            params=self._params,
            points=self._params.engagement or parse_times(self._rules.engagement),
        )

    async def _choose_account(self) -> AccountRow:
        """Return the account of the job, else one that knows the channel, else the least busy one."""
        accounts, named = self._services.accounts, self._target.account
        if named is not None:
            try:
                row = await accounts.show(named)
            except NotFound as error:
                raise AccountLost(named, "there is no such account", hint=error.hint) from error
            if row.state != "active":
                raise AccountLost(named, row.reason or "it is parked", hint=relogin_hint(named))
            return row
        rows = await self._active_accounts()
        if not rows:
            raise await self._no_account()
        if len(rows) == 1:
            return rows[0]
        number = self._mark.channel or (None if self._name.startswith("@") else int(self._name))
        known = await self._services.channels.knowledge(channel_id=number, username=self._name.removeprefix("@"))
        return choose_account(rows, known, await self._sessions.load([row.name for row in rows]))

    async def _active_accounts(self) -> Sequence[AccountRow]:
        return await self._services.accounts.active(self._context.tenant_id)

    async def _no_account(self) -> AccountLost:
        parked = await self._services.accounts.parked(self._context.tenant_id)
        if not parked:
            return AccountLost(NO_ACCOUNT, "no Telegram account is set up", hint=HOW_TO_ADD)
        named = ", ".join(f"{row.name} ({row.reason or 'parked'})" for row in parked[:_NAMED])
        more = f" and {len(parked) - _NAMED} more" if len(parked) > _NAMED else ""
        hint = relogin_hint(parked[0].name)
        return AccountLost(NO_ACCOUNT, f"every Telegram account is parked: {named}{more}", hint=hint)

    def _report_end(self, mode: Mode, status: str, reading: "ChannelReading | PreviewReading | None") -> None:
        mark = self._mark if reading is None else reading.mark
        # A job of a single day does not show how far the channel is collected.
        channel_id = mark.channel if self._params.day is None else None
        self._services.events.emit(
            RunEnded(
                stream=self._target.stream,
                channel_id=channel_id,
                mode=mode,
                status=status,
                seconds=time.monotonic() - self._began,
                parsed=0 if reading is None else reading.parsed,
            )
        )


def _require_same_account(before: str | None, account: str) -> str:
    """Refuse to continue a basic group with another account, for which its messages have other numbers."""
    if before not in (None, account):
        raise Permanent(
            f"this basic group was collected with account {before}, which numbers its messages differently",
            hint=f"Set the account of the job to {before} again; or add the group as a new job with its own --stream",
        )
    return account


async def explain_missing_account(services: TelegramServices) -> str | None:
    """Return why Telegram jobs cannot run, in one sentence; None if they can, or if there are none."""
    if await services.accounts.active():
        return None
    count = await services.collected.count_jobs("telegram", without_param="preview")
    if not count:
        return None
    jobs = "1 Telegram job" if count == 1 else f"{count} Telegram jobs"
    return f"{jobs}, but no Telegram account is set up: nothing can be collected"
