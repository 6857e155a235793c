"""`pytest --spec-report`: which rows of the requirements ledger are proven by which tests.

A test names its rows by `@pytest.mark.spec("T1", "E3")`. The report runs nothing. A row that the ledger does
not have is an error in every run, because a typing mistake would otherwise pass for a missing test.
"""

from collections.abc import Iterable

import pytest

LEDGER = {"T": 16, "F": 8, "E": 11, "V": 13, "G": 9, "B": 17}
ROWS = tuple(f"{letter}{number}" for letter, last in LEDGER.items() for number in range(1, last + 1))
# The bars that have tests of their own.
ROWS += ("B16",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-report", action="store_true", help="list the ledger's rows and the tests naming them")


def pytest_collection_finish(session: pytest.Session) -> None:
    unknown = {row: tests for row, tests in coverage(session.items).items() if row not in ROWS}
    if unknown:
        told = "; ".join(f"{row} in {tests[0]}" for row, tests in unknown.items())
        raise pytest.UsageError(f"The ledger has no such rows: {told}. Correct the mark, or LEDGER in {__name__}.py.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Print the report in place of running the tests."""
    if not session.config.option.spec_report:
        return None
    found = coverage(session.items)
    print()
    for row in ROWS:
        first, *others = found.get(row, ["-"])
        print(f"{row:4} {first}", *others, sep="\n     " if others else "")
    print(f"\n{len(found)} of {len(ROWS)} rows are named by a test.")
    return True


def coverage(items: Iterable[pytest.Item]) -> dict[str, list[str]]:
    """The tests by row, each parametrized test once."""
    found: dict[str, dict[str, None]] = {}
    for item in items:
        for mark in item.iter_markers("spec"):
            for row in mark.args:
                found.setdefault(row, {})[item.nodeid.partition("[")[0]] = None
    return {row: list(tests) for row, tests in found.items()}
