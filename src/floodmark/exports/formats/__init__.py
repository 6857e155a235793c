"""Formats of exported files, by name."""

from collections.abc import Mapping

from .csv import CsvFile
from .jsonl import JsonlFile
from .parquet import ParquetFile
from .port import Format
from .xlsx import XlsxFile

FORMATS: Mapping[str, Format] = {
    "jsonl": Format("jsonl", JsonlFile, can_stream=True, holds_many_tables=True),
    "csv": Format("csv", CsvFile, can_stream=True),
    "parquet": Format("parquet", ParquetFile),
    "xlsx": Format("xlsx", XlsxFile, holds_many_tables=True),
}
