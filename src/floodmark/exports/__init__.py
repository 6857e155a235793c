"""Writes stored items to files: JSON lines, CSV, Parquet and spreadsheets.

export.py      one export from its request to its result
reading.py     the rows to write: stored items, or changes since a position
request.py     what to export, and what came of it
continuing.py  the stored position of an export, and how it stays in step with the files
outputs.py     where rows go: one file, a folder, or the standard output
days.py        rows by UTC day
conversion.py  rows in the columns of their source
tables.py      the columns of a source
fields.py      the fields of an item in the types of their columns
formats/       one file per format
"""
