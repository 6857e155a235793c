"""The process that reads documents: with limits on CPU time and memory, no secrets, and its end with its parent.

    worker  ->  standard input: ExtractionRequest, one at a time  ->  standard output: ExtractedDocument

The kernel kills it after too much CPU time for one document, whatever it does. When the worker ends or is killed, the
input closes and the process ends.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

from floodmark.process.framing import HEAD, encode_message, read_length

from .documents import ExtractedDocument, ExtractionRequest, read_document
from .limits import MEMORY_BYTES, OUT_OF_MEMORY, TOO_SLOW

resource: Any
try:
    import resource
except ImportError:  # Windows: the worker limits the time
    resource = None


def main() -> None:
    """Read documents until the standard input closes."""
    # Ctrl-C reaches the whole process group; only the worker ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    # Other output must not mix with our messages.
    os.dup2(2, 1)
    _limit_memory()
    seconds = float(sys.argv[1])
    while (request := _receive(sys.stdin.buffer)) is not None:
        _set_timer(seconds)
        try:
            answer = read_document(request)
            message = encode_message(answer)
        except MemoryError:
            message = encode_message(ExtractedDocument(skipped=OUT_OF_MEMORY))
        except Exception as error:  # noqa: BLE001 - reported as the result of the document; the next one can be read
            reason = f"cannot be read: {type(error).__name__}: {error}"
            message = encode_message(ExtractedDocument(skipped=reason[:300]))
        finally:
            _set_timer(0)
        with suppress(BrokenPipeError):
            out.write(message)
            out.flush()


def _receive(stream: BinaryIO) -> ExtractionRequest | None:
    head = stream.read(HEAD)
    if len(head) < HEAD:
        return None
    body = stream.read(read_length(head))
    return msgspec.msgpack.decode(body, type=ExtractionRequest) if len(body) == read_length(head) else None


def _limit_memory() -> None:
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # macOS has no limit of this kind.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _set_timer(seconds: float) -> None:
    """Let the kernel end this process after so much CPU time; code in C does not return to Python meanwhile."""
    if hasattr(signal, "ITIMER_PROF"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)


def explain_exit(code: int | None) -> str:
    """Return why the process has ended while it was reading a document."""
    if hasattr(signal, "SIGPROF") and code == -signal.SIGPROF:
        return TOO_SLOW
    return f"the process that reads documents has ended ({code})"


if __name__ == "__main__":
    main()
