"""Options that several commands share, taken as one value."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, NamedTuple, get_type_hints


class Options(NamedTuple):
    """Beside the type of a field of a dataclass of options: the field is a dict of these parameters."""

    parameters: Mapping[str, inspect.Parameter]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, where a parameter of a dataclass of options stands for an option for each field of it."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: p.annotation for name, p in signature.parameters.items() if is_dataclass(p.annotation)
    }

    @wraps(command)
    def called(**given: Any) -> None:
        command(**{name: _made(group, given) for name, group in groups.items()}, **given)

    flat = [p.replace(kind=p.KEYWORD_ONLY) for name, p in signature.parameters.items() if name not in groups]
    for group in groups.values():
        for parameters in _parameters(group).values():
            flat += parameters
    called.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in flat}
    return called


def _made(group: Any, given: dict[str, Any]) -> Any:
    """Take the values of a group out of those given."""
    values: dict[str, Any] = {}
    for name, parameters in _parameters(group).items():
        taken = {parameter.name: given.pop(parameter.name) for parameter in parameters}
        values[name] = taken.get(name, taken)
    return group(**values)


def _parameters(group: Any) -> dict[str, list[inspect.Parameter]]:
    """Return the parameters of each field."""
    types, found = get_type_hints(group, include_extras=True), {}
    for field in fields(group):
        kind = types[field.name]
        many = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, Options)]
        own = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=kind)
        found[field.name] = list(many[0].parameters.values()) if many else [own]
    return found
