"""Which worker should read a channel: the one that has the session of its account open, or else should open it."""

from collections.abc import Collection, Mapping, Sequence

from floodmark.errors import InvalidInput, Permanent
from floodmark.model.accounts import AccountRow
from floodmark.model.execution import Lease
from floodmark.rules.partition import rank_owners

from .account_choice import AccountLoad, choose_account
from .channels import ChannelKnowledge, ChannelReference
from .plans import parse_mark
from .services import TelegramServices
from .sessions import Sessions, scope_of
from .targets import normalise_target, parse_params


class Placement:
    """Predicts the account that a run will choose, and with it the worker."""

    def __init__(self, services: TelegramServices, sessions: Sessions) -> None:
        self._services, self._sessions = services, sessions

    async def workers_of(self, leases: Sequence[Lease]) -> list[str | None]:
        """Return the preferred worker of each run; None if there is no account for it."""
        rows = {row.name: row for row in await self._services.accounts.active()}
        unnamed = [lease for lease in leases if lease.job.account is None and not _is_preview(lease)]
        predicted = await self._predict(unnamed, rows)
        named = {lease.execution_id: lease.job.account for lease in leases if not _is_preview(lease)}
        accounts = [
            rows.get(named.get(lease.execution_id) or predicted.get(lease.execution_id, "")) for lease in leases
        ]
        return [None if row is None else self._worker_of(row) for row in accounts]

    def _worker_of(self, row: AccountRow) -> str:
        """Return the worker that has the session open; if none has, the one that should open it."""
        partition = self._services.partition
        if row.holder is not None and row.holder in partition.workers:
            return row.holder
        return partition.owner_of(scope_of(row.name))

    async def _predict(self, leases: Sequence[Lease], rows: Mapping[str, AccountRow]) -> dict[str, str]:
        """Return the accounts of runs that name none, by execution."""
        if not leases or len(rows) < 2:
            return {lease.execution_id: name for lease in leases for name in rows}
        references = {lease.execution_id: refer_to_channel(lease) for lease in leases}
        readers = await self._services.channels.readers([r for r in references.values() if r is not None])
        counts = await self._services.channels.counts()
        waiting = (await self._sessions.load(rows)).waiting
        predicted = dict[str, str]()
        for lease in leases:
            reference = references[lease.execution_id]
            usable = {name for name, row in rows.items() if _may_use(row, lease.job.tenant_id)}
            if reference is None or not usable:
                continue
            if knowing := usable.intersection(readers.get(reference, ())):
                name = _choose_reader([rows[name] for name in knowing], waiting)
            else:
                name = _choose_newcomer(reference, usable - waiting or usable, counts)
                counts[name] += 1
            predicted[lease.execution_id] = name
        return predicted


def _is_preview(lease: Lease) -> bool:
    """Return whether a run uses no account."""
    try:
        return parse_params(lease.job.params).preview
    except InvalidInput:
        return False


def refer_to_channel(lease: Lease) -> ChannelReference | None:
    """Return the channel of a run; None if its job is not valid."""
    try:
        name, pinned = normalise_target(lease.job.target), parse_mark(lease.watermark).channel
    except (InvalidInput, Permanent):
        return None
    return pinned or (name.removeprefix("@").lower() if name.startswith("@") else int(name))


def _choose_reader(rows: Sequence[AccountRow], waiting: frozenset[str]) -> str:
    """Return the account that a run chooses among those that know its channel, wherever their sessions are open."""
    known = {row.name: ChannelKnowledge(channels=0, is_known=True) for row in rows}
    return choose_account(rows, known, AccountLoad(holder=None, waiting=waiting)).name


def _choose_newcomer(channel: ChannelReference, accounts: Collection[str], counts: Mapping[str, int]) -> str:
    """Return an account for a new channel: of two that its name draws, the one that knows fewer channels.

    The one that knows fewest of all would be the same for all channels that are added at once.
    """
    return min(rank_owners(str(channel), accounts)[:2], key=lambda name: counts[name])


def _may_use(row: AccountRow, tenant_id: str | None) -> bool:
    return tenant_id is None or row.tenant_id in (None, tenant_id)
