"""The processes of a worker that read documents: limited in number, started when needed, ended when no crawl runs."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from floodmark.errors import SourceError
from floodmark.process.framing import HEAD, encode_message, read_length

from .documents import ExtractedDocument, ExtractionRequest
from .limits import CPU_SECONDS, DOCUMENTS_EACH, LARGEST_ANSWER, WALL_SECONDS
from .process import explain_exit

_EXIT_SECONDS = 10.0
# The process gets no other variables, so that no document can read secrets.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT")


class UnreadDocument(SourceError):
    """A document that could not be read within the limits."""


class ExtractionPool:
    """Reads documents in a limited number of processes."""

    def __init__(self, processes: int, *, cpu_seconds: float = CPU_SECONDS) -> None:
        self._room = asyncio.Semaphore(processes)
        self._free: list[_Reader] = []
        self._users, self._cpu_seconds = 0, cpu_seconds

    @asynccontextmanager
    async def using(self) -> AsyncIterator["ExtractionPool"]:
        """Keep processes meanwhile; without users none stay."""
        self._users += 1
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                await self.close()

    async def close(self) -> None:
        """End all idle processes."""
        while self._free:
            await self._free.pop().end()

    async def read(self, request: ExtractionRequest) -> ExtractedDocument:
        """Read a document; raise `UnreadDocument` if that takes too long or ends the process."""
        async with self._room:
            reader = await self._take_reader()
            try:
                found = await reader.read(request)
            except BaseException:
                await reader.end()
                raise
            if reader.documents >= DOCUMENTS_EACH or not self._users:
                await reader.end()
            else:
                self._free.append(reader)
            return found

    async def _take_reader(self) -> "_Reader":
        while self._free:
            reader = self._free.pop()
            if reader.is_alive:
                return reader
            await reader.end()
        return await _Reader.start(self._cpu_seconds)


class _Reader:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.documents = 0

    @classmethod
    async def start(cls, cpu_seconds: float) -> "_Reader":
        """Start a process."""
        environment = {
            name: value for name, value in os.environ.items() if name in _ENVIRONMENT or name.startswith("PYTHON")
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "floodmark.sources.web.extraction.process", str(cpu_seconds)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            # Its own group: Ctrl-C must reach only us.
            start_new_session=True,
        )
        return cls(process)

    @property
    def is_alive(self) -> bool:
        """Whether the process is running: the system may have ended it while it was idle."""
        return self._process.returncode is None

    async def read(self, request: ExtractionRequest) -> ExtractedDocument:
        """Read one document. After an error this process cannot be used again."""
        self.documents += 1
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with asyncio.timeout(WALL_SECONDS):
                stdin.write(encode_message(request))
                await stdin.drain()
                length = read_length(await stdout.readexactly(HEAD))
                if length > LARGEST_ANSWER:
                    raise UnreadDocument(f"its content is too large: {length:,} bytes")
                return msgspec.msgpack.decode(await stdout.readexactly(length), type=ExtractedDocument)
        except TimeoutError:
            raise UnreadDocument(f"could not be read within {WALL_SECONDS:g} s") from None
        except (OSError, asyncio.IncompleteReadError):
            raise UnreadDocument(explain_exit(await self._process.wait())) from None

    async def end(self) -> None:
        """End the process, also during a cancellation."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.close()
        if self._process.returncode is None:
            self._process.kill()
        async with asyncio.timeout(_EXIT_SECONDS):
            await self._process.wait()
