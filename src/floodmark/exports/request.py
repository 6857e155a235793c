"""What to export, and what came of it."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from floodmark.errors import InvalidInput
from floodmark.rules.item_conditions import Condition

from .formats import FORMATS
from .formats.parquet import require_parquet
from .formats.port import Format


class FoundBy(Struct, frozen=True, kw_only=True):
    """A search whose results are exported. Words in the query language; the tag and the source of jobs."""

    query: str | None = None
    tag: str | None = None
    source: str | None = None


class ExportRequest(Struct, frozen=True, kw_only=True):
    """An export. `out` is a file or a folder; None is the standard output.

    `as_typed` are the options that select rows, as they were typed: a later run that continues must have the same.
    """

    format: str
    out: Path | None
    is_folder: bool = False
    streams: tuple[str, ...] = ()
    found_by: FoundBy | None = None
    where: tuple[Condition, ...] = ()
    since: datetime | None = None
    before: datetime | None = None
    revisions: bool = False
    deleted: bool = False
    with_data: bool = False
    by_day: bool = False
    guards_formulas: bool = True
    continues: str | None = None
    as_typed: Mapping[str, Any] = {}

    @property
    def chosen_format(self) -> Format:
        """Return the format."""
        return FORMATS[self.format]

    def check(self) -> None:
        """Raise an error if it cannot be carried out."""
        if self.format not in FORMATS:
            raise InvalidInput(f"{self.format[:40]!r} is not a format", hint=f"use one of: {', '.join(FORMATS)}")
        if self.format == "parquet":
            require_parquet()
        if self.found_by is not None and (self.revisions or self.continues is not None):
            raise InvalidInput(
                "a search finds the newest revisions of items, once",
                hint="leave out --query, --tag and --source, or else --revisions and --continue",
            )
        if self.out is None:
            if not self.chosen_format.can_stream:
                streamed = ", ".join(name for name, one in FORMATS.items() if one.can_stream)
                raise InvalidInput(
                    f"{self.format} cannot be written to the standard output",
                    hint=f"name a file with --out FILE.{self.format}, or use: {streamed}",
                )
            if self.by_day:
                raise InvalidInput("days are folders: the standard output has none", hint="name one with --out DIR/")
        elif self.is_folder and self.out.is_file():
            raise InvalidInput(f"{self.out} is a file, not a folder", hint="choose another with --out DIR/")


class ExportResult(Struct, kw_only=True):
    """The result of an export."""

    out: Annotated[str, Meta(description="The file or folder; `-` for the standard output.")]
    rows: int = 0
    streams: int = 0
    files: Annotated[list[str], Meta(description="The new files, relative to the folder.")] = []
    position: Annotated[int | None, Meta(description="Where the next run continues.")] = None
    is_complete: Annotated[bool, Meta(description="All items were read, not only changes since the last run.")] = True
    notes: list[str] = []
