"""Notes of an execution: facts about a successful run that people should know.

For example: a limit was reached, an input was left out, a page has no text. They are stored in the result of the
execution under `notes`, so the API returns them with it; `history --id`, `run --wait` and `explain` show them.
"""

from typing import Any

MOST_NOTES, MOST_CHARACTERS = 50, 300
_LISTED, _COUNTED = "notes", "more_notes"


def add_note(result: dict[str, Any], text: str) -> None:
    """Add one sentence to a result, unless it is there. Notes beyond `MOST_NOTES` are only counted."""
    text = text[:MOST_CHARACTERS]
    notes = result.setdefault(_LISTED, [])
    if text in notes:
        return
    if len(notes) < MOST_NOTES:
        notes.append(text)
    else:
        result[_COUNTED] = result.get(_COUNTED, 0) + 1


def drop_notes(result: dict[str, Any]) -> None:
    """Remove the notes of earlier slices, for a source that carries them over itself."""
    result.pop(_LISTED, None)
    result.pop(_COUNTED, None)


def notes_of(result: Any) -> list[str]:
    """Return the notes in a stored result; the last one says how many were only counted."""
    if not isinstance(result, dict) or not isinstance(result.get(_LISTED), list):
        return []
    more = result.get(_COUNTED)
    return [str(note) for note in result[_LISTED]] + ([f"and {more:,} more notes"] if isinstance(more, int) else [])


def carry_notes(result: Any) -> dict[str, Any]:
    """Return the notes in the result of an earlier slice, for the next slice of the same execution."""
    if not notes_of(result):
        return {}
    return {_LISTED: list(result[_LISTED]), **({_COUNTED: result[_COUNTED]} if _COUNTED in result else {})}
