"""Lists of jobs in files: targets line by line, CSV, OPML, JSON and TOML.

    reading.py   ->  one file per format  ->  columns.py
    decodes the      yields rows, each        turns a row into
    file, finds      with its place           the columns of a job
    its format

`document.py` is the form in which jobs are exported, and `toml_text.py` writes TOML. A file is untrusted: its size, its
lines and its rows are bounded, and an error names the line.
"""
