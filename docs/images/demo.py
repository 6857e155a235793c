"""Draw demo.svg, the picture in the README, from a real run: `.venv/bin/python docs/images/demo.py`.

The demo runs in a separate terminal for 15 seconds. The picture shows its first lines, one live table in which an
account waits, and its last lines.
"""

import fcntl
import io
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS, ROWS = 118, 40
# The sequence with which rich returns to the top of a live table before it draws the next one.
REDRAWN = re.compile(r"\r?\x1b\[2K(?:\x1b\[1A\x1b\[2K)+")
CURSOR = re.compile(r"\x1b\[\?25[lh]")
# The format of rich, without the fonts that it loads from another host.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>floodmark demo in a terminal</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Run the demo and draw it."""
    first, *tables = REDRAWN.split(CURSOR.sub("", run()))
    head, _, _ = first.partition("\r\n\r\n")
    _, _, end = tables[-1].partition("\r\n\r\nThe channels have ")
    waiting = [table for table in tables if "FloodWait" in table]
    if not waiting:
        sys.exit("No account had to wait in this run. Run the command again.")
    table = waiting[len(waiting) // 2]
    shown = "\n".join(["$ python3 run.py demo", head, table, "", f"The channels have {end.rstrip()}"])
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.replace("\r\n", "\n")), no_wrap=True, overflow="crop")
    # A fixed name: the picture changes only where the run did.
    picture = console.export_svg(title="floodmark demo", theme=MONOKAI, code_format=FORMAT, unique_id="demo")
    Path(__file__).with_suffix(".svg").write_text(picture, encoding="utf-8")


def run() -> str:
    """Return what the demo writes to a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(folder)
            os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
            os.execv(sys.executable, [sys.executable, "-m", "floodmark", "demo", "--seconds", "15"])  # noqa: S606
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        written = b"".join(iter(lambda: _read(terminal), b""))
        os.waitpid(child, 0)
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the child has closed its end
        return b""


if __name__ == "__main__":
    main()
