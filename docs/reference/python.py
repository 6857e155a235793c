"""Write python.md from the public names of the package, for docs/generate.py."""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec

import floodmark

HEAD = """# Python API

<!-- Written by `python3 run.py docs`; edit the docstrings of the public names. -->

Import these names from `floodmark`. Everything else may change without notice, except `floodmark.client`
([the client](../how-to/client.md)) and `floodmark.testing` (contracts and local servers).
[Write collectors](../how-to/collectors.md) shows how they are used.
"""


def page() -> str:
    """Return all public names as Markdown."""
    named = {name: getattr(floodmark, name) for name in floodmark.__all__ if inspect.isclass(getattr(floodmark, name))}
    errors = {name: value for name, value in named.items() if issubclass(value, Exception)}
    classes = {name: value for name, value in named.items() if name not in errors}
    return "\n".join([HEAD, *(_class(name, value) for name, value in classes.items()), _errors(errors)])


def _errors(errors: dict[str, type[Exception]]) -> str:
    rows = "".join(f"| `{name}` | {_doc(error).partition(chr(10))[0]} |\n" for name, error in errors.items())
    return f"## Errors\n\nRaise them from a collector or a source; each takes a `hint`.\n\n| | |\n|---|---|\n{rows}"


def _class(name: str, value: type) -> str:
    return "\n".join([f"## {name}\n", f"{_doc(value)}\n", *_members(value), *_methods(value)])


def _members(value: type) -> Iterator[str]:
    """Return the fields of a value, or the choices of an enumeration."""
    if issubclass(value, Enum):
        yield "".join(f"- `{one.name}`\n" for one in value)
    # The fields of a job are on their own page, docs/reference/jobs.md.
    elif issubclass(value, msgspec.Struct) and value is not floodmark.Job:
        yield f"Fields: {', '.join(f'`{name}`' for name in value.__struct_fields__)}.\n"


def _methods(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        if inspect.isfunction(member) and not name.startswith("_") and member.__module__.startswith("floodmark"):
            yield f"### {value.__name__}.{name}\n\n```python\n{_signature(name, member)}\n```\n\n{_doc(member)}\n"


def _signature(name: str, function: Any) -> str:
    """Return the signature of a function with its defaults, without types."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
    lines: list[str] = []
    is_keyword = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not is_keyword:
            lines, is_keyword = [*lines, "*"], True
        is_keyword = is_keyword or one.kind is one.VAR_POSITIONAL
        default = "" if one.default is one.empty else f"={one.default!r}"
        lines.append(
            re.sub(r"<([\w.]+)[^>]*>", r"\1", f"{'*' if one.kind is one.VAR_POSITIONAL else ''}{one.name}{default}")
        )
    inside = ", ".join(lines)
    if len(inside) >= 80:
        inside = "".join(f"\n    {line}," for line in lines) + "\n"
    return f"def {name}({inside}): ..."


def _doc(value: Any) -> str:
    """Return a docstring with one line a paragraph, and an example in it as code."""
    text, _, rest = (inspect.getdoc(value) or "").partition("\n\n")
    if "\n    " in rest:
        return f"{text}\n\n```python\n{rest}\n```"
    return re.sub(r"(?<=\S)\n(?=\S)", " ", f"{text}\n\n{rest}".strip())
