"""Everything a person or a program can ask or tell an installation: one set of verbs for the CLI, the API and Python.

port.py     the verbs
local.py    on the store, with an audit of every change
remote.py   the same over HTTP, for `--url`
"""
