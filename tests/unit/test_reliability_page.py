"""docs/explanation/reliability.md names the tests that prove it: all exist, and no row is missing."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "reliability.md").read_text(encoding="utf-8")
ROWS = 66

_ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_FILE = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def _tests_of(path: Path) -> frozenset[str]:
    """The names of all functions of a file; for a contract, those of the contract as well."""
    text = path.read_text(encoding="utf-8")
    names = {
        node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for contract in re.findall(r"floodmark\.testing\.contracts\.(\w+)", text):
        names |= _tests_of(ROOT / "src/floodmark/testing/contracts" / f"{contract}.py")
    return frozenset(names)


def test_every_test_that_the_page_names_exists() -> None:
    named = _FILE.findall(PAGE)
    assert len(named) > ROWS
    for file, name in named:
        assert (ROOT / file).is_file(), f"{file} does not exist"
        assert not name or name in _tests_of(ROOT / file), f"{file} has no {name}"


def test_every_row_of_the_catalogue_has_a_test_or_says_why_not() -> None:
    rows = _ROW.findall(PAGE)
    assert [int(number) for number, *_ in rows] == list(range(1, ROWS + 1))
    for number, _fault, _expected, proof in rows:
        assert "::test_" in proof or "Not tested here:" in proof, f"row {number} proves nothing"
