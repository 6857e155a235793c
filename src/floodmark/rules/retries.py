"""What an error means for an execution: try again later, or give up."""

import random
import traceback
from datetime import timedelta

from floodmark.errors import AccountLost, FloodmarkError, Gone, InvalidInput, Permanent, TargetDenied
from floodmark.model.batch import Kept
from floodmark.model.execution import Lease
from floodmark.model.outcome import Dead, Outcome, Retry
from floodmark.security.masking import mask_text

_HOPELESS = (Permanent, Gone, AccountLost, InvalidInput)
_TRACEBACK_CHARACTERS = 4000


class Retries:
    """Retries with full jitter: a random pause up to a bound that doubles with each attempt."""

    def __init__(self, *, base: timedelta, longest: timedelta, chance: random.Random | None = None) -> None:
        self._base, self._longest = base, longest
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not a secret

    def after(self, lease: Lease, error: BaseException, kept: Kept) -> Outcome:
        """The outcome of an attempt that ended in `error`."""
        text, details = describe(error), _details(error)
        if isinstance(error, _HOPELESS) or lease.attempt > lease.job.retry_max:
            pause = isinstance(error, Gone | AccountLost | TargetDenied)
            in_a_row = error.pauses_after if isinstance(error, TargetDenied) else 1
            return Dead(error=text, details=details, pause=pause, in_a_row=in_a_row, kept=kept)
        return Retry(after=self.pause(lease.attempt), error=text, details=details, kept=kept)

    def pause(self, attempt: int) -> timedelta:
        """How long to wait after the given attempt."""
        bound = min(self._longest.total_seconds(), self._base.total_seconds() * 2.0 ** min(attempt - 1, 30))
        return timedelta(seconds=self._chance.uniform(0, bound))


def describe(error: BaseException) -> str:
    """One line for people, without secrets: our own errors speak for themselves, others are named."""
    return mask_text(_worded(error))


def _worded(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    if isinstance(error, FloodmarkError):
        return f"{text}. {error.hint}" if error.hint else text
    return text if text.startswith(type(error).__name__) else f"{type(error).__name__}: {text}"


def _details(error: BaseException) -> dict[str, str]:
    lines = "".join(traceback.format_exception(error, limit=-12))
    return {"type": type(error).__qualname__, "traceback": mask_text(lines[-_TRACEBACK_CHARACTERS:])}
