"""Which account reads a channel, and how long to wait for one that is busy: pure."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct, field

from floodmark.model.accounts import AccountRow

from .channels import Acquaintance

# Between a moment and half a minute: the first is what a short run takes, the last what a person will wait.
_SHORTEST, _LONGEST = 1.0, 30.0
_USUAL_RUN_SECONDS = 0.5

_STRANGER = Acquaintance(channels=0, is_known=False)


class Desks(Struct, frozen=True, kw_only=True):
    """How things stand in this process: who we are, how many runs each account has, and which must not be called."""

    holder: str
    users: Mapping[str, int] = field(default_factory=dict)
    lanes: int = 1
    waiting: frozenset[str] = frozenset()


def choose(rows: Sequence[AccountRow], known: Mapping[str, Acquaintance], desks: Desks) -> AccountRow:
    """The account to use: one that knows the channel before any that would have to look it up.

    Then one that can be called now; whose session we have open, or that nobody has. Among those that do not know it,
    the one with the fewest channels, so that they share the work.
    """

    def order(row: AccountRow) -> tuple[object, ...]:
        knows, users = known.get(row.name, _STRANGER), desks.users.get(row.name, 0)
        is_elsewhere = row.holder is not None and row.holder != desks.holder
        busy = (is_elsewhere, users >= desks.lanes, row.holder is None)
        share = busy if knows.is_known else (knows.channels + users, *busy)
        return (not knows.is_known, row.name in desks.waiting, *share, row.name)

    return min(rows, key=order)


class Line:
    """Those who wait for one busy account: each is given a turn behind the others."""

    def __init__(self) -> None:
        self._next_turn = 0.0
        self._seconds_a_run = _USUAL_RUN_SECONDS

    def ran(self, seconds: float) -> None:
        """A run has ended: the next guess is better."""
        self._seconds_a_run += (seconds - self._seconds_a_run) * 0.2

    def join(self, now: float, lanes: int) -> timedelta:
        """How long to wait before trying again. The line is forgotten once its turns have passed."""
        turn = max(self._next_turn, now + _SHORTEST) + self._seconds_a_run / lanes
        self._next_turn = min(turn, now + _LONGEST)
        return timedelta(seconds=self._next_turn - now)
