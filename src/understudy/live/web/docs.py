"""The page at /docs: what an OpenAPI document says, for people."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from understudy.live.web.answers import JSON
from understudy.live.web.schema_words import FieldRow, field_rows, type_words

BASE = "http://localhost:8642"
REFUSED = 400  # and above
CODE = re.compile(r"`([^`]+)`")

Part = Mapping[str, Any]


class ExampleTarget(NamedTuple):
    """Where the examples ask, and whether they need a token."""

    base: str
    tokens: bool


@dataclass(frozen=True)
class Body:
    """What is sent or answered: its fields, if it has any, and an example."""

    media: str
    fields: list[FieldRow]
    example: str


@dataclass(frozen=True)
class DocumentedOperation:
    """One operation, as the page shows it."""

    name: str
    method: str
    path: str
    tag: str
    summary: str
    description: str
    scope: str
    parameters: list[FieldRow]
    request: Body | None
    command: str
    status: str
    answer: Body
    refusals: list[tuple[str, str]]


def docs_page(document: Part, base: str = BASE, *, tokens: bool = True) -> str:
    """Render the page, which loads only the style sheets of this service.

    Its examples ask `base`, and show a token where the service has any.

    >>> from understudy.live.web.openapi import document
    >>> docs_page(document([], "1.0")).startswith("<!doctype html>")
    True
    """
    schemas = document["components"]["schemas"]
    operations = [
        _shown(method.upper(), path, operation, schemas, ExampleTarget(base, tokens))
        for path, by_method in document["paths"].items()
        for method, operation in by_method.items()
    ]
    return (
        _environment()
        .get_template("docs.html")
        .render(
            info=document["info"],
            groups=[
                (tag["name"], [one for one in operations if one.tag == tag["name"]])
                for tag in document["tags"]
            ],
            tokens=document["components"]["securitySchemes"]["bearer"]["description"],
            refusal=field_rows(schemas["Refusal"], schemas),
        )
    )


def _shown(
    method: str, path: str, operation: Part, schemas: Mapping[str, Part], target: ExampleTarget
) -> DocumentedOperation:
    responses = operation["responses"]
    (status, answered), *_ = ((s, r) for s, r in responses.items() if int(s) < REFUSED)
    security = operation["security"]
    request = operation.get("requestBody")
    return DocumentedOperation(
        name=operation["operationId"],
        method=method,
        path=path,
        tag=operation["tags"][0],
        summary=operation["summary"],
        description=operation["description"],
        scope=security[0]["bearer"][0] if security else "",
        parameters=[_parameter(one, schemas) for one in operation["parameters"]],
        request=None if request is None else _body(request["content"], schemas),
        command=_command(method, path, operation, target),
        status=status,
        answer=_body(answered["content"], schemas),
        refusals=[(s, r["description"]) for s, r in responses.items() if int(s) >= REFUSED],
    )


def _parameter(parameter: Part, schemas: Mapping[str, Part]) -> FieldRow:
    value, sent_as = _value(parameter)
    words = type_words(value["schema"], schemas) + (", as JSON" if sent_as == JSON else "")
    where = "In the path." if parameter["in"] == "path" else "In the query."
    said = f"{parameter['description']} {where}"
    return FieldRow(parameter["name"], words, parameter["required"], said)


def _body(content: Part, schemas: Mapping[str, Part]) -> Body:
    ((media, value),) = content.items()
    example = value.get("example", "")
    text = (
        example if isinstance(example, str) else json.dumps(example, ensure_ascii=False, indent=2)
    )
    return Body(media, field_rows(value["schema"], schemas), text)


def _value(parameter: Part) -> tuple[Part, str]:
    """Its schema and example, and how it is written."""
    return (parameter["content"][JSON], JSON) if "content" in parameter else (parameter, "")


def _command(method: str, path: str, operation: Part, target: ExampleTarget) -> str:
    """How to try it in a terminal."""
    return " \\\n  ".join(_words(method, path, operation, target))


def _words(method: str, path: str, operation: Part, target: ExampleTarget) -> Iterator[str]:
    query = {}
    for parameter in operation["parameters"]:
        value, sent_as = _value(parameter)
        example = json.dumps(value["example"]) if sent_as == JSON else str(value["example"])
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(example, safe=""))
        elif parameter["required"]:
            query[parameter["name"]] = example
    url = f"{target.base}{path}{'?' + urlencode(query) if query else ''}"
    streams = "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
    chosen = "" if method == "GET" else f" -X {method}"
    yield f"curl{chosen}{' -N' if streams else ''} {shlex.quote(url)}"
    if operation["security"] and target.tokens:
        yield '-H "Authorization: Bearer $TOKEN"'
    if "requestBody" in operation:
        ((media, value),) = operation["requestBody"]["content"].items()
        yield f"-H 'Content-Type: {media}'"
        yield f"-d {shlex.quote(json.dumps(value.get('example', {}), ensure_ascii=False))}"


def _marked(text: str) -> Markup:
    """What stands between backticks is code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("understudy.live.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marked"] = _marked
    return environment
