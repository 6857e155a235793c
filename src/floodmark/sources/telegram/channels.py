"""The channels that accounts know: ids, access hashes, names. Table: `telegram_channels`.

Looking up names is what causes flood waits, so each name is looked up once. An access hash is valid only for the
account that got it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, case, delete, func, or_, select, update

from floodmark.model.clock import Clock
from floodmark.store.database import Database
from floodmark.store.dialects import chunks, insert_into, present

from .tables import telegram_channels

_CELL = telegram_channels.c

# A channel by its id or, as long as that is unknown, by its name in lower case.
ChannelReference = int | str


class KnownChannel(Struct, frozen=True, kw_only=True):
    """A channel as one account knows it. The number of a basic group is negative, and it has no access hash."""

    account: str
    channel_id: int
    access_hash: int
    username: str | None = None
    title: str | None = None


class ChannelKnowledge(Struct, frozen=True, kw_only=True):
    """The number of channels that an account knows, and whether a certain channel is among them."""

    channels: int
    is_known: bool


_SELECT = select(*(_CELL[name] for name in KnownChannel.__struct_fields__))


class Channels:
    """Stores the channels that accounts know."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def find(
        self, account: str, *, channel_id: int | None = None, username: str | None = None
    ) -> KnownChannel | None:
        """Return a channel as an account knows it, by id or else by its last name; None if it is unknown."""
        is_it = _matches(channel_id, username)
        query = _SELECT.where(_CELL.account == account, is_it).order_by(_CELL.updated_at.desc()).limit(1)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else KnownChannel(**row)

    async def knowledge(
        self, *, channel_id: int | None = None, username: str | None = None
    ) -> dict[str, ChannelKnowledge]:
        """Return, for each account that knows any channel, how many it knows and whether it knows this one."""
        is_it = func.max(case((_matches(channel_id, username), 1), else_=0))
        query = select(_CELL.account, func.count(), is_it).group_by(_CELL.account)
        async with self._database.reading() as connection:
            rows = await connection.execute(query)
            return {name: ChannelKnowledge(channels=count, is_known=bool(known)) for name, count, known in rows}

    async def readers(self, channels: Collection[ChannelReference]) -> Mapping[ChannelReference, Collection[str]]:
        """Return the accounts that know each of these channels."""
        name = func.lower(_CELL.username)
        is_one = or_(
            _CELL.channel_id.in_([channel for channel in channels if isinstance(channel, int)]),
            name.in_([channel for channel in channels if isinstance(channel, str)]),
        )
        async with self._database.reading() as connection:
            rows = await connection.execute(select(_CELL.account, _CELL.channel_id, name).where(is_one))
            found = defaultdict[ChannelReference, set[str]](set)
            for account, *references in rows:
                for reference in references:
                    found[reference].add(account)
        return found

    async def counts(self) -> Counter[str]:
        """Return the number of channels that each account knows."""
        query = select(_CELL.account, func.count()).group_by(_CELL.account)
        async with self._database.reading() as connection:
            return Counter({row[0]: row[1] for row in await connection.execute(query)})

    async def last_name(self, channel_id: int) -> str | None:
        """Return the name under which any account last saw a channel, including lost and removed accounts."""
        query = select(_CELL.username).where(_CELL.channel_id == channel_id, _CELL.username.is_not(None))
        async with self._database.reading() as connection:
            return (await connection.execute(query.order_by(_CELL.updated_at.desc()).limit(1))).scalar()

    async def names(self, channel_ids: Sequence[int]) -> dict[int, set[str]]:
        """Return the names under which accounts last saw these channels."""
        found = defaultdict[int, set[str]](set)
        async with self._database.reading() as connection:
            for some in chunks(channel_ids):
                query = select(_CELL.channel_id, _CELL.username).where(
                    _CELL.channel_id.in_(some), _CELL.username.is_not(None)
                )
                for channel_id, username in await connection.execute(query):
                    found[channel_id].add(username)
        return found

    async def store(self, channel: KnownChannel) -> None:
        """Store a channel. A name belongs to one channel: it is removed from the channel that had it before."""
        values = {
            "access_hash": channel.access_hash,
            "username": channel.username,
            "title": channel.title,
            "updated_at": present(self._database, self._clock),
        }
        statement = insert_into(self._database, telegram_channels).values(
            account=channel.account, channel_id=channel.channel_id, **values
        )
        statement = statement.on_conflict_do_update(index_elements=["account", "channel_id"], set_=values)
        async with self._database.writing() as connection:
            if channel.username is not None:
                others = update(telegram_channels).where(
                    _CELL.account == channel.account,
                    _CELL.channel_id != channel.channel_id,
                    _matches(None, channel.username),
                )
                await connection.execute(others.values(username=None))
            await connection.execute(statement)

    async def store_all(self, account: str, channels: Sequence[KnownChannel]) -> None:
        """Store the channels of one account, in one transaction."""
        now = present(self._database, self._clock)
        statement = insert_into(self._database, telegram_channels).values(updated_at=now)
        newer = {name: statement.excluded[name] for name in ("access_hash", "username", "title", "updated_at")}
        statement = statement.on_conflict_do_update(index_elements=["account", "channel_id"], set_=newer)
        ids = [channel.channel_id for channel in channels]
        async with self._database.writing() as connection:
            for some in chunks(channels):
                names = [channel.username.lower() for channel in some if channel.username is not None]
                moved = (func.lower(_CELL.username).in_(names), _CELL.channel_id.not_in(ids))
                others = update(telegram_channels).where(_CELL.account == account, *moved)
                await connection.execute(others.values(username=None))
                await connection.execute(statement, [asdict(channel) for channel in some])

    async def forget(self, account: str, channel_id: int) -> None:
        """Delete a channel whose stored access hash is wrong."""
        query = delete(telegram_channels).where(_CELL.account == account, _CELL.channel_id == channel_id)
        async with self._database.writing() as connection:
            await connection.execute(query)


def _matches(channel_id: int | None, username: str | None) -> ColumnElement[bool]:
    if channel_id is not None:
        return _CELL.channel_id == channel_id
    return func.lower(_CELL.username) == (username or "").lower()
