"""What the live service says of itself: its OpenAPI document and its metrics, without prose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

__all__ = ["metrics_of", "shape_of_document"]


def metrics_of(url: str) -> dict[str, Any]:
    """The metrics by name: type, names of labels, and the values of those about studies."""
    text = httpx.get(f"{url}/metrics", timeout=60.0).text
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found[name] = {"type": kind, "labels": [], "samples": []}
            continue
        if line.startswith("#"):
            continue
        sample, _, value = line.rpartition(" ")
        name, _, labels = sample.partition("{")
        family = next(family for family in reversed(found) if name.startswith(family))
        keys = sorted(pair.partition("=")[0] for pair in labels.rstrip("}").split(",") if pair)
        found[family]["labels"] = sorted({*found[family]["labels"], *keys})
        found[family]["samples"] = sorted({*found[family]["samples"], name})
        if "study" in keys:
            found[family].setdefault("values", {})[sample] = float(value)
    return found


CONSTRAINTS = (
    *("enum", "const", "minLength", "maxLength", "pattern", "minimum", "maximum", "minItems"),
    *("exclusiveMinimum", "exclusiveMaximum", "maxItems", "minProperties", "maxProperties"),
    "default",
)


def shape_of_document(document: dict[str, Any]) -> dict[str, Any]:
    """Paths, methods, parameters, fields with types, status codes: no prose, no references."""
    found = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            asked = operation.get("requestBody", {})
            parameters = [_resolved(one, document) for one in operation.get("parameters", ())]
            found[f"{method.upper()} {path}"] = {
                "id": operation.get("operationId"),
                "parameters": {
                    f"{one['in']} {one['name']}": {
                        "required": one.get("required", False),
                        "fields": _without_null(dict(_content(one, document))),
                    }
                    for one in parameters
                },
                "request": {"required": asked.get("required", False), **_media(asked, document)},
                "responses": {
                    status: _media(_resolved(answer, document), document)
                    for status, answer in operation["responses"].items()
                },
            }
    return found


def _media(part: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    return {
        media: dict(_content(content, document))
        for media, content in part.get("content", {}).items()
    }


def _content(part: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    inner = part.get("schema")
    if inner is None:  # a parameter that is JSON itself
        for content in part.get("content", {}).values():
            yield from _content(content, document)
        return
    yield from _fields(inner, document, "value")


def _fields(schema: dict[str, Any], document: dict[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    """Every place of a schema with its types and limits."""
    schema = _resolved(schema, document)
    choices = [_resolved(one, document) for one in schema.get("anyOf", schema.get("oneOf", ()))]
    parts = [schema, *choices]
    types = sorted({kind for part in parts for kind in _types(part)})
    limits = {
        name: _as_number(part[name])
        for part in parts
        for name in CONSTRAINTS
        if part.get(name) is not None  # FastAPI writes no default that is null
    }
    required = sorted(name for part in parts for name in part.get("required", ()))
    yield at, {"types": types, "limits": limits, "required": required}
    for part in parts:
        for name, inner in part.get("properties", {}).items():
            yield from _fields(inner, document, f"{at}.{name}")
        for key, sign in (("items", "[]"), ("additionalProperties", "{}")):
            if isinstance(part.get(key), dict):
                yield from _fields(part[key], document, f"{at}{sign}")


def _without_null(fields: dict[str, Any]) -> dict[str, Any]:
    """A parameter cannot be null; FastAPI calls one that may be left out so."""
    return {
        name: {**field, "types": [kind for kind in field["types"] if kind != "null"]}
        for name, field in fields.items()
    }


def _as_number(limit: Any) -> Any:
    """FastAPI writes all bounds as floats."""
    return float(limit) if isinstance(limit, int) and not isinstance(limit, bool) else limit


def _types(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _resolved(part: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        found: Any = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part
