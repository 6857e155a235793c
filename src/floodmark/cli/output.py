"""Tables for people and JSON for programs."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

# Output to a pipe is wide enough for every table, so that nothing is cut.
_PIPE_WIDTH = 200
# Control characters, and marks that reverse the reading direction.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNSAFE_IN_BLOCK = re.compile(_UNSAFE.pattern.replace(r"\x00-\x1f", r"\x00-\x09\x0b-\x1f"))

STATE_STYLES = {
    "running": "cyan",
    "queued": "blue",
    "waiting": "yellow",
    "done": "green",
    "dead": "bold red",
    "cancelled": "dim",
    "skipped": "dim",
}


def console(*, stderr: bool = False) -> Console:
    """Return a console for the current terminal; a new one per command."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty() or "COLUMNS" in os.environ:
        return Console(stderr=stderr, highlight=False)
    return Console(stderr=stderr, width=_PIPE_WIDTH, highlight=False)


def safe(text: object) -> str:
    """Return foreign text on one line, with control characters escaped."""
    return _UNSAFE.sub(_escape, str(text))


def plain(text: object) -> str:
    """Return foreign text, of one or more lines, escaped for use within markup."""
    return escape(_UNSAFE_IN_BLOCK.sub(_escape, str(text)))


def _escape(found: re.Match[str]) -> str:
    return " " if found[0] in "\t\n" else f"\\u{ord(found[0]):04x}"


def short(text: object, length: int) -> str:
    """Return the text on one line, cut to this length."""
    line = safe(text)
    return line if len(line) <= length else f"{line[: length - 1]}…"


def table(*columns: str, rows: Iterable[Sequence[object]], right: Sequence[str] = (), one_line: bool = False) -> Table:
    """Return a table without lines. Cells are escaped, except `Text`.

    `one_line`: each row takes one line, and long cells are cut.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="ellipsis" if one_line else "fold",
            no_wrap=one_line,
        )
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(safe(cell)) for cell in row))
    return made


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Return a table with one name and value per line, without empty values."""
    shown = ((Text(name, style="dim"), value) for name, value in rows if value not in (None, "", (), {}))
    return table("", "", rows=shown)


def state(name: str | None) -> Text:
    """Return a state in its colour."""
    return Text("-" if name is None else safe(name), style=STATE_STYLES.get(name or "", ""))


def json(value: Any) -> str:
    """Return indented JSON: times as ISO 8601 in UTC, durations in seconds."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def json_line(value: Any) -> str:
    """Return JSON on one line."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def print_json(value: Any) -> None:
    """Print JSON without wrapping and colours."""
    sys.stdout.write(json(value) + "\n")
    sys.stdout.flush()


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 job", "3 jobs", "12,000 jobs"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
