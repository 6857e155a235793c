"""The help of all commands, from a stored list: to load every command for it takes half a second.

`root_help.json` is written by `docs/generate.py`. The help of one command is made by Typer.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap

FILE = Path(__file__).with_name("root_help.json")
_NARROWEST, _WIDEST, _BESIDE = 60, 100, 36
_ROUND, _PLAIN = "╭─╮│╰╯", "+-+|++"
_BOLD, _CYAN, _DIM, _END = "\x1b[1m", "\x1b[1;36m", "\x1b[2m", "\x1b[0m"


def printed_root_help() -> str:
    """Return it as wide as the terminal, in colour if that shows colours."""
    lines = root_help(shutil.get_terminal_size().columns, has_colours=_shows_colours(), corners=_corners())
    return "\n".join(lines) + "\n"


def root_help(columns: int, *, has_colours: bool = False, corners: str = _ROUND) -> list[str]:
    """Return the lines of the help."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    width = min(max(columns, _NARROWEST), _WIDEST)
    lines = ["", " Usage: floodmark [OPTIONS] COMMAND [ARGS]...", "", f" {stored['summary']}", ""]
    for title, rows in stored["panels"].items():
        lines += _panel(title, rows, width, corners)
    lines += ["", " The options and an example of a command: floodmark COMMAND --help", ""]
    if has_colours:
        return [_coloured(line, corners) for line in lines]
    return lines


def _panel(title: str, rows: Mapping[str, str], width: int, corners: str) -> Iterator[str]:
    left, line, right, side, low_left, low_right = tuple(corners)
    beside = min(_BESIDE, max(13, *(len(name) + 1 for name in rows)))
    yield f"{left}{line} {title} {line * (width - len(title) - 5)}{right}"
    for name, text in rows.items():
        for place, part in enumerate(wrap(text, width - beside - 5) or [""]):
            shown = f"{'' if place else name:{beside}} {part}"
            yield f"{side} {shown:{width - 4}} {side}"
    yield f"{low_left}{line * (width - 2)}{low_right}"


def _coloured(line: str, corners: str) -> str:
    side = corners[3]
    if line.startswith(side):
        name, _, text = line[2:-2].partition(" ")
        return f"{_DIM}{side}{_END} {_CYAN}{name}{_END} {text} {_DIM}{side}{_END}"
    return f"{_DIM}{line}{_END}" if line[:1] in corners and line else line.replace("Usage:", f"{_BOLD}Usage:{_END}")


def _shows_colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _corners() -> str:
    try:
        _ROUND.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return _PLAIN
    return _ROUND
