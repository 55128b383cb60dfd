"""The operations of the service as data, and what follows from it: OpenAPI, and routes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from understudy.errors import InvalidArgument
from understudy.live.store.records import Scope
from understudy.live.web.access_rules import READING, needed_scope
from understudy.live.web.answers import JSON, Refusal

TITLE = "Understudy, live"
ABOUT = (
    "An understudy in shadow mode: production reports its decisions and rewards; the service "
    "learns from them, and says when the understudy is better, with a confidence. Every event has "
    "an id and counts once however often it is sent, so an unanswered request can be sent again."
)
TOKENS = (
    "Send `Authorization: Bearer TOKEN`. A token with the scope write may do all, one with the "
    "scope read may look and draw. A service without tokens serves its own machine only."
)
SCHEMAS = "#/components/schemas/{model}"
IN_PATH = re.compile(r"\{(\w+)\}")

# What the middleware may answer in place of an operation.
REFUSALS = {
    400: "The body is no JSON.",
    401: "The token is missing or wrong.",
    403: "The token may only read; or, without tokens, another site or machine asks.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "Something that was sent cannot be used: `fields` says what, and what to send instead.",
    429: "Too many wrong tokens came from this address.",
    503: "The store cannot be used now. Nothing was written; try again.",
}
HEADERS = {
    "X-Request-Id": ("The name of this request in the service's log.", True, range(100, 600)),
    "WWW-Authenticate": ("Which token is wanted.", False, (401, 403)),
    "Retry-After": ("Seconds to wait.", True, (429, 503)),
}

Handler = Callable[[Request], Awaitable[Response]]
Model = tuple[type[BaseModel], JsonSchemaMode]
References = Mapping[Any, dict[str, Any]]  # by model and mode


@dataclass(frozen=True)
class Parameter:
    """A part of the path, if it has its name in braces, or of the query; `json` if it is JSON."""

    name: str
    schema: Mapping[str, Any]
    description: str
    example: object
    required: bool = False
    json: bool = False


@dataclass(frozen=True)
class Content:
    """A body: of a model, or without one any object, or any text if it is not JSON."""

    model: type[BaseModel] | None = None
    example: object = None
    media: str = JSON
    required: bool = True


@dataclass(frozen=True)
class Operation:
    """One thing that the service does. `refusals` are those of its own, with what they mean."""

    method: str
    path: str
    name: str
    tag: str
    summary: str
    handler: Handler
    description: str = ""
    parameters: Sequence[Parameter] = ()
    request: Content | None = None
    response: Content = field(default_factory=Content)
    status: int = 200
    refusals: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(IN_PATH.findall(self.path)) - {one.name for one in self.parameters}
        if unknown:
            raise InvalidArgument(
                "parameters", sorted(unknown), f"{self.path} has them", "describe them too"
            )

    @property
    def scope(self) -> Scope | None:
        """What a token must allow: the rule of the middleware."""
        return needed_scope(self.method, self.path)

    def all_refusals(self) -> dict[int, str]:
        """Every status that may come in place of the answer, by number."""
        of_middleware = {403}
        if self.scope is not None:
            of_middleware |= {401, 422, 429, 503}
        if self.method not in READING:
            of_middleware |= {400, 413, 415}
        every = {status: REFUSALS[status] for status in of_middleware} | dict(self.refusals)
        return dict(sorted(every.items()))


def document(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """The operations as an OpenAPI 3.1 document.

    >>> document([], "1.0")["openapi"]
    '3.1.0'
    """
    references, definitions = models_json_schema(_models(operations), ref_template=SCHEMAS)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(one.tag for one in operations)],
        "paths": {
            path: {
                method.lower(): _described(operation, references)
                for method, operation in by_method.items()
            }
            for path, by_method in by_path(operations).items()
        },
        "components": {
            "schemas": definitions["$defs"],
            "headers": {
                name: {"description": words, "required": always, "schema": {"type": "string"}}
                for name, (words, always, _) in HEADERS.items()
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": TOKENS}
            },
        },
    }


def by_path(operations: Sequence[Operation]) -> dict[str, dict[str, Operation]]:
    """Paths in the order in which they were declared, each with its methods.

    >>> by_path([])
    {}
    """
    paths: dict[str, dict[str, Operation]] = {}
    names: set[str] = set()
    for operation in operations:
        methods = paths.setdefault(operation.path, {})
        if operation.method in methods or operation.name in names:
            raise InvalidArgument(
                "operations", operation.name, "it is declared twice", "declare it once"
            )
        methods[operation.method] = operation
        names.add(operation.name)
    return paths


def _models(operations: Sequence[Operation]) -> list[Model]:
    """All models, once each, as they come in and as they go out."""
    models: dict[Model, None] = {(Refusal, "serialization"): None}
    for operation in operations:
        if operation.request is not None and operation.request.model is not None:
            models[operation.request.model, "validation"] = None
        if operation.response.model is not None:
            models[operation.response.model, "serialization"] = None
    return list(models)


def _described(operation: Operation, references: References) -> dict[str, Any]:
    refusal = _content(Content(Refusal), references, "serialization")
    answers = {
        operation.status: ("Done.", _content(operation.response, references, "serialization")),
        **{status: (words, refusal) for status, words in operation.all_refusals().items()},
    }
    described = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "parameters": [_parameter(one, operation.path) for one in operation.parameters],
        "responses": {
            str(status): {"description": words, "headers": _headers(status), "content": content}
            for status, (words, content) in answers.items()
        },
        "security": [] if operation.scope is None else [{"bearer": [operation.scope]}],
    }
    if operation.request is not None:
        described["requestBody"] = {
            "required": operation.request.required,
            "content": _content(operation.request, references, "validation"),
        }
    return described


def _content(content: Content, references: References, mode: JsonSchemaMode) -> dict[str, Any]:
    anything = {"type": "object" if content.media == JSON else "string"}
    media: dict[str, Any] = {
        "schema": anything if content.model is None else references[content.model, mode]
    }
    if content.example is not None:
        media["example"] = content.example
    return {content.media: media}


def _headers(status: int) -> dict[str, Any]:
    return {
        name: {"$ref": f"#/components/headers/{name}"}
        for name, (_, _, statuses) in HEADERS.items()
        if status in statuses
    }


def _parameter(parameter: Parameter, path: str) -> dict[str, Any]:
    in_path = parameter.name in IN_PATH.findall(path)
    value = {"schema": dict(parameter.schema), "example": parameter.example}
    return {
        "name": parameter.name,
        "in": "path" if in_path else "query",
        "required": in_path or parameter.required,
        "description": parameter.description,
        **({"content": {JSON: value}} if parameter.json else value),
    }
