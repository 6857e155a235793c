"""Decide what follows an error: a retry or a dead letter."""

import random
import traceback
from datetime import timedelta
from typing import Any

from floodmark.errors import AccountLost, FloodmarkError, Gone, InvalidInput, Permanent, TargetDenied
from floodmark.model.batch import Kept
from floodmark.model.execution import Lease
from floodmark.model.outcome import Dead, Outcome, Retry
from floodmark.security.masking import mask_text

from .backoff import backoff

_HOPELESS = (Permanent, Gone, AccountLost, InvalidInput)
_TRACEBACK_CHARACTERS = 4000
# An error may repeat a whole page; lists of executions contain the errors.
_ERROR_CHARACTERS = 10_000


class Retries:
    """Decides what follows a failed attempt: a retry after a `backoff`, or a dead letter."""

    def __init__(self, *, base: timedelta, longest: timedelta, chance: random.Random | None = None) -> None:
        self._base, self._longest = base, longest
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not a secret

    def after(self, lease: Lease, error: BaseException, kept: Kept) -> Outcome:
        """Return the outcome of an attempt that ended in `error`."""
        text, details = describe(error), _error_details(error)
        if isinstance(error, _HOPELESS) or lease.attempt > lease.job.retry_max:
            pause = isinstance(error, Gone | AccountLost | TargetDenied)
            in_a_row = error.pauses_after if isinstance(error, TargetDenied) else 1
            return Dead(error=text, details=details, pause=pause, in_a_row=in_a_row, kept=kept)
        after = backoff(lease.attempt, base=self._base, longest=self._longest, chance=self._chance)
        return Retry(after=after, error=text, details=details, kept=kept)


def describe(error: BaseException) -> str:
    """Return a text for people, without secrets; errors of other packages with their type."""
    text = _format_error(error)
    left = len(text) - _ERROR_CHARACTERS
    return mask_text(text if left <= 0 else f"{text[:_ERROR_CHARACTERS]}... ({left:,} more characters)")


def _format_error(error: BaseException) -> str:
    if isinstance(error, FloodmarkError) and str(error).strip():
        return error.in_full()
    text = str(error).strip() or type(error).__name__
    return text if text.startswith(type(error).__name__) else f"{type(error).__name__}: {text}"


def _error_details(error: BaseException) -> dict[str, Any]:
    lines = "".join(traceback.format_exception(error, limit=-12))
    details = {"type": type(error).__qualname__, "traceback": mask_text(lines[-_TRACEBACK_CHARACTERS:])}
    # For watches of sources that are gone.
    return {**details, "is_gone": True} if isinstance(error, Gone) else details
