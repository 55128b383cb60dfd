"""What the service answers: JSON, and refusals that say what was wrong and what to send instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from understudy.errors import InvalidArgument, shorten
from understudy.formatting import count, counted
from understudy.live.web.field_errors import fields_of
from understudy.logs.schema import first_few

JSON = "application/json"
RETRY_SECONDS = "1"
MOST_FIELDS = 100  # that are listed
MOST_ERRORS = 5_000  # that are looked through: a body of nothing but wrong fields costs no time

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_escaped = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class FieldRefusal(BaseModel):
    """One wrong field."""

    model_config = ConfigDict(extra="forbid")

    field: str = Field(description="Where it is: `events.3.reward` is in the fourth event.")
    message: str = Field(description="What is wrong with it, and what to send instead.")


class Refusal(BaseModel):
    """Why a request was refused."""

    model_config = ConfigDict(extra="forbid")

    error: str = Field(description="A short name that programs can compare.")
    message: str = Field(description="One sentence for people.")
    fields: list[FieldRefusal] = Field(
        default=[], description=f"The wrong fields, at most {MOST_FIELDS} of them."
    )


def answer(status: int, payload: object, headers: Mapping[str, str] | None = None) -> Response:
    """JSON, as small as it gets. NaN and infinity are an error: JSON has none.

    >>> answer(200, {"id": "ä", "rewards": [0.5]}).body.decode()
    '{"id":"ä","rewards":[0.5]}'
    """
    try:
        body = _encode(payload).encode()
    except UnicodeEncodeError:  # half of a character: JSON has it only as \ud800
        body = _encode_escaped(payload).encode()
    return Response(body, status, headers, JSON)


def refuse(
    status: int,
    error: str,
    message: str,
    fields: Sequence[Mapping[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An answer that says no, as a `Refusal`; one that is only for now says when to try again.

    >>> refuse(404, "unknown study", "there is no study 'a'").body.decode()
    '{"error":"unknown study","message":"there is no study \\'a\\'"}'
    """
    payload: dict[str, Any] = {"error": error, "message": message}
    if fields:
        payload["fields"] = fields
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers = {"retry-after": RETRY_SECONDS, **(headers or {})}
    return answer(status, payload, headers)


def refuse_argument(error: InvalidArgument) -> Response:
    """What one of our functions did not accept.

    >>> error = InvalidArgument("eta", -1, "a rate is positive", "pass eta > 0")
    >>> refuse_argument(error).body.decode()
    '{"error":"invalid","message":"eta = -1: a rate is positive; pass eta > 0","fields":[...]}'
    """
    message = f"{shorten(error.value)}: {error.reason}; {error.remedy}"
    return refuse(422, "invalid", str(error), [{"field": error.argument, "message": message}])


def refuse_body(error: ValidationError) -> Response:
    """What does not fit a model: 400 if it is no JSON at all, 422 with its wrong fields otherwise.

    >>> try:
    ...     FieldRefusal.model_validate_json('{"field": 1}')
    ... except ValidationError as error:
    ...     refuse_body(error).body.decode()
    '{"error":"invalid","message":"2 fields are wrong: field, message","fields":[...]}'
    """
    total = error.error_count()
    if total > MOST_ERRORS:
        return refuse(422, "invalid", f"{count(total)} things are wrong; send what /docs describes")
    fields = fields_of(error)
    if not fields[0]["field"]:
        malformed = error.errors(include_url=False)[0]["type"] == "json_invalid"
        status, name = (400, "malformed") if malformed else (422, "invalid")
        return refuse(status, name, f"the body: {fields[0]['message']}")
    verb = "is" if len(fields) == 1 else "are"
    names = first_few([field["field"] for field in fields])
    rest = f"; the first {MOST_FIELDS} are listed" if len(fields) > MOST_FIELDS else ""
    message = f"{counted(len(fields), 'field')} {verb} wrong: {names}{rest}"
    return refuse(422, "invalid", message, fields[:MOST_FIELDS])
