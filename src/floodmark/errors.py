"""The errors Floodmark speaks in. Each tells the reader what is wrong and what to do next."""

from datetime import timedelta

# Servers say all sorts of things; no length of time holds them all.
_LONGEST_WAIT_SECONDS = 10**9


class FloodmarkError(Exception):
    """Something a person can put right. `hint` is what to type or change next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InvalidInput(FloodmarkError):
    """What was asked for makes no sense as it stands; nothing was changed."""


class Conflict(FloodmarkError):
    """It would clash with what is there: a name that is taken, a newer version, a cycle. Nothing was changed."""


class NotFound(FloodmarkError):
    """What was named does not exist; `hint` lists what does."""


class Unavailable(FloodmarkError):
    """A database, Redis or port that is needed cannot be had right now."""


class Unreachable(Unavailable):
    """A database that does not answer. `may_return`: it is worth waiting for."""

    def __init__(self, message: str, *, hint: str = "", may_return: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.may_return = may_return


class Fenced(FloodmarkError):
    """Another worker has taken over this target: stop, write nothing."""


class SourceError(FloodmarkError):
    """What a source can say about a collection that did not go through."""


class SlowDown(SourceError):
    """The source asks us to wait. Costs no attempt; holds for everything under `key`, or for this execution alone.

    A bare number is seconds, as in `Retry-After`. `is_answer`: this very call was answered so, rather than kept back
    by a limit or a circuit breaker that was known before.
    """

    is_answer = False

    def __init__(self, after: timedelta | float, key: str | None = None, reason: str = "asked to slow down") -> None:
        after = after if isinstance(after, timedelta) else timedelta(seconds=min(after, _LONGEST_WAIT_SECONDS))
        super().__init__(f"{reason}: wait {after.total_seconds():g} s")
        self.after, self.key, self.reason = after, key, reason


class Transient(SourceError):
    """It may work next time: retried with growing pauses."""


class Permanent(SourceError):
    """Trying again will not help, but the next scheduled run may: dead letter, the job goes on."""


class TargetDenied(Permanent):
    """The source refused this target: dead letter; after a few runs in a row that ended so, the job is paused."""

    pauses_after = 3


class Gone(SourceError):
    """This target will not come back by itself: dead letter, and the job is paused with the reason."""


class AccountLost(SourceError):
    """The account behind this target can no longer be used: everything on it is parked."""

    def __init__(self, account: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"account {account}: {reason}", hint=hint)
        self.account, self.reason = account, reason
