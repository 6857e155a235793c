"""Make fundamentals.md from tests/fundamentals, for docs/generate.py.

The lessons are tests, so every program on the page runs, and every result it shows is checked.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

LESSONS = Path(__file__).parents[2] / "tests" / "fundamentals"
HEAD = """# Fundamentals

<!-- Written by `python3 run.py docs`; edit tests/fundamentals. -->

Nine lessons, one feature each. Every program below is a test in `tests/fundamentals` that runs with each change of
Floodmark.

In all of them `app` is a `Floodmark()` with its own database. `running(app)` starts a scheduler and a worker for
the block, and `opened(app)` only opens the database. Their methods correspond to commands: `collected`
is `floodmark run --wait`, `items` is `floodmark items`, `explain` is `floodmark explain`. Run one lesson yourself:

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
    """What a test does, without its name and docstring; what it is repeated with stays above it as a comment."""
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
    """The lines of a node, with the comments directly above it."""
    lines = source.splitlines()
    start = first - 1
    while start > (above or 0) and lines[start - 1].strip().startswith(("#", "@")):
        start -= 1
    return "\n".join(lines[start:last])


def _code(text: str) -> str:
    return f"```python\n{text.strip(chr(10))}\n```\n"
