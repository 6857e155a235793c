"""Errors of the file system as errors with a next step."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floodmark.errors import Unavailable

_HINT = "choose another folder, free disk space, or change the permissions"


@contextmanager
def explain_errors(folder: Path, *, hint: str = _HINT) -> Iterator[None]:
    """Raise errors of the system as `Unavailable`, with a hint for the operator."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{folder} cannot be written to: {error.strerror or error}", hint=hint) from error
