"""The states of an execution, as the code has them and as they are drawn."""

import re
from pathlib import Path

from floodmark.model.execution import ENDED, MOVES, State

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "how-it-works.md"


def test_the_diagram_shows_every_legal_move_and_no_other() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {(State(before), State(after)) for before, after in drawn} == {
        (before, after) for before, afters in MOVES.items() for after in afters
    }


def test_only_a_dead_execution_can_be_taken_up_again() -> None:
    assert [state for state in ENDED if MOVES[state]] == [State.DEAD]
