"""The API reference, from the OpenAPI document. Pure: the document in, values for the template out."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace

_REF = "#/components/schemas/"
_METHODS = ("get", "post", "put", "patch", "delete")
_CODE = re.compile(r"`([^`]+)`")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
}


class FieldType(Struct, frozen=True):
    """The type of a value in words. `links` are the names of objects in it."""

    text: str
    links: tuple[str, ...] = ()


class ReferenceField(Struct, frozen=True, kw_only=True):
    """A parameter, or a field of an object."""

    name: str
    place: str
    type: FieldType
    is_required: bool
    description: str
    notes: tuple[str, ...]


class ReferenceResponse(Struct, frozen=True):
    """A response: its status, what it means, and its type."""

    status: str
    description: str
    type: FieldType


class ReferenceObject(Struct, frozen=True):
    """An object of requests or responses."""

    name: str
    description: str
    fields: tuple[ReferenceField, ...]


class ReferenceOperation(Struct, frozen=True, kw_only=True):
    """One operation of the API."""

    name: str
    method: str
    path: str
    role: str | None
    summary: str
    description: str
    parameters: tuple[ReferenceField, ...]
    body: ReferenceObject | None
    body_example: str | None
    responses: tuple[ReferenceResponse, ...]
    errors: tuple[str, ...]
    example_path: str


class ReferenceGroup(Struct, frozen=True):
    """The operations of one subject."""

    name: str
    anchor: str
    description: str
    operations: tuple[ReferenceOperation, ...]


class Reference(Struct, frozen=True):
    """The whole reference."""

    about: str
    groups: tuple[ReferenceGroup, ...]
    objects: tuple[ReferenceObject, ...]


def build_reference(document: Mapping[str, Any], roles: Mapping[str, str | None]) -> Reference:
    """Return the reference of a document. `roles`: the role that an operation needs, by its id."""
    schemas = document["components"]["schemas"]
    found = [
        (spec["tags"][0], _operation(path, method, spec, schemas, roles))
        for path, methods in document["paths"].items()
        for method in _METHODS
        if (spec := methods.get(method)) is not None
    ]
    groups = [
        ReferenceGroup(
            tag["name"],
            anchor_of(tag["name"]),
            tag.get("description", ""),
            tuple(operation for name, operation in found if name == tag["name"]),
        )
        for tag in document["tags"]
    ]
    objects = tuple(_object(name, schemas[name], schemas) for name in sorted(schemas) if _is_object(schemas[name]))
    return Reference(document["info"]["description"], tuple(group for group in groups if group.operations), objects)


def matching(reference: Reference, text: str) -> Reference:
    """Return the operations and objects in which all words of a text occur."""
    words = text.lower().split()
    groups = [
        ReferenceGroup(
            group.name,
            group.anchor,
            group.description,
            tuple(one for one in group.operations if all(word in find_text(one) for word in words)),
        )
        for group in reference.groups
    ]
    objects = tuple(one for one in reference.objects if all(word in one.name.lower() for word in words))
    return Reference(reference.about, tuple(group for group in groups if group.operations), objects)


def find_text(operation: ReferenceOperation) -> str:
    """Return the text in which a search looks for an operation."""
    names = " ".join(field.name for field in operation.parameters)
    words = (operation.name, operation.method, operation.path, operation.summary, operation.description, names)
    return " ".join(words).lower()


def anchor_of(text: str) -> str:
    """Return the anchor of a subject; those of the page frame have no such beginning."""
    return f"tag-{re.sub(r'[^a-z0-9]+', '-', text.lower()).strip('-')}"


def prose(text: str) -> Markup:
    """Return a description as markup: paragraphs, lists, `code` and **bold**. Everything else is escaped."""
    blocks = [block.strip("\n") for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
    return Markup("").join(_block(block.splitlines()) for block in blocks)


def curl_line(operation: ReferenceOperation, base: str, *, has_token: bool = True) -> str:
    """Return the command that calls an operation at this address, with a token if one is needed there."""
    method = "" if operation.method == "GET" else f" -X {operation.method}"
    url = f"{base}{operation.example_path}"
    # A shell would read `&` as the end of the command.
    words = [f"curl{method} {chr(39)}{url}{chr(39)}" if re.search(r"[?&{}*]", url) else f"curl{method} {url}"]
    if operation.role is not None and has_token:
        words.append('-H "Authorization: Bearer $FLOODMARK_TOKEN"')
    if operation.body_example is not None:
        words.append(f"-d '{operation.body_example}'".replace("\n", "\n  "))
    return " \\\n  ".join(words)


def _block(lines: Sequence[str]) -> Markup:
    pieces, texts = Markup(""), list[str]()
    items: list[str] = []
    for line in lines:
        if line.lstrip().startswith("- "):
            items.append(line.lstrip()[2:])
        elif items:
            items[-1] += f" {line.strip()}"
        else:
            texts.append(line.strip())
    if texts:
        pieces += Markup("<p>{}</p>").format(_inline(" ".join(texts)))
    if items:
        listed = Markup("").join(Markup("<li>{}</li>").format(_inline(item)) for item in items)
        pieces += Markup("<ul>{}</ul>").format(listed)
    return pieces


def _inline(text: str) -> Markup:
    parts = _CODE.split(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else _bold(part) for at, part in enumerate(parts)
    )


def _bold(text: str) -> Markup:
    parts = _BOLD.split(text)
    return Markup("").join(
        Markup("<b>{}</b>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def _operation(
    path: str,
    method: str,
    spec: Mapping[str, Any],
    schemas: Mapping[str, Any],
    roles: Mapping[str, str | None],
) -> ReferenceOperation:
    parameters = tuple(_parameter(one, schemas) for one in spec.get("parameters", ()))
    content = spec.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema")
    # A body that may be left out is an object or null.
    named = None if schema is None else next(iter(type_of(schema).links), None)
    body = None if named is None else _object(named, schemas[named], schemas)
    responses = [(status, one) for status, one in spec["responses"].items() if "$ref" not in one]
    return ReferenceOperation(
        name=spec["operationId"],
        method=method.upper(),
        path=path,
        role=roles.get(spec["operationId"], "read"),
        summary=spec.get("summary", ""),
        description=spec.get("description", ""),
        parameters=parameters,
        body=body,
        body_example=None if schema is None else _body_example(schema, schemas),
        responses=tuple(_response(status, one) for status, one in sorted(responses)),
        errors=tuple(sorted(status for status, one in spec["responses"].items() if "$ref" in one)),
        example_path=_example_path(path, spec.get("parameters", ()), schemas),
    )


def _parameter(spec: Mapping[str, Any], schemas: Mapping[str, Any]) -> ReferenceField:
    found = _field(spec["name"], spec["schema"], schemas, place=spec["in"], is_required=spec.get("required", False))
    # Null is a parameter that is left out.
    return replace(found, type=FieldType(found.type.text.removesuffix(" or null"), found.type.links))


def _object(name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> ReferenceObject:
    required = schema.get("required", ())
    fields = (
        _field(field, inner, schemas, is_required=field in required)
        for field, inner in schema.get("properties", {}).items()
    )
    return ReferenceObject(name, schema.get("description", ""), tuple(fields))


def _field(
    name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any], *, place: str = "", is_required: bool
) -> ReferenceField:
    return ReferenceField(
        name=name,
        place=place,
        type=type_of(schema),
        is_required=is_required,
        description=schema.get("description", ""),
        notes=tuple(_notes(schema)),
    )


def _notes(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the bounds, the default and an example of a value."""
    for one in (schema, *schema.get("anyOf", ())):
        for name, text in _BOUNDS.items():
            # A text without a character is no value: nothing to say.
            if name in one and not (name == "minLength" and one[name] == 1):
                yield text.format(_number(one[name]))
        if "pattern" in one:
            yield f"pattern {one['pattern']}"
    if schema.get("default") not in (None, [], {}, ""):
        default = schema["default"]
        shown = _number(default) if isinstance(default, float) else json.dumps(default, ensure_ascii=False)
        yield f"default {shown}"
    if schema.get("examples"):
        yield f"for example {json.dumps(schema['examples'][0], ensure_ascii=False)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def type_of(schema: Mapping[str, Any]) -> FieldType:
    """Return a type in words: "string or null", "array of JobOut"."""
    name = _named(schema)
    if name is not None:
        return FieldType(name, (name,))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _joined([type_of(one) for one in schema[word]])
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return FieldType(" | ".join(json.dumps(value) for value in values))
    return _plain_type(schema)


def _plain_type(schema: Mapping[str, Any]) -> FieldType:
    kind = schema.get("type", "any")
    held = {"array": schema.get("items", {}), "object": schema.get("additionalProperties")}.get(kind)
    if isinstance(held, Mapping):
        inner = type_of(held)
        return FieldType(f"{kind} of {inner.text}", inner.links)
    return FieldType(f"{kind} ({schema['format']})" if "format" in schema else str(kind))


def _joined(types: Sequence[FieldType]) -> FieldType:
    texts = dict.fromkeys(one.text for one in types)
    return FieldType(" or ".join(texts), tuple(dict.fromkeys(link for one in types for link in one.links)))


def _named(schema: Mapping[str, Any]) -> str | None:
    """Return the name of the object that a schema refers to, also if it may be left out."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REF)
    others = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return _named(others[0]) if len(others) == 1 and len(schema["anyOf"]) == len(others) else None


def _is_object(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("properties"))


def _response(status: str, spec: Mapping[str, Any]) -> ReferenceResponse:
    content = spec.get("content", {})
    described = spec.get("description", "")
    if "application/json" in content:
        kind = type_of(content["application/json"].get("schema", {}))
    else:
        kind = FieldType(", ".join(name for name in content if "problem" not in name) or "nothing")
    return ReferenceResponse(status, "" if described == "Successful Response" else described, kind)


def _example_path(path: str, parameters: Sequence[Mapping[str, Any]], schemas: Mapping[str, Any]) -> str:
    """Return a path with examples for its parts and its required parameters."""
    query = []
    for one in parameters:
        example = _example(one["schema"], schemas)
        if one["in"] == "path" and example is not None:
            path = path.replace(f"{{{one['name']}}}", quote(str(example), safe="@"))
        elif one["in"] == "query" and one.get("required"):
            query.append(f"{one['name']}={quote(str(example if example is not None else '...'))}")
    path = re.sub(r"\{(\w+)(?::path)?\}", lambda found: found[1].upper(), path)
    return f"{path}?{'&'.join(query)}" if query else path


def _body_example(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str | None:
    name = next(iter(type_of(schema).links), None)
    if name is None:
        return None
    found = schemas[name].get("examples")
    value = found[0] if found else _object_example(schemas[name], schemas)
    return json.dumps(value, ensure_ascii=False).replace("'", "'\\''")


def _object_example(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    required = schema.get("required", ())
    fields = schema.get("properties", {}).items()
    examples = {name: _example(inner, schemas) for name, inner in fields if name in required or "examples" in inner}
    return {name: "..." if value is None else value for name, value in examples.items()}


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    if "$ref" in schema:
        return _example(schemas[str(schema["$ref"]).removeprefix(_REF)], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    simple = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return simple.get(str(schema.get("type")))
