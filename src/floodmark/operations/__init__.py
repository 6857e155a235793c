"""The operations of an installation, each declared once.

declaration.py   how an operation is declared, and what follows from it
declared.py      all operations
jobs.py, ...     the declarations, by subject; they load no database
handlers/        their implementations on the store, one file for each file of declarations
local.py         all handlers: the operations in this process
"""
