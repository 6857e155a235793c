"""What accounts know of Telegram channels: numbers, access hashes, names. Table: `telegram_channels`.

Looking a name up is what gets accounts flooded, so it is done once. A hash is of use only to the account that got it.
"""

from msgspec import Struct
from sqlalchemy import ColumnElement, case, delete, func, select, update

from floodmark.model.clock import Clock
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present

from .tables import telegram_channels

_CELL = telegram_channels.c


class KnownChannel(Struct, frozen=True, kw_only=True):
    """A channel as one account knows it."""

    account: str
    channel_id: int
    access_hash: int
    username: str | None = None
    title: str | None = None


class Acquaintance(Struct, frozen=True, kw_only=True):
    """How many channels an account knows, and whether a certain one is among them."""

    channels: int
    is_known: bool


_SELECT = select(*(_CELL[name] for name in KnownChannel.__struct_fields__))


class Channels:
    """Remembers channels for accounts."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def known(
        self, account: str, *, channel_id: int | None = None, username: str | None = None
    ) -> KnownChannel | None:
        """What an account knows of a channel, by its number or else by the name it had last."""
        which = _which(channel_id, username)
        query = _SELECT.where(_CELL.account == account, which).order_by(_CELL.updated_at.desc()).limit(1)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else KnownChannel(**row)

    async def acquaintances(
        self, *, channel_id: int | None = None, username: str | None = None
    ) -> dict[str, Acquaintance]:
        """For each account that knows any channel: how many, and whether it knows this one."""
        is_it = func.max(case((_which(channel_id, username), 1), else_=0))
        query = select(_CELL.account, func.count(), is_it).group_by(_CELL.account)
        async with self._database.reading() as connection:
            rows = await connection.execute(query)
            return {name: Acquaintance(channels=count, is_known=bool(known)) for name, count, known in rows}

    async def last_name(self, channel_id: int) -> str | None:
        """The name under which any account saw a channel last, also one that is lost or removed."""
        query = select(_CELL.username).where(_CELL.channel_id == channel_id, _CELL.username.is_not(None))
        async with self._database.reading() as connection:
            return (await connection.execute(query.order_by(_CELL.updated_at.desc()).limit(1))).scalar()

    async def remember(self, channel: KnownChannel) -> None:
        """Keep what is known now. A name belongs to one channel: whoever had it before has it no more."""
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
                await connection.execute(
                    update(telegram_channels)
                    .where(
                        _CELL.account == channel.account,
                        _CELL.channel_id != channel.channel_id,
                        func.lower(_CELL.username) == channel.username.lower(),
                    )
                    .values(username=None)
                )
            await connection.execute(statement)

    async def forget(self, account: str, channel_id: int) -> None:
        """What was known of a channel was wrong."""
        query = delete(telegram_channels).where(_CELL.account == account, _CELL.channel_id == channel_id)
        async with self._database.writing() as connection:
            await connection.execute(query)


def _which(channel_id: int | None, username: str | None) -> ColumnElement[bool]:
    if channel_id is not None:
        return _CELL.channel_id == channel_id
    return func.lower(_CELL.username) == (username or "").lower()
