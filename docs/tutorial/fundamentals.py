"""Write fundamentals.md from tests/fundamentals, for docs/generate.py.

The lessons are tests, so every program on the page runs, and every result on the page is checked.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

LESSONS = Path(__file__).parents[2] / "tests" / "fundamentals"
HEAD = """# Fundamentals

<!-- Written by `python3 run.py docs`; edit tests/fundamentals. -->

This tutorial explains Floodmark in ten lessons, one feature each. Every program is a test in `tests/fundamentals`, so
it runs and its results are checked.

In all programs `app` is a `Floodmark()` with its own database. `running(app)` starts a scheduler and a worker for the
block; `opened(app)` only opens the database. The methods of both correspond to commands: `run_and_wait` is
`floodmark run --wait`, `items` is `floodmark items`, `explain` is `floodmark explain`. To run one lesson yourself:

    python3 run.py test tests/fundamentals/test_01_collect.py
"""


def page() -> str:
    """Return the tutorial as Markdown."""
    return "\n".join([HEAD, *(part for path in sorted(LESSONS.glob("test_*.py")) for part in _lesson(path))])


def _lesson(path: Path) -> Iterator[str]:
    source = path.read_text("utf-8")
    module = ast.parse(source)
    title, _, text = (ast.get_docstring(module) or "").partition("\n")
    yield f"## {title.removesuffix('.')}\n{text.rstrip()}\n"
    for node in module.body[1:]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield f"### {node.name.removeprefix('test_').replace('_', ' ').capitalize()}\n"
            yield f"{ast.get_docstring(node)}\n"
            yield _code(_body(source, node))
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            yield _code(_lines(source, node.lineno, node.end_lineno))


def _body(source: str, test: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the body of a test without its docstring, after a comment with its parametrized cases."""
    repeated = [one for one in test.decorator_list if "parametrize" in ast.unparse(one)]
    cases = "".join(f"# {line}\n" for one in repeated for line in _cases(one))
    return cases + dedent(_lines(source, test.body[1].lineno, test.end_lineno, above=test.body[0].end_lineno))


def _cases(decorator: ast.expr) -> Iterator[str]:
    assert isinstance(decorator, ast.Call)
    names, rows = decorator.args
    yield f"with {', '.join(ast.literal_eval(names))}:"
    assert isinstance(rows, ast.List)
    yield from (ast.unparse(row) for row in rows.elts)


def _lines(source: str, first: int, last: int | None, above: int | None = None) -> str:
    """Return the lines of a node, with the comments and decorators directly above it."""
    lines = source.splitlines()
    start = first - 1
    while start > (above or 0) and lines[start - 1].strip().startswith(("#", "@")):
        start -= 1
    return "\n".join(lines[start:last])


def _code(text: str) -> str:
    return f"```python\n{text.strip(chr(10))}\n```\n"
