"""Options that several commands share, passed to them as one dataclass."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, NamedTuple, get_type_hints


class Options(NamedTuple):
    """Annotates a dataclass field that is a dict of several options."""

    parameters: Mapping[str, inspect.Parameter]


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option per field of each dataclass among its parameters."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: p.annotation for name, p in signature.parameters.items() if is_dataclass(p.annotation)
    }

    @wraps(command)
    def call(**given: Any) -> None:
        command(**{name: _take_group(group, given) for name, group in groups.items()}, **given)

    flat = [p.replace(kind=p.KEYWORD_ONLY) for name, p in signature.parameters.items() if name not in groups]
    for group in groups.values():
        for parameters in _parameters(group).values():
            flat += parameters
    call.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in flat}
    return call


def _take_group(group: Any, given: dict[str, Any]) -> Any:
    """Remove the values of a group from `given` and return the group."""
    values: dict[str, Any] = {}
    for name, parameters in _parameters(group).items():
        taken = {parameter.name: given.pop(parameter.name) for parameter in parameters}
        values[name] = taken.get(name, taken)
    return group(**values)


def _parameters(group: Any) -> dict[str, list[inspect.Parameter]]:
    types, found = get_type_hints(group, include_extras=True), {}
    for field in fields(group):
        kind = types[field.name]
        many = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, Options)]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        own = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        found[field.name] = list(many[0].parameters.values()) if many else [own]
    return found
