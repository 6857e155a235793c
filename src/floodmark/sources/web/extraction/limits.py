"""The limits of reading one document."""

CPU_SECONDS = 10.0
# On a busy machine a document may wait long for its CPU time; this is for processes that wait for something else.
WALL_SECONDS = 300.0
MEMORY_BYTES = 1536 * 1024 * 1024
LARGEST_ANSWER = 256 * 1024 * 1024
DOCUMENTS_EACH = 1000
"""Documents after which a process is replaced: libraries cache more and more."""

TOO_SLOW = "takes too much CPU time to read; simplify its selectors, or leave it out by --exclude"
OUT_OF_MEMORY = f"needs more than {MEMORY_BYTES // 1024 // 1024:,} MB of memory to read"
