"""A JSON schema in words: what each field may be, as a table and not as a tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from understudy.formatting import count
from understudy.live.models import STORABLE

Schema = Mapping[str, Any]
BOUNDS = (
    ("exclusiveMinimum", "above {}"),
    ("minimum", "at least {}"),
    ("exclusiveMaximum", "below {}"),
    ("maximum", "at most {}"),
)
NAMES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "null": "null",
}


@dataclass(frozen=True)
class FieldRow:
    """One field, `name` with the names of what it is in: `events[].reward`."""

    name: str
    words: str
    required: bool
    description: str


def field_rows(schema: Schema, schemas: Mapping[str, Schema]) -> list[FieldRow]:
    """The fields of an object and of all that is in it; `schemas` are those that can be named.

    >>> reward = {"type": "number", "maximum": 1}
    >>> field_rows({"properties": {"reward": reward}, "required": ["reward"]}, {})
    [FieldRow(name='reward', words='number, at most 1', required=True, description='')]
    """
    return list(_rows(schema, schemas, "", ()))


def type_words(schema: Schema, schemas: Mapping[str, Schema]) -> str:
    """What a value may be.

    >>> type_words({"type": "string", "minLength": 1, "maxLength": 128}, {})
    'text, 1 to 128 characters'
    >>> type_words({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}, {})
    '"a" or "b" or null'
    """
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        words = dict.fromkeys(type_words(one, schemas) for one in schema["anyOf"])
        return ("; or " if any("," in one for one in words) else " or ").join(words)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(NAMES[one] for one in kind)
    if kind == "array":
        return _list_words(schema, schemas)
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"object, each value: {type_words(schema['additionalProperties'], schemas)}"
    return ", ".join([NAMES.get(str(kind), "anything"), *_limits(schema)])


def _list_words(schema: Schema, schemas: Mapping[str, Schema]) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(type_words(one, schemas) for one in schema['prefixItems'])}]"
    many = _between(schema.get("minItems"), schema.get("maxItems"))
    inner = type_words(schema.get("items", {}), schemas)
    return f"list{many and ' of ' + many}, each: {inner}"


def _limits(schema: Schema) -> Iterator[str]:
    long = _between(schema.get("minLength"), schema.get("maxLength"))
    if long:
        yield f"{long} characters"
    if schema.get("pattern", STORABLE) != STORABLE:  # a pattern of its own
        yield f"like {schema['pattern']}"
    for name, words in BOUNDS:
        if name in schema:
            yield words.format(f"{schema[name]:,}".removesuffix(".0"))


def _between(least: int | None, most: int | None) -> str:
    if most is None:
        return f"at least {count(least)}" if least else ""
    return f"{count(least)} to {count(most)}" if least else f"at most {count(most)}"


def _rows(
    schema: Schema, schemas: Mapping[str, Schema], prefix: str, above: tuple[Schema, ...]
) -> Iterator[FieldRow]:
    """The fields of all objects that a value may be or hold. None is entered within itself."""
    schema = _resolved(schema, schemas)
    if schema in above:
        return
    above = (*above, schema)
    for alternative in schema.get("anyOf", ()):
        yield from _rows(alternative, schemas, prefix, above)
    if "items" in schema:
        yield from _rows(schema["items"], schemas, f"{prefix}[]", above)
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        path = f"{prefix}.{name}" if prefix else name
        words = type_words(inner, schemas)
        said = inner.get("description", "")
        default = inner.get("default")
        if default not in (None, [], {}):
            said = f"{said} If left out: {json.dumps(default, ensure_ascii=False)}.".strip()
        yield FieldRow(path, words, name in required, said)
        yield from _rows(inner, schemas, path, above)


def _resolved(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    reference = schema.get("$ref")
    return schema if reference is None else schemas[reference.rpartition("/")[2]]
