"""Write samples of the engagement of posts to a file: `floodmark export engagement`."""

import sys
from pathlib import Path

from floodmark.errors import InvalidInput
from floodmark.exports.engagement import export_engagement
from floodmark.exports.formats import FORMATS
from floodmark.exports.request import ExportRequest

from .output import counted, plain, print_json
from .root import CliContext

_STDOUT = "-"


def write_samples(cli: CliContext, stream: str, out: str, file_format: str | None, *, as_json: bool) -> None:
    """Carry out an export of samples, and say what was written."""
    path = None if out == _STDOUT else Path(out)
    chosen = (file_format or ("" if path is None else path.suffix.removeprefix("."))).lower()
    if chosen not in FORMATS:
        raise InvalidInput(f"the format of {out!r} is not known", hint=f"add --format {'|'.join(FORMATS)}")
    request = ExportRequest(format=chosen, out=path)
    request.check()
    rows = cli.work(
        lambda operations: export_engagement(operations, stream, request.chosen_format, path, sys.stdout.buffer)
    )
    if path is None:
        return None
    if as_json:
        return print_json({"rows": rows, "out": str(path)})
    return cli.out.print(f"[green]Done[/]: {counted(rows, 'row')}: {plain(path)}", soft_wrap=True)
