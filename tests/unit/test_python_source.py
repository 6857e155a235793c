"""A person's own function as a source: what it may be, what it may yield, and what it is told."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from floodmark.errors import InvalidInput, Permanent, SlowDown
from floodmark.importers.apscheduler import params_of_call
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.sources import python
from floodmark.sources.port import Context, Target
from floodmark.sources.python import Collector, PythonSource
from floodmark.testing.contracts.source import a_context
from floodmark.testing.eventually import eventually

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def collecting(
    function: Callable[..., Any],
    *,
    since: Watermark | None = None,
    params: dict[str, Any] | None = None,
    context: Context | None = None,
    **options: Any,
) -> AsyncIterator[Batch]:
    source = PythonSource({"it": Collector(function=function, **options)})
    target = Target(name="it", stream="python:it", params=params or {})
    return source.collect(target, since, context or a_context())


async def batches(function: Callable[..., Any], **options: Any) -> list[Batch]:
    return [batch async for batch in collecting(function, **options)]


async def items(function: Callable[..., Any], **options: Any) -> list[Item]:
    return [item for batch in await batches(function, **options) for item in batch.items]


def posts(number: int) -> list[dict[str, int]]:
    return [{"id": n} for n in range(number)]


# What it may be


async def test_an_async_generator() -> None:
    async def it() -> AsyncIterator[dict[str, int]]:
        for post in posts(3):
            yield post

    assert [item.key for item in await items(it, key="id")] == ["0", "1", "2"]


async def test_a_generator_is_read_on_a_thread() -> None:
    """It may block without stopping everything else."""
    seen: list[str] = []

    def it() -> Iterator[dict[str, int]]:
        for post in posts(3):
            seen.append(threading.current_thread().name)
            yield post

    assert [item.key for item in await items(it, key="id")] == ["0", "1", "2"]
    assert threading.current_thread().name not in seen


async def test_a_plain_function_is_called_on_a_thread() -> None:
    seen: list[str] = []

    def it() -> list[dict[str, int]]:
        seen.append(threading.current_thread().name)
        return posts(3)

    assert [item.key for item in await items(it, key="id")] == ["0", "1", "2"]
    assert threading.current_thread().name not in seen


async def test_a_function_that_never_blocks_needs_no_thread() -> None:
    seen: list[str] = []

    def gen() -> Iterator[dict[str, int]]:
        for post in posts(3):
            seen.append(threading.current_thread().name)
            yield post

    def it() -> list[dict[str, int]]:
        return list(gen())

    for function in (gen, it):
        assert [item.key for item in await items(function, key="id", blocking=False)] == ["0", "1", "2"]
    assert set(seen) == {threading.current_thread().name}


async def test_a_returned_list_is_not_passed_to_a_thread() -> None:
    """An async function does not block, and neither does its list."""

    class NoThreads(Executor):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("a thread was used")

    async def it() -> list[dict[str, int]]:
        return posts(3)

    source = PythonSource({"it": Collector(function=it, key="id")}, NoThreads())
    [batch] = [one async for one in source.collect(Target(name="it", stream="s", params={}), None, a_context())]
    assert [item.key for item in batch.items] == ["0", "1", "2"]


async def test_a_coroutine_that_returns_a_list() -> None:
    async def it() -> list[dict[str, int]]:
        await asyncio.sleep(0)
        return posts(3)

    assert [item.key for item in await items(it, key="id")] == ["0", "1", "2"]


async def test_an_async_generator_behind_a_decorator() -> None:
    """Then it looks like a plain function."""

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @traced
    async def it() -> AsyncIterator[dict[str, int]]:
        for post in posts(3):
            yield post

    assert [item.key for item in await items(it, key="id")] == ["0", "1", "2"]


@pytest.mark.parametrize("nothing", [None, [], (), {}.values(), iter(())])
async def test_a_function_that_finds_nothing(nothing: Any) -> None:
    assert await batches(lambda: nothing) == []


@pytest.mark.parametrize("one", [{"id": 1}, Item("1", {"id": 1}), Batch([Item("1", {"id": 1})])])
async def test_a_function_that_returns_a_single_thing(one: Any) -> None:
    assert await items(lambda: one, key="id") == [Item("1", {"id": 1})]


# What it may yield


@dataclass
class Post:
    id: int


class PostStruct(Struct):
    id: int


class PostModel(BaseModel):
    id: int
    at: datetime = NOON


@pytest.mark.parametrize("post", [{"id": 1}, Post(1), PostStruct(1), PostModel(id=1)])
async def test_the_key_is_a_field(post: Any) -> None:
    assert [item.key for item in await items(lambda: [post], key="id")] == ["1"]


async def test_a_pydantic_model_is_kept_as_its_json() -> None:
    [item] = await items(lambda: [PostModel(id=1)], key="id")
    assert item.data == {"id": 1, "at": "2026-06-01T12:00:00Z"}


async def test_the_key_is_what_a_function_says() -> None:
    assert [item.key for item in await items(lambda: posts(2), key=lambda post: f"post-{post['id']}")] == [
        "post-0",
        "post-1",
    ]


async def test_without_a_key_the_content_is_the_identity() -> None:
    """However the fields are ordered."""
    found = await items(lambda: [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}, "lone \ud83d"])
    assert found[0].key == found[1].key != found[2].key
    assert len({item.key for item in found}) == 3


async def test_items_are_taken_as_they_are() -> None:
    item = Item("mine", {"id": 1}, NOON, "print", deleted=True)
    assert await items(lambda: [item], key="id") == [item]


async def test_whole_batches_are_passed_on_in_order() -> None:
    """What was yielded before one is kept before it."""
    mine = Batch([Item("x", 0)], {"page": 2})

    async def it() -> AsyncIterator[Any]:
        yield {"id": 1}
        yield mine
        yield {"id": 2}

    first, second, third = await batches(it, key="id", watermark="id")
    assert (first.watermark, second, third.watermark) == ({"value": 1}, mine, {"value": 2})


async def test_a_missing_key_says_what_to_do() -> None:
    with pytest.raises(Permanent, match="no 'id', which is its key") as caught:
        await batches(lambda: [{"name": "x"}], key="id")
    assert caught.value.hint == "Yield 'id' in every item, or choose another key"


@pytest.mark.parametrize(
    "at", [NOON, "2026-06-01T12:00:00Z", "2026-06-01T14:00:00+02:00", NOON.timestamp(), int(NOON.timestamp())]
)
async def test_the_time_of_an_item_may_be_written_in_several_ways(at: Any) -> None:
    [item] = await items(lambda: [{"id": 1, "at": at}], key="id", occurred_at="at")
    assert item.occurred_at == NOON


async def test_an_item_may_have_no_time() -> None:
    [item] = await items(lambda: [{"id": 1, "at": None}], key="id", occurred_at="at")
    assert item.occurred_at is None


@pytest.mark.parametrize("at", ["yesterday", [], 1e300, float("nan")])
async def test_a_time_that_is_none_says_what_to_do(at: Any) -> None:
    with pytest.raises(Permanent, match="is not a time") as caught:
        await batches(lambda: [{"id": 1, "at": at}], key="id", occurred_at="at")
    assert "ISO 8601" in caught.value.hint


# What it is told


@pytest.mark.spec("G3")
async def test_the_watermark_becomes_since() -> None:
    told: list[Any] = []

    async def it(since: int | None) -> AsyncIterator[dict[str, int]]:
        told.append(since)
        for post in posts(5):
            yield post

    found = await batches(it, key="id", watermark="id", batch_size=2)
    assert [batch.watermark for batch in found] == [{"value": 1}, {"value": 3}, {"value": 4}]
    await batches(it, key="id", since=found[-1].watermark)
    assert told == [None, 4]


async def test_a_watermark_is_plain_json() -> None:
    """A time becomes its text, which is what the function gets back."""
    [batch] = await batches(lambda: [{"at": NOON}], watermark="at")
    assert batch.watermark == {"value": "2026-06-01T12:00:00Z"}


async def test_without_a_watermark_it_is_not_moved() -> None:
    assert [batch.watermark for batch in await batches(lambda: posts(2), key="id")] == [None]


async def test_it_gets_what_it_asks_for_by_name() -> None:
    told: dict[str, Any] = {}

    def it(depth: int, context: Context, breadth: int = 7) -> None:
        told.update(depth=depth, breadth=breadth, attempt=context.attempt)

    await batches(it, params={"depth": 3, "unused": 1}, context=a_context(attempt=2))
    assert told == {"depth": 3, "breadth": 7, "attempt": 2}


async def test_it_gets_everything_if_it_takes_anything() -> None:
    told: dict[str, Any] = {}

    def it(**everything: Any) -> None:
        told.update(everything)

    await batches(it, params={"depth": 3})
    assert (told["depth"], told["since"]) == (3, None)
    assert isinstance(told["context"], Context)


# How it is kept


@pytest.mark.spec("G6")
async def test_items_are_kept_in_batches() -> None:
    assert [len(batch.items) for batch in await batches(lambda: posts(7), key="id", batch_size=3)] == [3, 3, 1]
    assert [len(batch.items) for batch in await batches(lambda: posts(250), key="id")] == [100, 100, 50]


@pytest.fixture
def half_a_second_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock finds it half a second later."""
    looks = count()
    monkeypatch.setattr("floodmark.sources.python.time.monotonic", lambda: next(looks) / 2)


@pytest.mark.usefixtures("half_a_second_each_look")
async def test_a_slow_source_is_kept_as_it_goes() -> None:
    async def it() -> AsyncIterator[dict[str, int]]:
        for post in posts(9):
            yield post

    assert [len(batch.items) for batch in await batches(it, key="id")] == [3, 3, 3]


async def test_a_slow_generator_is_kept_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its items are not held back until there are a hundred of them."""
    monkeypatch.setattr(python, "BATCH_SECONDS", 0.0)
    seen: list[int] = []

    def it() -> Iterator[dict[str, int]]:
        for post in posts(5):
            seen.append(post["id"])
            yield post

    found = [(len(batch.items), len(seen)) async for batch in collecting(it, key="id")]
    assert found == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]


def failing_generator() -> Iterator[dict[str, int]]:
    yield from posts(3)
    raise SlowDown(NOON - NOON, "key")


async def failing_async_generator() -> AsyncIterator[dict[str, int]]:
    for post in posts(3):
        yield post
    raise SlowDown(NOON - NOON, "key")


@pytest.mark.spec("G5")
@pytest.mark.parametrize("it", [failing_generator, failing_async_generator])
async def test_what_came_before_trouble_is_kept(it: Callable[..., Any]) -> None:
    """Or a source that is told to wait after every few items would never get past them."""
    collection = collecting(it, key="id", watermark="id")

    batch = await anext(collection)

    assert (len(batch.items), batch.watermark) == (3, {"value": 2})
    with pytest.raises(SlowDown):
        await anext(collection)


# How it ends


@pytest.mark.spec("G7")
@pytest.mark.parametrize(("is_async", "blocking"), [(True, True), (False, True), (False, False)])
async def test_what_it_holds_is_let_go_when_it_is_left_half_way(is_async: bool, blocking: bool) -> None:
    ended = threading.Event()

    async def agen() -> AsyncIterator[dict[str, int]]:
        try:
            for post in posts(500):
                yield post
        finally:
            await asyncio.sleep(0)
            ended.set()

    def gen() -> Iterator[dict[str, int]]:
        try:
            yield from posts(500)
        finally:
            ended.set()

    collection: Any = collecting(agen if is_async else gen, key="id", batch_size=2, blocking=blocking)
    await anext(collection)
    assert not ended.is_set()
    await collection.aclose()
    assert ended.is_set()


async def test_a_blocked_function_does_not_block_its_end() -> None:
    """A thread cannot be interrupted, but the slot it was called from is free at once."""
    let_go, began = threading.Event(), threading.Event()

    def it() -> None:
        began.set()
        let_go.wait(120)

    task = asyncio.ensure_future(anext(collecting(it)))
    await eventually(began.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    let_go.set()


# Finding it


async def test_a_function_is_found_by_its_import_path() -> None:
    source = PythonSource({}, modules=["test_python_source"])
    target = Target(name="test_python_source:posts", stream="s", params={"number": 2, "key": "id", "watermark": "id"})
    [batch] = [batch async for batch in source.collect(target, None, a_context())]
    assert ([item.key for item in batch.items], batch.watermark) == (["0", "1"], {"value": 1})


async def test_a_function_that_is_gone_is_a_dead_letter() -> None:
    """Trying again will not bring it back; the message says what to do."""
    source = PythonSource({}, modules=["no_such_module"])
    with pytest.raises(Permanent, match="no_such_module") as caught:
        source.collect(Target(name="no_such_module:f", stream="s", params={}), None, a_context())
    assert caught.value.hint


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    "name", ["", "f", ":f", "module:", "no_such_module:f", "floodmark.model.ids:f", "floodmark.model.ids:os.sep"]
)
def test_what_names_no_function_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        PythonSource({}, modules=["no_such_module", "floodmark.model.ids"]).check(name, {})
    assert caught.value.hint


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:run",
        "builtins:exec",
        "test_python_source_other:f",
        "test_python_source:asyncio.create_subprocess_shell",
        "test_python_source:functools.reduce",
    ],
)
def test_only_functions_of_listed_modules_are_called(name: str) -> None:
    """Neither another module, nor what a listed one has imported; also when the job is stored already."""
    source = PythonSource({}, modules=["test_python_source"])
    with pytest.raises(InvalidInput, match="operator") as caught:
        source.check(name, {})
    assert "PYTHON_MODULES" in caught.value.hint
    with pytest.raises(Permanent, match="operator"):
        source.collect(Target(name=name, stream="s", params={"command": "true"}), None, a_context())


# As other schedulers call it


def places(one: Any, two: Any = "b") -> list[Any]:
    return [one, two]


def named_like_ours(context: Any, since: Any, key: Any = None) -> list[Any]:
    return [context, since, key]


def any_place(*args: Any) -> list[Any]:
    return list(args)


def everything(*args: Any, key: Any = None, **kwargs: Any) -> list[Any]:
    return [*args, key, *(kwargs[name] for name in sorted(kwargs) if name not in ("context", "since"))]


def only_places(one: Any, two: Any, /) -> list[Any]:
    return [one, two]


def args_by_name(args: Any) -> list[Any]:
    return [args]


class Report:
    """Something with methods."""

    @classmethod
    def build(cls, one: Any, *, two: Any) -> list[Any]:
        return [one, two]

    @staticmethod
    async def send(one: Any, two: Any) -> list[Any]:
        return [one, two]


@pytest.mark.spec("E10")
@pytest.mark.parametrize(
    ("function", "args", "kwargs", "got"),
    [
        (places, ["a"], {}, ["a", "b"]),
        (places, ["a", "c"], {}, ["a", "c"]),
        (places, ["a"], {"two": "c"}, ["a", "c"]),
        (places, [], {"one": 1, "two": 2}, [1, 2]),
        (places, [None, [1]], {}, [None, [1]]),
        (named_like_ours, [1, 2], {}, [1, 2, None]),
        (named_like_ours, [1, 2, 3], {}, [1, 2, 3]),
        (named_like_ours, [1], {"since": 2, "key": 3}, [1, 2, 3]),
        (any_place, [1, 2, 3], {}, [1, 2, 3]),
        (everything, [1], {"x": 2, "key": 9}, [1, 9, 2]),
        (only_places, [1, 2], {}, [1, 2]),
        (args_by_name, [7], {}, [7]),
        (args_by_name, [], {"args": [7]}, [[7]]),
        (Report.build, [1], {"two": 2}, [1, 2]),
        (Report.send, [1, 2], {}, [1, 2]),
        (functools.partial(places, "p"), ["q"], {}, ["p", "q"]),
    ],
)
async def test_arguments_are_given_as_another_scheduler_gave_them(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], got: list[Any]
) -> None:
    assert [item.data for item in await items(function, params=params_of_call(args, kwargs))] == got


@pytest.mark.spec("E10")
@pytest.mark.parametrize("returned", [5, 0.5, True, "sent 3 mails"])
async def test_a_number_or_a_text_that_is_returned_is_a_result_and_no_item(returned: Any) -> None:
    context = a_context()
    assert await items(lambda: returned, context=context) == []
    assert context.result == {"returned": returned}
