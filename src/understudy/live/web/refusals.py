"""Refusals: the answer to an error names the wrong fields, and says what to send instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import MAX_BODY_SIZE_SCOPE_KEY
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Scope as HttpScope

from understudy.errors import InvalidArgument, StoreUnavailable, shorten
from understudy.formatting import count, counted, plain
from understudy.live.models import MOST_ACTIONS, STORABLE, Event
from understudy.live.service import HttpError
from understudy.live.spec import NAMING, StudySpec
from understudy.logs.schema import first_few

REASON = "understudy.reason"  # where a scope holds the reason of a refusal, for the log
RETRY_SECONDS = "1"  # a lost store is tried again every second
MOST_FIELDS = 100  # that are listed
MOST_ERRORS = 1_000  # that are looked through: each takes some 50 µs
WHOLE = "the body"  # where no field of it is wrong
LONGEST_INPUT = 60  # characters of a request that are sent back
LONGEST_WORDS = 200  # characters of a message of another library, such as a list of allowed values
LONGEST_FAULT = 100  # characters of a message about JSON
NAMES = tuple({**StudySpec.model_fields, **Event.model_fields})
OBJECT = "it must be an object, in {{ }}"
WORDS = {  # by the type of an error of pydantic
    "model_type": OBJECT,
    "model_attributes_type": OBJECT,
    "dict_type": OBJECT,
    "missing": "it is missing; send it too",
    "greater_than_equal": "it must be at least {ge:g}",
    "too_short": "send {min_length} or more {name}",
    "string_too_short": "it is empty; send a text",
}
PATTERNS = {
    NAMING: "it is no name of a study: send small letters, digits, dots, dashes and underscores, "
    "64 at most, a letter or digit first",
    STORABLE: "it holds a character of code 0, which no store keeps: leave it out",
}

Place = tuple[int | str, ...]
M = TypeVar("M", bound=BaseModel)


class WrongFields(HTTPException):
    """Fields of a request that cannot be used, with a message each.

    It is an HTTP exception because FastAPI passes on no other error of a body.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__(422, ", ".join(fields))
        self.fields = fields


def parse_json(text: bytes | str, name: str = "the body") -> Any:
    """Parse JSON in which no object repeats a name: pydantic would keep the last without a word.

    >>> parse_json(b'{"id": "a", "reward": 0.5}')
    {'id': 'a', 'reward': 0.5}
    """
    try:
        text = text if isinstance(text, str) else text.decode()
        try:
            return _decode(text)
        except RepeatedName:
            above = () if name == WHOLE else (name.removeprefix("the "),)
            place = _repeated(_decode_pairs(text), above)
    except (ValueError, RecursionError) as error:
        fault = plain(error, LONGEST_FAULT)
        raise HTTPException(400, f"{name} is no JSON: {fault}") from None
    raise WrongFields({_field(place or ()): "it is there twice; send it once"})


class RepeatedName(Exception):
    """A name is twice in an object."""


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_ACTIONS:  # more than any model has: each wrong name takes time
        most = count(MOST_ACTIONS)
        raise ValueError(f"an object has {count(len(pairs))} names; send {most} at most")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedName
    return found


def _repeated(value: Any, place: Place) -> Place | None:
    """The place of the first name that is twice in an object; each object is a tuple of pairs."""
    if not isinstance(value, tuple | list):
        return None
    inside = value if isinstance(value, tuple) else enumerate(value)
    seen = set[int | str]()
    for name, part in inside:
        if name in seen:
            return (*place, name)
        seen.add(name)
        if (found := _repeated(part, (*place, name))) is not None:
            return found
    return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"there is no {name}; send a finite number")


_decode = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant).decode
_decode_pairs = json.JSONDecoder(object_pairs_hook=tuple).decode


def validate(model: type[M], sent: Any) -> M:
    """Validate JSON that was parsed, as FastAPI does for its own routes.

    >>> validate(Event, {"id": "a", "reward": 0.5}).reward
    0.5
    """
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        raise WrongFields(_fields_of(error, sent)) from None


def refuse(
    status: int,
    error: str,
    message: str,
    fields: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response that is a `Refusal`; a 503 gets the header Retry-After.

    >>> refuse(404, "unknown study", "there is no study 'a'").body.decode()
    '{"error":"unknown study","message":"there is no study \\'a\\'"}'
    """
    payload: dict[str, Any] = {"error": error, "message": message}
    if fields:
        listed = list(fields.items())[:MOST_FIELDS]
        payload["fields"] = [{"field": field, "message": words} for field, words in listed]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers = {"retry-after": RETRY_SECONDS, **(headers or {})}
    return JSONResponse(payload, status, headers)


def refuse_fields(fields: Mapping[str, str]) -> Response:
    """The refusal of a request for its wrong fields.

    >>> refuse_fields({"reward": "2 is out of range"}).body.decode()
    '{"error":"invalid","message":"reward: 2 is out of range","fields":[...]}'
    """
    if len(fields) == 1:
        ((name, words),) = fields.items()
        return refuse(422, "invalid", f"{name}: {words}", None if name == WHOLE else fields)
    rest = f"; the first {MOST_FIELDS} are listed" if len(fields) > MOST_FIELDS else ""
    message = f"{counted(len(fields), 'field')} are wrong: {first_few(list(fields))}{rest}"
    return refuse(422, "invalid", message, fields)


def refusal_of(scope: HttpScope, error: Exception) -> Response:
    """The answer to an error of a request that is one of `REFUSED`."""
    match error:
        case WrongFields():
            return refuse_fields(error.fields)
        case HttpError():
            scope[REASON] = str(error)
            return refuse(error.status, error.error, str(error), headers=error.headers)
        case StoreUnavailable():
            return refusal_of(scope, HttpError(503, "store unavailable", str(error)))
        case HTTPException():
            return _refusal_of_framework(scope, error)
    return refuse_fields(_fields_of(error))


def _refusal_of_framework(scope: HttpScope, error: HTTPException) -> Response:
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            shown = plain(scope["path"], LONGEST_INPUT)
            return refuse(404, "unknown path", f"there is nothing at {shown}; see /docs")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            routes = [one for one in scope["app"].routes if one.matches(scope)[0] != Match.NONE]
            allowed = ", ".join(sorted({method for route in routes for method in route.methods}))
            message = f"this path does not know the method; use {allowed}"
            return refuse(405, "unknown method", message, headers={"allow": allowed})
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return refuse(413, "too large", too_large(scope[MAX_BODY_SIZE_SCOPE_KEY]))
    return refuse(error.status_code, "malformed", error.detail)


def _fields_of(error: Exception, sent: Any = None) -> dict[str, str]:
    """The wrong fields that an error is about, of the JSON that was sent."""
    match error:
        case InvalidArgument():
            shown = "" if error.value is None else f"{shorten(error.value)}: "
            return {error.argument: f"{shown}{error.reason}; {error.remedy}"}
        case ValidationError():
            found = error.error_count()
            return _too_many(found) or _fields(error.errors(include_url=False), sent)
        case RequestValidationError():  # of FastAPI; its places begin with "body" or "query"
            errors = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
            return _too_many(len(errors)) or _fields(errors, error.body)
    raise error


def _too_many(errors: int) -> dict[str, str]:
    if errors <= MOST_ERRORS:
        return {}
    return {WHOLE: f"{count(errors)} things are wrong; send one as /docs describes it"}


async def _handle(request: Request, error: Exception) -> Response:
    return refusal_of(request.scope, error)


REFUSED = (
    HTTPException,
    RequestValidationError,
    ValidationError,
    InvalidArgument,
    StoreUnavailable,
    HttpError,
)
HANDLERS: dict[Any, Any] = dict.fromkeys(REFUSED, _handle)  # of an application


def too_large(most: int) -> str:
    """Say that a body has more bytes than `most`."""
    return f"the body is too large; send at most {count(most)} bytes"


def _fields(errors: Sequence[Mapping[str, Any]], sent: Any = None) -> dict[str, str]:
    """Return a message for each wrong field, from pydantic's errors about the JSON."""
    by_place: dict[Place, list[Mapping[str, Any]]] = {}
    for error in errors:
        place = error["loc"] if sent is None else _place(error["loc"], error["type"], sent)
        by_place.setdefault(place, []).append(error)
    messages: dict[Place, str] = {}
    for place, found in by_place.items():
        # A union fails once for each of its types; an error of the right type says enough.
        right = [one for one in found if not one["type"].endswith(("_type", "literal_error"))]
        first, *others = [_words(one, place) for one in right or found]
        others = [f", or {words.removeprefix('it must be ')}" for words in others]
        messages[place] = "".join([_shown(found[0]), first, *others])
    above = {place[:i] for place in messages for i in range(len(place))}
    return {
        _field(place): message
        for place, message in messages.items()
        if place not in above  # an error inside a value says more than one about the whole
    }


def _field(place: Place) -> str:
    return ".".join(plain(name, LONGEST_INPUT) for name in place) or WHOLE


def _place(names: Sequence[int | str], kind: str, value: Any) -> Place:
    """The path of a field in a body, without pydantic's names for the types of a union."""
    place: list[int | str] = []
    for name in names:
        try:
            value = value[name]
        except (LookupError, TypeError):  # not a field of the value
            if kind != "missing":
                continue
        place.append(name)
    return tuple(place)


def _words(error: Mapping[str, Any], place: Place) -> str:
    """Why a field is wrong, in pydantic's words where ours say no more."""
    kind, context = error["type"], error.get("ctx", {})
    name = str(place[-1]) if place else WHOLE
    if kind in WORDS:
        return WORDS[kind].format(**context, name=name)
    if kind == "extra_forbidden":
        meant = _meant(name)
        remedy = "leave it out, or see /docs" if meant is None else f"did you mean {meant}?"
        return f"there is no such field; {remedy}"
    if kind == "string_pattern_mismatch" and context["pattern"] in PATTERNS:
        return PATTERNS[context["pattern"]]
    message = error["msg"].replace("Input should be", "it must be")
    return plain(message[:1].lower() + message[1:], LONGEST_WORDS)


def _meant(name: str) -> str | None:
    """The field that a wrong name may stand for.

    A field of an event is none of a study. That of the study, which begins as it does, is meant.

    >>> [_meant(name) for name in ("unit", "propensity_vector", "propnsity", "colour")]
    ['unit_rows', 'propensity_vectors', 'propensity', None]
    """
    others = [known for known in NAMES if known != name]
    longer = [known for known in others if name in NAMES and known.startswith(name)]
    return next(iter(longer or get_close_matches(name, others, 1)), None)


def _shown(error: Mapping[str, Any]) -> str:
    """The value that was sent: as JSON if it is one value, else its kind."""
    match error["input"]:
        case _ if error["type"] in {"missing", "extra_forbidden"}:
            return ""
        case list() | tuple() as items:
            return f"a list of {counted(len(items), 'item')}: "
        case dict():
            return "an object: "
        case str() | bool() | None as value:
            return f"{plain(json.dumps(value, ensure_ascii=False), LONGEST_INPUT)}: "
        case number:
            return f"{shorten(number, LONGEST_INPUT)}: "
