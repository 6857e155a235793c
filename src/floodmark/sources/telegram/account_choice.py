"""Which account reads a channel, and how long a run waits for a busy account. Pure."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct, field

from floodmark.model.accounts import AccountRow

from .channels import ChannelKnowledge

# The shortest wait is the length of a short run, the longest is what a person accepts.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.0, 30.0
_USUAL_RUN_SECONDS = 0.5

_UNKNOWN = ChannelKnowledge(channels=0, is_known=False)


class AccountLoad(Struct, frozen=True, kw_only=True):
    """The load of the accounts in this process: runs per account, their maximum, and accounts in a flood wait.

    Without a `holder` it does not matter in which process a session is open. `foreign` are the accounts for which
    another worker is preferred.
    """

    holder: str | None
    runs: Mapping[str, int] = field(default_factory=dict)
    max_runs: int = 1
    waiting: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()


def choose_account(rows: Sequence[AccountRow], known: Mapping[str, ChannelKnowledge], load: AccountLoad) -> AccountRow:
    """Return the account to use: one that knows the channel before any that would have to look it up.

    Next, prefer an account that may be called now, then one whose session is open here or nowhere. Among accounts that
    do not know the channel, prefer those of this worker, and of these the one with the fewest channels, so that they
    share the work.
    """

    def order(row: AccountRow) -> tuple[object, ...]:
        knowledge, runs = known.get(row.name, _UNKNOWN), load.runs.get(row.name, 0)
        is_elsewhere = None not in (row.holder, load.holder) and row.holder != load.holder
        is_foreign = row.name in load.foreign
        busy = (is_elsewhere, runs >= load.max_runs, row.holder is None)
        share = (*busy, is_foreign) if knowledge.is_known else (is_foreign, knowledge.channels + runs, *busy)
        return (not knowledge.is_known, row.name in load.waiting, *share, row.name)

    return min(rows, key=order)


class WaitingLine:
    """The runs that wait for one busy account: each gets a turn after the others."""

    def __init__(self) -> None:
        self._next_turn = 0.0
        self._seconds_per_run = _USUAL_RUN_SECONDS

    def record_run(self, seconds: float) -> None:
        """Update the average duration of runs."""
        self._seconds_per_run += (seconds - self._seconds_per_run) * 0.2

    def join(self, now: float, max_runs: int) -> timedelta:
        """Return how long to wait before the next try. Turns that have passed no longer count."""
        turn = max(self._next_turn, now + _SHORTEST_SECONDS) + self._seconds_per_run / max_runs
        self._next_turn = min(turn, now + _LONGEST_SECONDS)
        return timedelta(seconds=self._next_turn - now)
