"""A person's own function as a source: an async generator, a generator, or a function that returns a list.

The function takes any of these by name: `since` (its watermark, None the first time), `context`, and the job's params.
The param `*args` is a list of arguments without names, `**kwargs` an object of arguments whose names mean something
else here (`key`, `watermark`): jobs of other schedulers have them.
It yields items (mappings, dataclasses, structs, pydantic models), or `Item`s, or whole `Batch`es. A single number or
text that it returns is no item: it becomes `returned` in the result of the execution.
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
from contextlib import aclosing
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

# Where a function keeps how `@app.collector` said that its items are read.
DECLARED_AS = "__floodmark_collector__"

# Items are kept together up to this many, or after this long: a slow source still commits as it goes.
BATCH_SIZE = 100
BATCH_SECONDS = 1.0

Pick = str | Callable[[Any], Any] | None

# Params that say how items of a function are read; the others are arguments of the function.
_READING = frozenset({"key", "watermark"})
# What a function is given by Floodmark; a param of that name would replace it.
_OURS = frozenset({"since", "context"})
# What an imported crontab says of a line; a function takes of it what it has arguments for.
_IMPORTED = frozenset({"command", "stdin", "user", "environment"})
# Params that stand for the arguments of a call as other schedulers write it.
ARGS, KWARGS = "*args", "**kwargs"
# Arguments of these names are written into KWARGS.
RESERVED = _READING | _OURS
_NO_ITEMS = (str, int, float, bool)
_LONGEST_TEXT = 2000


class Collector(Struct, frozen=True, kw_only=True):
    """A function and how to read what it yields."""

    function: Callable[..., Any]
    key: Pick = None
    """The field or function that gives an item its identity; without it, the content does."""
    watermark: Pick = None
    """The field or function whose value becomes `since`; without it the function starts over each time."""
    occurred_at: Pick = None
    batch_size: int = BATCH_SIZE


class UnknownCollector(InvalidInput):
    """A name that no collector of this process has; another process may have one."""


class PythonSource:
    """Collects what Python functions yield: declared collectors, and functions of the modules the operator lists.

    Any other function is refused, also when a job for it is already stored: whoever may change jobs must not be able
    to run code of their choice. With `imports=False`, `check` imports nothing: an API server does not load modules
    because a request names them.
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
        """Make the source of the modules in PYTHON_MODULES; `declare` adds the collectors of an application."""
        return cls({}, modules=[name.strip() for name in (settings.python_modules or "").split(",") if name.strip()])

    def declare(self, collectors: Mapping[str, Collector], *, imports: bool = True) -> None:
        """Collect from these collectors, too."""
        self._collectors, self._imports = collectors, imports

    def use_services(self, services: Services) -> None:
        """Run plain functions on the threads of the process."""
        self._threads = services.threads

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` names a collector, or a function of a listed module."""
        self._known(target, params)

    def param_names(self, target: str) -> frozenset[str] | None:
        """The arguments of the function, and what says how its items are read; None if it takes any, or is unknown."""
        try:
            collector = self._known(target, {})
        except InvalidInput:
            return None
        return None if collector is None else argument_names(collector.function)

    def _known(self, target: str, params: Mapping[str, Any]) -> Collector | None:
        """The collector; None for a function of a listed module that is not imported, and must not be."""
        if not self._imports and self._declared(target) is None:
            module = self._permitted(target)
            if module not in sys.modules:
                return None
        return self._find(target, params)

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Batches of what the function yields, in the order it yields them."""
        try:
            collector = self._find(target.name, target.params)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        return self._batches(collector, self._call(collector, target, since, context), context)

    def _find(self, name: str, params: Mapping[str, Any]) -> Collector:
        declared = self._declared(name)
        if declared is None:
            self._permitted(name)
            found = load(name)
            declared = found if isinstance(found, Collector) else getattr(found, DECLARED_AS, None)
            if not isinstance(declared, Collector):
                self._require_own(name, found)
                return Collector(function=found, key=params.get("key"), watermark=params.get("watermark"))
        if name not in self._collectors and _READING & params.keys():
            return Collector(function=declared.function, key=params.get("key"), watermark=params.get("watermark"))
        return declared

    def _declared(self, name: str) -> Collector | None:
        """The collector with this name, or the one whose function is `module:function`."""
        if name in self._collectors:
            return self._collectors[name]
        return next((each for each in self._collectors.values() if _path_of(each.function) == name), None)

    def _permitted(self, name: str) -> str:
        """The module of `module:function`, if the operator lists it."""
        module, colon, attribute = name.partition(":")
        if not colon and name.isidentifier():
            raise UnknownCollector(
                f"{name!r} names no function, and no collector of that name is declared here",
                hint="name a declared collector, or write package.module:function, for example myapp.feeds:news",
            )
        if not module or not attribute:
            raise _names_nothing(name)
        if not self._is_listed(module):
            raise InvalidInput(
                f"{name[:200]!r} is neither a declared collector nor in a module that the operator lists",
                hint=f"declare it with @app.collector, or let the operator set PYTHON_MODULES={module[:200]}",
            )
        return module

    def _is_listed(self, module: str) -> bool:
        return any(module == listed or module.startswith(f"{listed}.") for listed in self._modules)

    def _require_own(self, name: str, found: Any) -> None:
        """Refuse what a listed module has only imported, such as `myapp:os.system`."""
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
        shape = _shape(collector.function)
        # What a place is given for is not given by name as well.
        filled = shape.places[: len(args)]
        taken = {k: v for k, v in known.items() if (shape.takes_any or k in shape.names) and k not in filled} | kwargs
        # A plain function may block: it is called on a thread, like a generator is read on one.
        call = partial(collector.function, *args, **taken)
        return call() if shape.is_quick else call

    async def _batches(self, collector: Collector, yielded: Any, context: Context) -> AsyncIterator[Batch]:
        things = yielded if inspect.isasyncgen(yielded) else self._from_thread(yielded, context)
        pending: list[Any] = []
        trouble: Exception | None = None
        began = time.monotonic()
        try:
            while True:
                try:
                    thing = await anext(things)
                except StopAsyncIteration:
                    break
                except Exception as error:  # noqa: BLE001 - raised below, behind the items that came before it
                    trouble = error
                    break
                if isinstance(thing, Batch):
                    if pending:
                        yield _batch(collector, pending)
                    yield thing
                    pending, began = [], time.monotonic()
                    continue
                pending.append(thing)
                if len(pending) >= collector.batch_size or time.monotonic() - began > BATCH_SECONDS:
                    yield _batch(collector, pending)
                    pending, began = [], time.monotonic()
            if pending:
                yield _batch(collector, pending)
            if trouble is not None:
                # One that is told to wait after every few items would otherwise never get past them.
                raise trouble
        finally:
            # Its own `finally` runs now, not whenever it is collected as garbage.
            await things.aclose()

    async def _from_thread(self, yielded: Any, context: Context) -> AsyncGenerator[Any, None]:
        """What a coroutine, a function or a generator gives; the latter two may block, so they run on a thread."""
        loop = asyncio.get_running_loop()
        # What is known here of where we are, a thread knows too: its log lines and requests belong to this execution.
        there = copy_context().run
        if isinstance(yielded, partial):
            yielded = await loop.run_in_executor(self._threads, there, yielded)
        if inspect.isawaitable(yielded):
            yielded = await yielded
        if isinstance(yielded, AsyncIterable):
            # Behind a decorator, an async generator looks like a plain function.
            async with aclosing(_generated(yielded)) as generated:
                async for thing in generated:
                    yield thing
            return
        if isinstance(yielded, _NO_ITEMS):
            context.result["returned"] = yielded[:_LONGEST_TEXT] if isinstance(yielded, str) else yielded
            return
        if yielded is None or isinstance(yielded, Batch | Item | Mapping):
            yielded = [] if yielded is None else [yielded]
        things = iter(yielded)
        is_over = False
        try:
            while not is_over:
                part, is_over, error = await loop.run_in_executor(self._threads, there, _pull, things)
                for thing in part:
                    yield thing
                if error is not None:
                    raise error
        except GeneratorExit:
            if isinstance(things, Generator):
                await loop.run_in_executor(self._threads, there, things.close)
            raise


async def _generated(things: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    try:
        async for thing in things:
            yield thing
    finally:
        if isinstance(things, AsyncGenerator):
            await things.aclose()


def _pull(things: Iterator[Any]) -> tuple[list[Any], bool, Exception | None]:
    """A handful, or what comes within a moment; whether that was all; and what went wrong after it."""
    part: list[Any] = []
    deadline = time.monotonic() + BATCH_SECONDS
    try:
        for thing in islice(things, BATCH_SIZE):
            part.append(thing)
            if time.monotonic() > deadline:
                return part, False, None
    except Exception as error:  # noqa: BLE001 - raised again by the caller, behind the items that came before it
        return part, True, error
    return part, len(part) < BATCH_SIZE, None


def load(name: str) -> Any:
    """What `package.module:name` names."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise _names_nothing(name)
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
    """The params that a job for this function may have; None if it takes any."""
    shape = _shape(function)
    return None if shape.takes_any else (shape.names - _OURS) | _READING | _IMPORTED | {ARGS, KWARGS}


def _names_nothing(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name[:200]!r} names no function", hint="Write it as package.module:function, for example myapp.feeds:news"
    )


def _path_of(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"


class _Shape(Struct, frozen=True):
    """How a function is called: the names it takes, those that have a place, whether it takes any other name, and
    whether calling it returns at once."""

    names: frozenset[str]
    places: tuple[str, ...]
    takes_any: bool
    is_quick: bool


@lru_cache(maxsize=1024)
def _shape(function: Callable[..., Any]) -> _Shape:
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.isasyncgenfunction, inspect.isgeneratorfunction, inspect.iscoroutinefunction)
    return _Shape(
        names=frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)),
        places=tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
        is_quick=any(is_kind(function) for is_kind in kinds),
    )


def _batch(collector: Collector, things: Iterable[Any]) -> Batch:
    items, last = [], None
    for thing in things:
        items.append(thing if isinstance(thing, Item) else _item(collector, thing))
        last = thing.data if isinstance(thing, Item) else thing
    if collector.watermark is None:
        return Batch(items)
    return Batch(items, {"value": msgspec.to_builtins(_picked(last, collector.watermark, "watermark"))})


def _item(collector: Collector, thing: Any) -> Item:
    data = thing.model_dump(mode="json") if hasattr(thing, "model_dump") else thing
    key = _content(data) if collector.key is None else _picked(thing, collector.key, "key")
    occurred = None if collector.occurred_at is None else _picked(thing, collector.occurred_at, "occurred_at")
    return Item(str(key), data, _moment(occurred))


def _moment(value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise Permanent(
            f"{str(value)[:200]!r}, which is an item's occurred_at, is no time",
            hint="Yield a datetime, an ISO 8601 text, or seconds since 1970",
        ) from error


def _picked(thing: Any, pick: str | Callable[[Any], Any], what: str) -> Any:
    if callable(pick):
        return pick(thing)
    try:
        return thing[pick] if isinstance(thing, Mapping) else getattr(thing, pick)
    except (KeyError, AttributeError) as error:
        raise Permanent(
            f"an item has no {pick!r}, which is its {what}: {str(thing)[:200]}",
            hint=f"Yield {pick!r} in every item, or choose another {what}",
        ) from error


def _content(data: Any) -> str:
    try:
        encoded = msgspec.json.encode(data, order="deterministic")
    except UnicodeEncodeError:
        # Lone surrogates cannot be written as UTF-8, but as ASCII.
        encoded = json.dumps(msgspec.to_builtins(data), sort_keys=True).encode()
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()
