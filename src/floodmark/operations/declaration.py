"""How an operation is declared: once, as a method without a body.

    class LimitOperations:
        @put("/limits/{key}", role="operate", tag="Limits")
        async def set_limit(self, key: Key, seconds: Seconds, reason: Reason) -> LimitRow:
            '''Set a limit. ...'''

From the declaration follow the route and its entry in the OpenAPI document (`floodmark.api.derived`), the method of the
asynchronous and of the blocking client (`floodmark.client`), and the method that the command line calls. A class that
inherits the declaration and overrides the method is its handler (`floodmark.operations.handlers`); mypy compares them.

The first sentence of the docstring is the summary, the rest the description. The annotation of an argument says where
it travels: `Annotated[str, Path(...)]`, `Query`, `Body` or `Header`.
"""

import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial, wraps
from typing import (
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from msgspec import UNSET, Struct
from msgspec.structs import fields as fields_of

from floodmark.model.page import Page
from floodmark.model.tokens import Role

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Identity = Callable[[Any], Any]
# The largest page that a server sends.
MOST_ROWS = 200


class Place:
    """Where an argument travels, under which `name` and `type`, and how to convert it (`send`, `read`).

    `schema` goes into the OpenAPI document: description, examples and bounds, under the names that pydantic uses.
    """

    def __init__(
        self,
        description: str | None = None,
        *,
        name: str | None = None,
        type: Any = None,  # noqa: A002 - the word that fits
        send: Identity | None = None,
        read: Identity | None = None,
        required: bool = False,
        **schema: Any,
    ) -> None:
        self.name, self.type, self.send, self.read = name, type, send, read
        self.required, self.schema = required, schema | ({} if description is None else {"description": description})


class Path(Place):
    """A part of the path."""


class Query(Place):
    """A parameter of the query."""


class Header(Place):
    """A header, named with `_` instead of `-`."""


class Body(Place):
    """A field of the body."""


class Whole(Place):
    """The whole body."""


class Fields:
    """The fields of a struct: each travels as its own annotation says, else in `place`, some under other `names`."""

    def __init__(self, place: type[Place] | None = None, **names: str) -> None:
        self.place, self.names = place, names


class Param(Struct, frozen=True):
    """One value of a request: the argument of a method, or the field `part` of one."""

    argument: str
    part: str | None
    name: str
    place: Place
    type: Any
    default: Any = UNSET

    def value_to_send(self, arguments: Mapping[str, Any]) -> Any:
        """Return the value as it travels; None is left out of a request."""
        value = arguments[self.argument]
        if self.part is not None:
            value = getattr(value, self.part)
        return value if value is None or self.place.send is None else self.place.send(value)

    def read_value(self, value: Any) -> Any:
        """Return the value as the handler gets it."""
        return value if value is None or self.place.read is None else self.place.read(value)


class Envelope(Struct, frozen=True):
    """A response that is an object with the result in `field`; the values `beside` it are computed from the result."""

    name: str
    doc: str
    field: str
    description: str | None = None
    beside: Mapping[str, tuple[Any, Callable[[Any], Any], str | None]] = {}


# A list that fits into one response.
WHOLE_LIST = Envelope("Page", "Part of a list.", "items")


class AsyncCaller:
    """Carries out operations: over HTTP, or in this process."""

    async def call(self, operation: "Operation[Any, Any]", arguments: dict[str, Any]) -> Any:
        """Carry out one operation."""
        raise NotImplementedError(operation.name)


class BlockingCaller:
    """Carries out operations through `client`, and returns when they are done."""

    client: AsyncCaller

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns."""
        raise NotImplementedError

    def iterate(self, found: AsyncIterator[T]) -> Iterator[T]:
        """Yield what `found` yields."""
        raise NotImplementedError


class Derived(Generic[P, R_co]):
    """A method that is written once, in terms of operations, for every caller."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R_co]]) -> None:
        self._method, self.name, self.__doc__ = method, method.__name__, method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: BlockingCaller, owner: type) -> Callable[P, R_co]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, Coroutine[Any, Any, R_co]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Bind the method to its caller."""
        if instance is None:
            return self
        if not isinstance(instance, BlockingCaller):
            return self._bind(instance)

        @wraps(self._method)
        def wait(*args: P.args, **kwargs: P.kwargs) -> R_co:
            method: Callable[P, Coroutine[Any, Any, R_co]] = getattr(instance.client, self.name)
            return instance.wait(method(*args, **kwargs))

        return wait

    def _bind(self, instance: AsyncCaller) -> Callable[P, Coroutine[Any, Any, R_co]]:
        return self._method.__get__(instance)  # type: ignore[no-any-return]


class Operation(Derived[P, R_co]):
    """An operation as it was declared. The attributes up to `answers` are the options of a declaration."""

    method: Method
    path: str
    role: Role | None
    tag: str
    operation_id: str
    status: int = 200
    status_of: Callable[[Any], int] | None = None
    headers: Callable[[Any], dict[str, str]] | None = None
    envelope: Envelope | None = None
    # The type of the response in the OpenAPI document, where the result has none.
    model: Any = None
    # The name of the model of the body, its docstring and its schema; one of `floodmark.api.models`, or made.
    body: Sequence[Any] | None = None
    body_of: Callable[[Mapping[str, Any]], Any] | None = None
    is_body_required: bool | None = None
    is_content: bool = False
    is_private: bool = False
    # A POST that changes nothing: its arguments need a body.
    is_reading: bool = False
    # The request has an Idempotency-Key; the handler takes `job_id` and `may_exist`.
    is_repeatable: bool = False
    media: Sequence[str] = ()
    answers: Mapping[int, str] = {}

    def __init__(self, declared: Callable[Concatenate[Any, P], Coroutine[Any, Any, R_co]], **options: Any) -> None:
        super().__init__(declared)
        self.module, self.operation_id = declared.__module__, self.name
        for name, value in options.items():
            assert name in Operation.__annotations__, name
            setattr(self, name, value)
        summary, *rest = re.split(r"\.\s+", inspect.cleandoc(self.__doc__ or ""), maxsplit=1)
        self.summary = summary.removesuffix(".")
        self.description = rest[0] if rest else summary

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature without `self`, its annotations resolved."""
        found, hints = inspect.signature(self._method), self._hints
        _, *rest = found.parameters.values()
        return found.replace(parameters=[one.replace(annotation=hints[one.name]) for one in rest])

    @cached_property
    def params(self) -> Sequence[Param]:
        """Every value of a request."""
        return [param for one in self.signature.parameters.values() for param in _params(one)]

    @cached_property
    def returns(self) -> Any:
        """The type of the result."""
        return self._hints["return"]

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._method, include_extras=True)

    def params_in(self, *places: type[Place]) -> list[Param]:
        """Return the values that travel in these places."""
        return [param for param in self.params if isinstance(param.place, places)]

    def arguments_of(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the method, from the values of a request."""
        found: dict[str, Any] = {}
        for param in self.params:
            if received.get(param.name) is None and (param.default is not UNSET or param.name not in received):
                # Left out: the default of the handler counts.
                continue
            value = param.read_value(received[param.name])
            if param.part is None:
                found[param.argument] = value
            else:
                found.setdefault(param.argument, {})[param.part] = value
        for one in self.signature.parameters.values():
            struct, place = _split(one.annotation)
            if isinstance(place, Fields):
                found[one.name] = struct(**found.get(one.name, {}))
        return found

    def _bind(self, instance: AsyncCaller) -> Callable[P, Coroutine[Any, Any, R_co]]:
        @wraps(self._method)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R_co:
            given = self.signature.bind(*args, **kwargs)
            given.apply_defaults()
            result: R_co = await instance.call(self, given.arguments)
            return result

        return call


class Each(Generic[P, T]):
    """Every row of a list, page by page. `limit` is the number of rows to ask for at once."""

    def __init__(self, pages: Operation[P, Page[T]]) -> None:
        self._pages = pages
        self.__doc__ = f"Yield every row of `{pages.name}`, page by page."

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: BlockingCaller, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Bind the list to its caller."""
        if instance is None:
            return self
        if isinstance(instance, BlockingCaller):
            return lambda *args, **kwargs: instance.iterate(self._rows(instance.client, *args, **kwargs))
        return lambda *args, **kwargs: self._rows(instance, *args, **kwargs)

    async def _rows(self, caller: AsyncCaller, *args: Any, **kwargs: Any) -> AsyncIterator[T]:
        pages, kwargs = getattr(caller, self._pages.name), {"limit": MOST_ROWS, **kwargs}
        while True:
            page: Page[T] = await pages(*args, **kwargs)
            for row in page.items:
                yield row
            if page.next is None:
                return
            kwargs["cursor"] = page.next


class DerivedEach(Generic[P, T]):
    """An iterator that is written once, in terms of operations, for every caller."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]]) -> None:
        self._method, self.__doc__ = method, method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: BlockingCaller, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Bind the iterator to its caller."""
        if instance is None:
            return self
        if isinstance(instance, BlockingCaller):
            return lambda *args, **kwargs: instance.iterate(self._method(instance.client, *args, **kwargs))
        return self._method.__get__(instance)


class Declare:
    """The decorator of a declaration; the options are attributes of `Operation`."""

    def __init__(self, method: Method, path: str, *, role: Role | None, tag: str, **options: Any) -> None:
        self._options = {"method": method, "path": path, "role": role, "tag": tag, **options}

    def __call__(  # noqa: D102 - as the class says
        self, declared: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
    ) -> Operation[P, T]:
        return Operation(declared, **self._options)


get = partial(Declare, "GET", role="read")
post = partial(Declare, "POST", role="operate")
put = partial(Declare, "PUT", role="operate")
patch = partial(Declare, "PATCH", role="admin")
delete = partial(Declare, "DELETE", role="admin")


def operations_of(declarations: type) -> list[Operation[Any, Any]]:
    """Return the operations that a class declares or inherits, in the order of its declarations."""
    found = {
        name: value for one in declarations.__mro__ for name, value in vars(one).items() if isinstance(value, Operation)
    }
    return list(found.values())


def _params(one: inspect.Parameter) -> Iterator[Param]:
    struct, place = _split(one.annotation)
    default = UNSET if one.default is inspect.Parameter.empty else one.default
    if isinstance(place, Place):
        yield _param(one.name, None, struct, place, default)
        return
    if place is None:
        # `body_of` sends it.
        return
    hints = get_type_hints(struct, include_extras=True)
    for field in fields_of(struct):
        kind, where = _split(hints[field.name])
        if where is None and place.place is not None:
            where = place.place(name=place.names.get(field.name))
        if isinstance(where, Place):
            yield _param(one.name, field.name, kind, where, UNSET if field.required else field.default)


def _param(argument: str, part: str | None, kind: Any, place: Place, default: Any) -> Param:
    if place.send is None and kind in (timedelta, timedelta | None):
        # Durations travel as seconds.
        seconds = float if kind is timedelta else float | None
        convert: Any = {"send": timedelta.total_seconds, "read": lambda value: timedelta(seconds=value)}
        place = type(place)(name=place.name, type=seconds, **convert, **place.schema)
    if place.required:
        default = UNSET
    elif default is not UNSET and default is not None and place.send is not None:
        default = place.send(default)
    name = place.name or part or argument
    return Param(argument, part, name, place, kind if place.type is None else place.type, default)


def _split(annotation: Any) -> tuple[Any, Any]:
    """Return a type, and the place that its annotation names."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    kind, *rest = get_args(annotation)
    place = next((one for one in rest if isinstance(one, Place | Fields)), None)
    others = [one for one in rest if one is not place]
    return (Annotated.__class_getitem__((kind, *others)) if others else kind), place
