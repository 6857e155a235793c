"""Notes of an execution: what people should know about a run that went well all the same.

A bound that was reached, an input that was left out, a page that has no text. They are kept in the result of the
execution under `notes`, so the API returns them with it; `history --id`, `run --wait` and `explain` show them.
"""

from typing import Any

MOST_NOTES, MOST_CHARACTERS = 50, 300
_LISTED, _COUNTED = "notes", "more_notes"


def add_note(result: dict[str, Any], text: str) -> None:
    """Add one sentence to a result, once. Beyond `MOST_NOTES` they are only counted."""
    text = text[:MOST_CHARACTERS]
    notes = result.setdefault(_LISTED, [])
    if text in notes:
        return
    if len(notes) < MOST_NOTES:
        notes.append(text)
    else:
        result[_COUNTED] = result.get(_COUNTED, 0) + 1


def drop_notes(result: dict[str, Any]) -> None:
    """Remove the notes of earlier slices: for a source that keeps its own account over all of them."""
    result.pop(_LISTED, None)
    result.pop(_COUNTED, None)


def notes_of(result: Any) -> list[str]:
    """Return the notes in a stored result; the last one says how many were only counted."""
    if not isinstance(result, dict) or not isinstance(result.get(_LISTED), list):
        return []
    more = result.get(_COUNTED)
    return [str(note) for note in result[_LISTED]] + ([f"and {more:,} more notes"] if isinstance(more, int) else [])


def carry_notes(result: Any) -> dict[str, Any]:
    """Return the part of an earlier slice's result that the next slice of the same execution continues."""
    if not notes_of(result):
        return {}
    return {_LISTED: list(result[_LISTED]), **({_COUNTED: result[_COUNTED]} if _COUNTED in result else {})}
