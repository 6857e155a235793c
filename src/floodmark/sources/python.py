"""Python functions as a source: an async generator, a generator, or a function that returns a list.

The function takes any of these by name: `since` (its watermark, None the first time), `context`, and the job's params.
The param `*args` is a list of positional arguments, `**kwargs` an object of arguments whose names have another meaning
here (`key`, `watermark`): imported jobs of other schedulers use them.
It yields items (mappings, dataclasses, structs, pydantic models), or `Item`s, or whole `Batch`es. A returned number or
text is no item: it becomes `returned` in the result of the execution.
"""

import asyncio
import hashlib
import inspect
import json
import sys
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import Executor as Threads
from contextlib import aclosing, closing, nullcontext
from contextvars import copy_context
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import import_module
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from floodmark.errors import InvalidInput, Permanent
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.settings import Settings

from .port import Context, Target

# The attribute of a function that holds the `Collector` of `@app.collector`.
DECLARED_AS = "__floodmark_collector__"

# Items are stored in batches of this size, or after this time: a slow source still commits its progress.
BATCH_SIZE = 100
BATCH_SECONDS = 1.0

Pick = str | Callable[[Any], Any] | None

# Params that describe the items of a function; the others are arguments of the function.
_READING = frozenset({"key", "watermark"})
# Arguments that Floodmark passes; a param of that name would replace them.
_OURS = frozenset({"since", "context"})
# Params of imported crontab lines; a function gets those for which it has arguments.
_IMPORTED = frozenset({"command", "stdin", "user", "environment"})
# Params with the positional and the keyword arguments of a job of another scheduler.
ARGS, KWARGS = "*args", "**kwargs"
# Imported arguments with these names are stored in KWARGS.
RESERVED = _READING | _OURS
_NO_ITEMS = (str, int, float, bool)
_LONGEST_TEXT = 2000


class Collector(Struct, frozen=True, kw_only=True):
    """A function and the description of its items."""

    function: Callable[..., Any]
    key: Pick = None
    """The field or function that returns the key of an item; without it, the key is a hash of the content."""
    watermark: Pick = None
    """The field or function whose value becomes `since`; without it every run starts from the beginning."""
    occurred_at: Pick = None
    batch_size: int = BATCH_SIZE
    blocking: bool = True
    """Whether a plain function may block: it then runs on a thread."""


class UnknownCollector(InvalidInput):
    """No collector of this process has this name; another process may have one."""


class PythonSource:
    """Collects the items of Python functions: declared collectors, and functions of the modules the operator lists.

    Any other function is refused, even if a job for it is already stored: a user who may change jobs must not be able
    to run arbitrary code. With `imports=False`, `check` imports nothing: an API server must not load a module because
    a request names it.
    """

    kind = "python"

    def __init__(
        self,
        collectors: Mapping[str, Collector],
        threads: Threads | None = None,
        *,
        modules: Iterable[str] = (),
        imports: bool = True,
    ) -> None:
        self._collectors, self._threads = collectors, threads
        self._modules, self._imports = tuple(modules), imports

    @classmethod
    def from_settings(cls, settings: Settings) -> "PythonSource":
        """Create the source for the modules in PYTHON_MODULES; `declare` adds the collectors of an application."""
        return cls({}, modules=[name.strip() for name in (settings.python_modules or "").split(",") if name.strip()])

    def declare(self, collectors: Mapping[str, Collector], *, imports: bool = True) -> None:
        """Add declared collectors."""
        self._collectors, self._imports = collectors, imports

    def use_services(self, services: Services) -> None:
        """Use the threads of the process for plain functions."""
        self._threads = services.threads

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` names a collector, or a function of a listed module."""
        self._find_loaded(target, params)

    def param_names(self, target: str) -> frozenset[str] | None:
        """Return the names of all params; None if the function takes any, or is unknown."""
        try:
            collector = self._find_loaded(target, {})
        except InvalidInput:
            return None
        return None if collector is None else argument_names(collector.function)

    def _find_loaded(self, target: str, params: Mapping[str, Any]) -> Collector | None:
        """Return the collector; None for a function in a listed module that must not be imported here."""
        if not self._imports and self._find_declared(target) is None:
            module = self._require_listed(target)
            if module not in sys.modules:
                return None
        return self._find(target, params)

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Yield batches of the items of the function, in their order."""
        try:
            collector = self._find(target.name, target.params)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        return self._batches(collector, self._call(collector, target, since, context), context)

    def _find(self, name: str, params: Mapping[str, Any]) -> Collector:
        collector = self._find_declared(name)
        if collector is None:
            self._require_listed(name)
            found = _load_function(name)
            collector = found if isinstance(found, Collector) else getattr(found, DECLARED_AS, None)
            if not isinstance(collector, Collector):
                self._require_own(name, found)
                collector = Collector(function=found)
        if name in self._collectors or not _READING & params.keys():
            return collector
        return Collector(function=collector.function, key=params.get("key"), watermark=params.get("watermark"))

    def _find_declared(self, name: str) -> Collector | None:
        """Return the collector with this name, or the one whose function is `module:function`."""
        if name in self._collectors:
            return self._collectors[name]
        return next((each for each in self._collectors.values() if _path_of(each.function) == name), None)

    def _require_listed(self, name: str) -> str:
        """Return the module of `module:function`, if the operator lists it."""
        module, colon, attribute = name.partition(":")
        if not colon and name.isidentifier():
            raise UnknownCollector(
                f"{name!r} names no function, and no collector of that name is declared here",
                hint="name a declared collector, or write package.module:function, for example myapp.feeds:news",
            )
        if not module or not attribute:
            raise _no_function(name)
        if not self._is_listed(module):
            raise InvalidInput(
                f"{name[:200]!r} is neither a declared collector nor in a module that the operator lists",
                hint=f"declare it with @app.collector, or let the operator set PYTHON_MODULES={module[:200]}",
            )
        return module

    def _is_listed(self, module: str) -> bool:
        return any(module == listed or module.startswith(f"{listed}.") for listed in self._modules)

    def _require_own(self, name: str, found: Any) -> None:
        """Refuse a function that a listed module has only imported, such as `myapp:os.system`."""
        home = getattr(found, "__module__", None)
        if not isinstance(home, str) or not self._is_listed(home):
            raise InvalidInput(
                f"{name[:200]!r} is a function of {home}, which the operator does not list",
                hint="name a function that the listed module defines itself, or list its module in PYTHON_MODULES",
            )

    def _call(self, collector: Collector, target: Target, since: Watermark | None, context: Context) -> Any:
        known: dict[str, Any] = {
            "since": None if since is None else since.get("value"),
            "context": context,
            **target.params,
        }
        args, kwargs = known.pop(ARGS, ()), known.pop(KWARGS, {})
        signature = _inspect(collector.function)
        # A parameter that gets a positional argument must not be passed by name as well.
        filled = signature.positional[: len(args)]
        passed = {k: v for k, v in known.items() if (signature.takes_any or k in signature.names) and k not in filled}
        call = partial(collector.function, *args, **passed | kwargs)
        # A plain function may block, so it is called later, in a thread.
        return call() if signature.returns_at_once else call

    async def _batches(self, collector: Collector, yielded: Any, context: Context) -> AsyncIterator[Batch]:
        things = yielded if inspect.isasyncgen(yielded) else self._read(yielded, context, collector)
        pending: list[Any] = []
        trouble: Exception | None = None
        began = time.monotonic()
        try:
            while True:
                try:
                    thing = await anext(things)
                except StopAsyncIteration:
                    break
                except Exception as error:  # noqa: BLE001 - raised below, after the items that came before it
                    trouble = error
                    break
                if isinstance(thing, Batch):
                    if pending:
                        yield _make_batch(collector, pending)
                    yield thing
                    pending, began = [], time.monotonic()
                    continue
                pending.append(thing)
                if len(pending) >= collector.batch_size or time.monotonic() - began > BATCH_SECONDS:
                    yield _make_batch(collector, pending)
                    pending, began = [], time.monotonic()
            if pending:
                yield _make_batch(collector, pending)
            if trouble is not None:
                # After the items: a source that must wait after every few items would otherwise make no progress.
                raise trouble
        finally:
            # Its `finally` blocks run now, not at garbage collection.
            await things.aclose()

    async def _read(self, yielded: Any, context: Context, collector: Collector) -> AsyncGenerator[Any, None]:
        """Yield the items of a coroutine, a function or a generator; the last two may block, so a thread runs them."""
        if isinstance(yielded, partial):
            yielded = await self._in_thread(yielded) if collector.blocking else yielded()
        if inspect.isawaitable(yielded):
            yielded = await yielded
        if isinstance(yielded, AsyncIterable):
            # A decorated async generator looks like a plain function.
            async with aclosing(yielded) if isinstance(yielded, AsyncGenerator) else nullcontext():
                async for thing in yielded:
                    yield thing
            return
        if isinstance(yielded, _NO_ITEMS):
            context.result["returned"] = yielded[:_LONGEST_TEXT] if isinstance(yielded, str) else yielded
            return
        if yielded is None or isinstance(yielded, Batch | Item | Mapping):
            yielded = [] if yielded is None else [yielded]
        if not collector.blocking or isinstance(yielded, list | tuple):
            # Nothing blocks here, and a thread would cost more than most functions take.
            with closing(yielded) if isinstance(yielded, Generator) else nullcontext():
                for thing in yielded:
                    yield thing
            return
        async with aclosing(self._from_thread(iter(yielded))) as things:
            async for thing in things:
                yield thing

    async def _from_thread(self, things: Iterator[Any]) -> AsyncGenerator[Any, None]:
        """Yield the items of an iterator that may block."""
        is_over = False
        try:
            while not is_over:
                part, is_over, error = await self._in_thread(_pull, things)
                for thing in part:
                    yield thing
                if error is not None:
                    raise error
        except GeneratorExit:
            if isinstance(things, Generator):
                await self._in_thread(things.close)
            raise

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        # The thread inherits the context: its log lines and requests belong to this execution.
        in_context = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._threads, in_context, call, *args)


def _pull(things: Iterator[Any]) -> tuple[list[Any], bool, Exception | None]:
    """Return the next items, whether the iterator has ended, and the error that ended it."""
    part: list[Any] = []
    deadline = time.monotonic() + BATCH_SECONDS
    try:
        for thing in islice(things, BATCH_SIZE):
            part.append(thing)
            if time.monotonic() > deadline:
                return part, False, None
    except Exception as error:  # noqa: BLE001 - raised again by the caller, after the items that came before it
        return part, True, error
    return part, len(part) < BATCH_SIZE, None


def _load_function(name: str) -> Any:
    """Import the function or collector that `package.module:name` names."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise _no_function(name)
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"{name!r} cannot be imported: {error}",
            hint="Start Floodmark from the folder that holds the module, or install its package",
        ) from error
    if not callable(found) and not isinstance(found, Collector):
        raise InvalidInput(f"{name!r} is not a function", hint="Name a function or an async generator")
    return found


def argument_names(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the params that a job for this function may have; None if it takes any."""
    signature = _inspect(function)
    return None if signature.takes_any else (signature.names - _OURS) | _READING | _IMPORTED | {ARGS, KWARGS}


def _no_function(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name[:200]!r} names no function", hint="Write it as package.module:function, for example myapp.feeds:news"
    )


def _path_of(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"


class _Signature(Struct, frozen=True):
    """The parameters of a function by name and by position, whether it takes any name, and whether it never blocks."""

    names: frozenset[str]
    positional: tuple[str, ...]
    takes_any: bool
    returns_at_once: bool


@lru_cache(maxsize=1024)
def _inspect(function: Callable[..., Any]) -> _Signature:
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.isasyncgenfunction, inspect.isgeneratorfunction, inspect.iscoroutinefunction)
    return _Signature(
        names=frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)),
        positional=tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
        returns_at_once=any(is_kind(function) for is_kind in kinds),
    )


def _make_batch(collector: Collector, things: Iterable[Any]) -> Batch:
    items, last = [], None
    for thing in things:
        items.append(thing if isinstance(thing, Item) else _make_item(collector, thing))
        last = thing.data if isinstance(thing, Item) else thing
    if collector.watermark is None:
        return Batch(items)
    return Batch(items, {"value": msgspec.to_builtins(_pick(last, collector.watermark, "watermark"))})


def _make_item(collector: Collector, thing: Any) -> Item:
    data = thing.model_dump(mode="json") if hasattr(thing, "model_dump") else thing
    key = _hash_content(data) if collector.key is None else _pick(thing, collector.key, "key")
    occurred = None if collector.occurred_at is None else _pick(thing, collector.occurred_at, "occurred_at")
    return Item(str(key), data, _parse_time(occurred))


def _parse_time(value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise Permanent(
            f"{str(value)[:200]!r}, which is an item's occurred_at, is not a time",
            hint="Yield a datetime, an ISO 8601 text, or seconds since 1970",
        ) from error


def _pick(thing: Any, pick: str | Callable[[Any], Any], what: str) -> Any:
    if callable(pick):
        return pick(thing)
    try:
        return thing[pick] if isinstance(thing, Mapping) else getattr(thing, pick)
    except (KeyError, AttributeError) as error:
        raise Permanent(
            f"an item has no {pick!r}, which is its {what}: {str(thing)[:200]}",
            hint=f"Yield {pick!r} in every item, or choose another {what}",
        ) from error


def _hash_content(data: Any) -> str:
    try:
        encoded = msgspec.json.encode(data, order="deterministic")
    except UnicodeEncodeError:
        # Lone surrogates cannot be encoded as UTF-8, but as ASCII escapes.
        encoded = json.dumps(msgspec.to_builtins(data), sort_keys=True).encode()
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()
