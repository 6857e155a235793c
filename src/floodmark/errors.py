"""The errors of Floodmark. Each says what is wrong and what to do next."""

from datetime import timedelta

# Servers may send any number; a timedelta cannot hold them all.
_LONGEST_WAIT_SECONDS = 10**9


class FloodmarkError(Exception):
    """An error that a person can fix. `hint` is the next step."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def in_full(self) -> str:
        """Return the message and the next step in one text."""
        if not self.hint:
            return str(self)
        # A command stays as it is typed.
        first = self.hint[0] if self.hint.startswith("floodmark ") else self.hint[0].upper()
        return f"{self}. {first}{self.hint[1:]}"


class InvalidInput(FloodmarkError):
    """The input is invalid; nothing was changed."""


class Conflict(FloodmarkError):
    """A conflict with existing data: a taken name, a newer version, a cycle. Nothing was changed."""


class EventsDeleted(Conflict):
    """Events that a reader has not read were deleted, because they are older than EVENTS_KEEP_DAYS."""


class NotFound(FloodmarkError):
    """The named object does not exist; `hint` lists existing ones."""


class Denied(FloodmarkError):
    """The caller is unknown, or its role is not sufficient."""


class Unavailable(FloodmarkError):
    """A required database, Redis or port is not available."""


class Unreachable(Unavailable):
    """The database does not respond. `may_return`: waiting may help."""

    def __init__(self, message: str, *, hint: str = "", may_return: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.may_return = may_return


class Fenced(FloodmarkError):
    """Another worker has taken over this target: stop and write nothing."""


class SourceError(FloodmarkError):
    """An error of a source during a collection."""


class SlowDown(SourceError):
    """The source requests a wait. Costs no attempt; applies to all jobs with `key`, or only to this execution.

    A plain number is seconds, as in `Retry-After`. `is_answer`: the source itself responded with it, rather than a
    known limit or circuit breaker.
    """

    is_answer = False

    def __init__(self, after: timedelta | float, key: str | None = None, reason: str = "asked to slow down") -> None:
        after = after if isinstance(after, timedelta) else timedelta(seconds=min(after, _LONGEST_WAIT_SECONDS))
        super().__init__(f"{reason}: wait {after.total_seconds():g} s")
        self.after, self.key, self.reason = after, key, reason


class Transient(SourceError):
    """The error may be temporary: retried with growing delays."""


class Permanent(SourceError):
    """A retry will not help, but the next scheduled run may: dead letter, the job continues."""


class TargetDenied(Permanent):
    """The source refused this target: dead letter; after a few such runs in a row the job is paused."""

    pauses_after = 3


class Gone(SourceError):
    """The target no longer exists: dead letter, and the job is paused with the reason."""


class AccountLost(SourceError):
    """The account of this target can no longer be used: it is parked with its jobs."""

    def __init__(self, account: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"account {account}: {reason}", hint=hint)
        self.account, self.reason = account, reason
