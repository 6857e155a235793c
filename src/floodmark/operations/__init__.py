"""Everything that a person or a program can ask of an installation, declared once.

declaration.py   how an operation is declared, and what follows from it
declared.py      all operations
jobs.py, ...     the declarations, by subject; they load no database
handlers/        what they do, on the store; one file for each file of declarations
local.py         all handlers: the operations in this process
"""
