"""Answers are JSON; a refusal names every wrong field once, and what to send instead."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError, model_validator
from pydantic_core import InitErrorDetails
from pydantic_core._pydantic_core import list_all_errors
from pydantic_core.core_schema import ErrorType

from tests.support.live.sample_operations import Batch, Study
from tests.support.strategies import quick
from understudy.errors import InvalidArgument
from understudy.live.web.answers import MOST_ERRORS, MOST_FIELDS, answer, refuse, refuse_body
from understudy.live.web.field_errors import WORDS, fields_of

pytestmark = pytest.mark.plain

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def wrong(model: type[BaseModel], value: object) -> ValidationError:
    """What is wrong with it: something is."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(value if isinstance(value, str) else json.dumps(value))
    return caught.value


def told(error: ValidationError) -> Any:
    return json.loads(bytes(refuse_body(error).body))


def messages(model: type[BaseModel], value: object) -> dict[str, str]:
    found = fields_of(wrong(model, value))
    assert all(set(one) == {"field", "message"} for one in found)
    assert len({one["field"] for one in found}) == len(found)
    return {one["field"]: one["message"] for one in found}


STUDY = {"name": "a", "actions": ["x", "y"]}
CASES: list[tuple[type[BaseModel], Any, dict[str, str]]] = [
    (
        Study,
        {},
        {"name": "it is missing; send it too", "actions": "it is missing; send it too"},
    ),
    (
        Study,
        STUDY | {"colour": 1},
        {"colour": "there is no such field; send one that /docs describes, or leave it out"},
    ),
    (
        Study,
        STUDY | {"propnsity": 1},
        {"propnsity": "there is no such field; did you mean propensity?"},
    ),
    (
        Study,
        STUDY | {"name": 7},
        {"name": "7: it must be a text; send a text, in double quotes"},
    ),
    (
        Study,
        STUDY | {"name": "A b"},
        {"name": '"A b": it does not match ^[a-z]+$; send a text that does'},
    ),
    (
        Study,
        STUDY | {"actions": ["x"]},
        {"actions": "a list of 1 item: it has too few items; send 2 or more"},
    ),
    (
        Study,
        STUDY | {"actions": ["x", None]},
        {"actions.1": "null: it must be a text; send a text, in double quotes"},
    ),
    (
        Study,
        STUDY | {"actions": {"x": 1}},
        {"actions": "an object: it must be a list; send a list, in [ ]"},
    ),
    (
        Study,
        STUDY | {"behavior": 7},
        {
            "behavior": "7: it cannot be used here; send 'logged' or 'estimated', "
            "or an object, in { }"
        },
    ),
    (
        Study,
        STUDY | {"behavior": "guessed"},
        {
            "behavior": '"guessed": it cannot be used here; send \'logged\' or \'estimated\', '
            "or an object, in { }"
        },
    ),
    (
        Study,
        STUDY | {"behavior": {"x": 0.5, "y": 0}},
        {"behavior.y": "0: it must be above 0; send more than 0"},
    ),
    (
        Study,
        STUDY | {"horizon": 1.5},
        {"horizon": "1.5: it must be a whole number; send a whole number such as 3"},
    ),
    (
        Study,
        STUDY | {"horizon": 0},
        {"horizon": "0: it must be at least 1; send 1 or more"},
    ),
    (
        Study,
        STUDY | {"archived": "yes"},
        {"archived": '"yes": it must be true or false; send true or false'},
    ),
    (
        Batch,
        {"events": []},
        {"events": "a list of 0 items: it has too few items; send 1 or more"},
    ),
    (
        Batch,
        {"events": [{"id": "a"}, {"id": "b", "reward": "high"}, {"id": "", "reward": 1.5}]},
        {
            "events.1.reward": '"high": it must be a number; send a number such as 0.5',
            "events.2.id": '"": it is too short; send a text of length 1 or more',
            "events.2.reward": "1.5: it must be at most 1; send 1 or less",
        },
    ),
    (
        Batch,
        '{"events": [{"id": "a", "reward": NaN}]}',
        {
            "events.0.reward": "nan: it must be finite; "
            "send a number that is neither NaN nor infinite"
        },
    ),
    (
        Batch,
        {"events": [{"id": "a", "context": {"Age": None, "City": [1], "int": {}, "str": True}}]},
        {
            f"events.0.context.{name}": f"{shown}: it cannot be used here; "
            "send a number such as 0.5, or a text, in double quotes"
            for name, shown in (
                ("Age", "null"),
                ("City", "a list of 1 item"),
                ("int", "an object"),
                ("str", "true"),
            )
        },
    ),
    (Batch, [], {"": "a list of 0 items: it must be an object; send an object, in { }"}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "value", "expected"), CASES)
def test_each_wrong_field_is_told_once(
    model: type[BaseModel], value: Any, expected: dict[str, str]
) -> None:
    assert messages(model, value) == expected


def test_every_kind_of_error_has_words() -> None:
    """Pydantic's own list of them, with values for whatever they mention."""
    long = "x" * 1000 + "\n"
    for kind in list_all_errors():
        context: Any = kind["example_context"]
        detail = InitErrorDetails(
            type=kind["type"], loc=("field", 3), input=long, ctx=context or {}
        )
        (said,) = fields_of(ValidationError.from_exception_data("Title", [detail]))
        assert said["field"] == "field.3"
        assert "; send " in said["message"]
        assert said["message"].isprintable()
        assert "{" not in said["message"].replace("{ }", "")
        assert longest_echo(said["message"], "x") <= 60


def longest_echo(message: str, letter: str) -> int:
    return max(map(len, "".join(c if c == letter else " " for c in message).split()), default=0)


def test_our_words_are_for_kinds_that_exist() -> None:
    assert set(WORDS) <= set(get_args(ErrorType))


class Checked(BaseModel):
    rate: float
    other: float = 1.0

    @model_validator(mode="after")
    def positive(self) -> Checked:
        if self.rate <= 0.0:
            raise InvalidArgument("rate", self.rate, "a rate is positive", "pass rate > 0")
        if self.other <= 0.0:
            raise ValueError("the other is not positive")
        return self


class Holder(BaseModel):
    inner: Checked


def test_our_own_errors_keep_their_words_and_say_their_field() -> None:
    ours = "-1.0: a rate is positive; pass rate > 0"
    assert messages(Checked, {"rate": -1}) == {"rate": ours}
    assert messages(Holder, {"inner": {"rate": -1}}) == {"inner.rate": ours}
    foreign = "an object: the other is not positive; send what /docs describes"
    assert messages(Holder, {"inner": {"rate": 1, "other": 0}}) == {"inner": foreign}


@given(JSON_VALUES, st.sampled_from([Study, Batch]))
@quick
def test_whatever_is_sent_is_taken_or_told_what_is_wrong(
    value: Any, model: type[BaseModel]
) -> None:
    field = "name" if model is Study else "events"
    for sent in (value, STUDY | {"behavior": value}, {"events": [value]}, {field: value}):
        try:
            model.model_validate_json(json.dumps(sent))
        except ValidationError as error:
            refusal = told(error)
            assert refusal["error"] in {"invalid", "malformed"}
            for one in [refusal["message"], *(f["message"] for f in refusal.get("fields", []))]:
                assert one.isprintable()
                assert len(one) < 300


@pytest.mark.parametrize("sent", ["x" * 10_000, ["x" * 10_000] * 99, {"x" * 10_000: "x" * 10_000}])
def test_no_more_than_sixty_characters_come_back(sent: Any) -> None:
    for value in (sent, STUDY | {"name": sent}, {"events": [{"id": sent, "x" * 10_000: sent}]}):
        for model in (Study, Batch):
            refusal = bytes(refuse_body(wrong(model, value)).body).decode()
            assert longest_echo(refusal, "x") <= 60


def test_long_lists_of_wrong_fields_are_cut_and_said_to_be() -> None:
    many = {"events": [{"id": ""}] * (MOST_FIELDS + 1)}
    refusal = told(wrong(Batch, many))
    assert len(refusal["fields"]) == MOST_FIELDS
    assert refusal["message"] == (
        "101 fields are wrong: events.0.id, events.1.id, events.2.id, …; the first 100 are listed"
    )
    hostile = {str(i): 1 for i in range(MOST_ERRORS)}
    refusal = told(wrong(Batch, hostile))
    assert refusal["message"].startswith("5,001 things are wrong")
    assert "fields" not in refusal


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", '{"events": "\\ud800"}', "\x00", "nil"])
def test_what_is_no_json_is_malformed(text: str) -> None:
    refusal = refuse_body(wrong(Batch, text))
    assert refusal.status_code == 400
    said = json.loads(bytes(refusal.body))
    assert said["error"] == "malformed"
    assert said["message"].startswith("the body: it is no JSON (")


@given(JSON_VALUES)
@quick
def test_answers_are_the_json_of_what_was_meant(value: Any) -> None:
    response = answer(201, value)
    assert json.loads(bytes(response.body)) == value
    assert response.status_code == 201
    assert response.headers["content-length"] == str(len(response.body))
    assert response.headers["content-type"] == "application/json"


def test_answers_hold_neither_infinity_nor_half_a_character() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            answer(200, {"value": value})
    assert json.loads(bytes(answer(200, ["\ud800", "ä"]).body).decode()) == ["\ud800", "ä"]


def test_refusals_that_pass_say_when_to_try_again() -> None:
    assert refuse(503, "busy", "too much").headers["retry-after"] == "1"
    assert (
        refuse(503, "busy", "too much", headers={"retry-after": "9"}).headers["retry-after"] == "9"
    )
    assert "retry-after" not in refuse(409, "conflict", "no").headers


def test_adapters_are_told_about_too() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, float]).validate_json('{"a": "b"}')
    assert [one["field"] for one in fields_of(caught.value)] == ["a"]
