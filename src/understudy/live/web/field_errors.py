"""The errors of a request body by field, one message each; also names that an object repeats."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from understudy.errors import InvalidArgument, shorten
from understudy.formatting import counted, plain
from understudy.live.models import STORABLE, Event
from understudy.live.spec import NAMING, StudySpec

LONGEST_INPUT = 60
LONGEST_WORDS = 200  # of a list of allowed values, or of another's message
REPEATED = "it is there twice; send it once"
AS_DESCRIBED = "what /docs describes"

NUMBER, WHOLE, TEXT = "a number such as 0.5", "a whole number such as 3", "a text, in double quotes"
LIST, OBJECT, TRUTH = "a list, in [ ]", "an object, in {{ }}", "true or false"

# What is wrong, and what to send instead, by pydantic's name for it.
WORDS: dict[str, tuple[str, str]] = {
    "bool_parsing": ("it must be true or false", TRUTH),
    "bool_type": ("it must be true or false", TRUTH),
    "dict_type": ("it must be an object", OBJECT),
    "enum": ("it is none of the allowed values", "{expected}"),
    "finite_number": ("it must be finite", "a number that is neither NaN nor infinite"),
    "float_parsing": ("it must be a number", NUMBER),
    "float_type": ("it must be a number", NUMBER),
    "greater_than": ("it must be above {gt}", "more than {gt}"),
    "greater_than_equal": ("it must be at least {ge}", "{ge} or more"),
    "int_from_float": ("it must be a whole number", WHOLE),
    "int_parsing": ("it must be a whole number", WHOLE),
    "int_parsing_size": ("it has too many digits", "a smaller number"),
    "int_type": ("it must be a whole number", WHOLE),
    "json_invalid": ("it is no JSON ({error})", "one JSON object"),
    "json_type": ("it must be JSON, as text", "one JSON object"),
    "less_than": ("it must be below {lt}", "less than {lt}"),
    "less_than_equal": ("it must be at most {le}", "{le} or less"),
    "list_type": ("it must be a list", LIST),
    "literal_error": ("it is none of the allowed values", "{expected}"),
    "mapping_type": ("it must be an object", OBJECT),
    "missing": ("it is missing", "it too"),
    "model_attributes_type": ("it must be an object", OBJECT),
    "model_type": ("it must be an object", OBJECT),
    "multiple_of": ("it must be a multiple of {multiple_of}", "a multiple of {multiple_of}"),
    "none_required": ("it must be null", "null"),
    "string_pattern_mismatch": ("it does not match {pattern}", "a text that does"),
    "string_too_long": ("it is too long", "a text of length {max_length} or less"),
    "string_too_short": ("it is too short", "a text of length {min_length} or more"),
    "string_type": ("it must be a text", TEXT),
    "string_unicode": ("it is no Unicode text", "UTF-8"),
    "too_long": ("it has too many items", "{max_length} or fewer"),
    "too_short": ("it has too few items", "{min_length} or more"),
    "tuple_type": ("it must be a list", LIST),
    "union_tag_invalid": ("its {discriminator} is none of the allowed", "{expected_tags}"),
    "union_tag_not_found": ("it lacks {discriminator}", "it with {discriminator}"),
}
PATTERNS = {
    NAMING: (
        "it is no name of a study",
        "small letters, digits, dots, dashes and underscores, 64 at most, a letter or digit first",
    ),
    STORABLE: ("it holds a character of code 0, which no store keeps", "it without that"),
}
WITHOUT_VALUE = {"missing", "extra_forbidden", "json_invalid"}
# Where several types are allowed, pydantic puts a name for each after the field's own.
ALTERNATIVE = re.compile(r"str|int|float|bool|none|[a-z-]+\[.*\]|constrained-[a-z]+", re.DOTALL)
KEY = "[key]"
NAMES = tuple({**StudySpec.model_fields, **Event.model_fields})

Place = tuple[int | str, ...]


@dataclass(frozen=True)
class Wrong:
    """What is wrong in one place, and what to `send`, or to do (`remedy`), instead.

    `value` is empty where it would not help.
    """

    place: Place
    value: str
    reason: str
    send: str = ""
    remedy: str = ""

    @property
    def message(self) -> str:
        """All of it in one line."""
        remedy = self.remedy or f"send {self.send}"
        return f"{self.value and self.value + ': '}{self.reason}; {remedy}"


def fields_of(error: ValidationError) -> list[dict[str, str]]:
    """One message for every wrong field, none of which repeats more than 60 characters of input.

    >>> from pydantic import BaseModel
    >>> class Event(BaseModel):
    ...     reward: float
    >>> try:
    ...     Event.model_validate_json('{"reward": "high"}')
    ... except ValidationError as error:
    ...     fields_of(error)
    [{'field': 'reward', 'message': '"high": it must be a number; send a number such as 0.5'}]
    """
    details = error.errors(include_url=False)
    wrong = _sorted_out((), [(detail["loc"], detail) for detail in details])
    messages: dict[str, str] = {}
    for found in wrong:
        messages.setdefault(_path(found.place), found.message)
    return [{"field": field, "message": message} for field, message in messages.items()]


def _sorted_out(place: Place, errors: Sequence[tuple[Place, ErrorDetails]]) -> list[Wrong]:
    """The errors at a place and below it, the alternatives of one field as one."""
    here = [_described(place, detail) for rest, detail in errors if not rest]
    below: dict[int | str, list[tuple[Place, ErrorDetails]]] = {}
    for rest, detail in errors:
        if rest:
            below.setdefault(rest[0], []).append((rest[1:], detail))
    if len(below) > 1 and all(ALTERNATIVE.fullmatch(str(name)) for name in below):
        return here + _alternatives(place, [_sorted_out(place, inner) for inner in below.values()])
    return here + [
        wrong for name, inner in below.items() for wrong in _sorted_out((*place, name), inner)
    ]


def _alternatives(place: Place, alternatives: Sequence[list[Wrong]]) -> list[Wrong]:
    """What to say of a field that fits none of several types.

    If the form was right and something inside was not, that one was meant.
    """
    inside = [wrong for found in alternatives for wrong in found if wrong.place != place]
    if inside:
        return inside
    every = [wrong for found in alternatives for wrong in found]
    sends = dict.fromkeys(wrong.send or wrong.remedy for wrong in every)
    return [Wrong(place, every[0].value, "it cannot be used here", ", or ".join(sends))]


def _described(place: Place, detail: ErrorDetails) -> Wrong:
    kind, context = detail["type"], detail.get("ctx", {})
    raised = context.get("error")
    if isinstance(raised, InvalidArgument):
        return _of_our_own(place, raised, detail["input"])
    value = "" if kind in WITHOUT_VALUE else _shown(detail["input"])
    if place and place[-1] == KEY:
        place, value = place[:-1], f"the name {value}"
    if isinstance(raised, Exception):
        return Wrong(place, value, plain(raised, LONGEST_WORDS), AS_DESCRIBED)
    if kind == "extra_forbidden":
        return Wrong(place, value, "there is no such field", remedy=_meant_by(str(place[-1])))
    if context.get("pattern") in PATTERNS:
        reason, send = PATTERNS[context["pattern"]]
        return Wrong(place, value, reason, send)
    if kind not in WORDS:
        return Wrong(place, value, plain(detail["msg"], LONGEST_WORDS), AS_DESCRIBED)
    reason, send = (words.format_map(_words(context)) for words in WORDS[kind])
    return Wrong(place, value, reason, send)


def _meant_by(name: str) -> str:
    """What to do about a name that no field has."""
    meant = get_close_matches(name, NAMES, 1)
    return (
        f"did you mean {meant[0]}?" if meant else "send one that /docs describes, or leave it out"
    )


def _of_our_own(place: Place, error: InvalidArgument, given: object) -> Wrong:
    """What a check of the whole object found is about the argument that it names."""
    whole = isinstance(given, Mapping) and place[-1:] != (error.argument,)
    where = (*place, error.argument) if whole else place
    return Wrong(where, shorten(error.value), error.reason, remedy=error.remedy)


def _words(context: Mapping[str, Any]) -> dict[str, str]:
    """What an error mentions, as text: limits, and what is allowed."""
    return {
        name: f"{value:,}".removesuffix(".0")
        if isinstance(value, int | float)
        else plain(value, LONGEST_WORDS)
        for name, value in context.items()
    }


def _shown(value: object) -> str:
    """What was sent: as JSON if it is one value, else what it is."""
    if isinstance(value, str):
        text = value if len(value) <= LONGEST_INPUT else value[: LONGEST_INPUT - 3] + "…"
        return plain(json.dumps(text, ensure_ascii=False), LONGEST_INPUT)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return f"a list of {counted(len(value), 'item')}"
    if isinstance(value, Mapping):
        return "an object"
    return shorten(value, LONGEST_INPUT)


def _path(place: Place) -> str:
    return ".".join(plain(name, LONGEST_INPUT) for name in place)


def names_in(event: Event) -> int:
    """How many names were read of an event and its context.

    >>> names_in(Event(id="a", action="x", context={"age": 40.0}))
    4
    """
    context = event.context
    return len(event.model_fields_set) + (len(context) if context else 0)


def names_in_spec(spec: StudySpec) -> int:
    """How many names were read of a study and the objects in it.

    >>> names_in_spec(StudySpec.of({"name": "a", "actions": [1, 2], "behavior": {"1": 1.0}}))
    4
    """
    inner = (spec.context, spec.behavior)
    return len(spec.model_fields_set) + sum(len(one) for one in inner if isinstance(one, dict))


def repeated_names(body: bytes, names: int) -> dict[str, str]:
    """What is wrong with JSON of which so many names were read, by name; empty if nothing is.

    A colon follows every name: if there are no more colons than names, none stands twice, and the
    body need not be read again.

    >>> repeated_names(b'{"id": "a:1", "reward": 0.5}', 2)
    {}
    >>> repeated_names(b'{"id": "a:1", "reward": 0.5, "reward": 1.0}', 2)
    {'reward': 'it is there twice; send it once'}
    """
    if body.count(b":") <= names:
        return {}
    found: dict[str, str] = {}

    def look(pairs: Sequence[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    found[name] = REPEATED
                seen.add(name)

    json.loads(body, object_pairs_hook=look)
    return found
