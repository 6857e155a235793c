"""The options of a source in a form. They follow from its `JobForm`, as the options of `floodmark add` do. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from floodmark.errors import InvalidInput
from floodmark.sources.form import JobForm, ParamOption

from .field_texts import object_of
from .refusals import PageRefusals

PARAMS = "params"
_TRUTH = {"yes": True, "no": False}


class OptionField(Struct, frozen=True, kw_only=True):
    """An option of a source with the text in its field. `shape`: `text`, `lines` or `choice`."""

    name: str
    label: str
    help: str
    shape: str
    text: str
    option: ParamOption


def option_fields(source: str, form: JobForm, texts: Mapping[str, str]) -> list[OptionField]:
    """Return the fields of the options of a source."""
    return [
        OptionField(
            name=name,
            label=option.param.replace("_", " ").capitalize(),
            help=option.help.replace("; can be repeated", "; one per line"),
            shape=_shape_of(option),
            text=texts.get(name, ""),
            option=option,
        )
        for option in form.options
        for name in [field_name(source, option)]
    ]


def _shape_of(option: ParamOption) -> str:
    if option.kind is bool:
        return "choice"
    return "lines" if option.kind == list[str] or option.is_file else "text"


def field_name(source: str, option: ParamOption) -> str:
    """Return the name of the field of an option."""
    return f"option.{source}.{option.param}"


def texts_of_params(source: str, form: JobForm, params: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the texts of the options that params set, and the params that no option can set."""
    texts, others = {}, dict(params)
    for option in form.options:
        value = others.get(option.param)
        text = None if value is None else _text_of(option, value)
        if text is not None:
            texts[field_name(source, option)] = text
            del others[option.param]
    return texts, others


def _text_of(option: ParamOption, value: Any) -> str | None:
    """Return the text of a value; None if the option cannot have it."""
    if option.kind is bool:
        return {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else None
    if option.kind == list[str]:
        is_fit = isinstance(value, list) and all(isinstance(one, str) and "\n" not in one for one in value)
        return "\n".join(value) if is_fit else None
    is_plain = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value) if is_plain else None


def read_params(
    source: str, form: JobForm, fields: Mapping[str, list[str]], before: Mapping[str, Any], refusals: PageRefusals
) -> dict[str, Any]:
    """Return the params that a form describes: its options, and the JSON of all others.

    An option whose text has not changed keeps the value that it has in `before`.
    """
    found: dict[str, Any] = {}
    try:
        found |= object_of(PARAMS, fields.get(PARAMS, [""])[0])
    except InvalidInput as error:
        refusals.add(PARAMS, error)
    for option in form.options:
        name = field_name(source, option)
        text = fields.get(name, [""])[0].strip()
        if option.is_file:
            # Browsers send the line breaks of a form in their own way.
            text = text.replace("\r\n", "\n")
        if not text:
            continue
        known = before.get(option.param)
        try:
            is_same = known is not None and _text_of(option, known) == text
            found[option.param] = known if is_same else _value_of(option, text)
        except InvalidInput as error:
            refusals.add(name, error)
    return found


def _value_of(option: ParamOption, text: str) -> Any:
    if option.kind is bool:
        return _TRUTH.get(text)
    if option.kind == list[str]:
        return [line.strip() for line in text.splitlines() if line.strip()]
    if option.kind is int:
        try:
            number = int(text)
        except ValueError:
            raise InvalidInput(f"{option.param} is {text[:60]!r}", hint="use a whole number") from None
        if option.min is not None and number < option.min:
            raise InvalidInput(f"{option.param} is {number}", hint=f"use at least {option.min}")
        return number
    return text
