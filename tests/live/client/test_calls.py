"""The requests of the client, word for word, and the results that it reads from the responses.

Both clients share `understudy.live.client.calls`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.live.fake_service import Fake, Making, blocking, plain
from tests.support.strategies import quick
from understudy.errors import InvalidArgument, Refused, ServiceUnavailable
from understudy.live.client import calls

pytestmark = pytest.mark.plain

both = pytest.mark.parametrize("make", [plain, blocking])
LATE = {"error": "late", "message": "its wait is over"}


@both
def test_the_token_and_json_are_sent_and_the_base_of_the_url_is_kept(make: Making) -> None:
    seen: list[httpx.Request] = []

    def look(request: httpx.Request) -> None:
        seen.append(request)

    options = {"url": "https://host:1/base/", "token": "us_secret"}
    with make(Fake(answer=look), **options) as client:
        client.archive("a b/c")
    (request,) = seen
    assert str(request.url) == "https://host:1/base/v1/studies/a%20b%2Fc/archive"
    assert request.headers["authorization"] == "Bearer us_secret"
    assert request.headers["content-type"] == "application/json"
    assert (request.method, request.content) == ("POST", b"{}")


@both
def test_what_is_asked_and_what_comes_back(make: Making) -> None:
    """Every question with its method, path and body, and every answer read."""
    policy = [{"action": 1, "probability": 0.25}, {"action": 2, "probability": 0.75}]
    answers = {
        "/v1/studies": {"studies": [{"decisions": 3}]},
        "/v1/studies/mugs": {"decisions": 3},
        "/v1/studies/mugs/policy": {
            "study": "mugs",
            "decisions": 3,
            "learned": 3,
            "policy": policy,
        },
        "/v1/studies/mugs/draw": {"action": 2, "probability": 0.75, "learned": 3},
        "/v1/studies/mugs/coverage": {"findings": []},
        "/v1/studies/mugs/certificate": {"verdict": "not yet"},
    }
    fake = Fake(answer=lambda request: httpx.Response(200, json=answers[request.url.path]))
    with make(fake) as client:
        mugs, drawn = client.open("mugs"), us.live.Drawn(action=2, probability=0.75, learned=3)
        assert client.studies() == client.studies(archived=True) == [{"decisions": 3}]
        assert client.study("mugs") == {"decisions": 3}
        assert mugs.policy() == mugs.policy({"age": np.int64(40)}) == {1: 0.25, 2: 0.75}
        assert mugs.draw() == mugs.draw({"age": 40}) == drawn
        assert mugs.coverage() == {"findings": []}
        assert mugs.certificate() == {"verdict": "not yet"}
    assert fake.requests == [
        ("GET", "/v1/studies", b""),
        ("GET", "/v1/studies?archived=true", b""),
        ("GET", "/v1/studies/mugs", b""),
        ("GET", "/v1/studies/mugs/policy", b""),
        ("GET", "/v1/studies/mugs/policy?context=%7B%22age%22%3A40%7D", b""),
        ("POST", "/v1/studies/mugs/draw", b"{}"),
        ("POST", "/v1/studies/mugs/draw", b'{"context":{"age":40}}'),
        ("GET", "/v1/studies/mugs/coverage", b""),
        ("GET", "/v1/studies/mugs/certificate", b""),
    ]


@both
def test_a_study_is_created_with_what_was_said_and_a_snapshot_travels_to_the_last_bit(
    make: Making,
) -> None:
    text = '{"kind": "policy",\n "x": 0.1000,  "é": "\\u2028"}'

    def show(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(200, content=text) if request.method == "GET" else None

    fake = Fake(answer=show)
    with make(fake) as client:
        made = client.create_study(
            "mugs", ("red", "blue"), reward_wait=60.0, reward_range=(0, 5), horizon=None
        )
        client.load_snapshot("again", made.snapshot(), reward_wait=5.0)
        client.load_snapshot("thrice", json.loads(text), default_reward=0.5)
    (*_, first), _, (_, path, body), (_, other, parsed) = fake.requests
    assert json.loads(first) == {
        "name": "mugs",
        "actions": ["red", "blue"],
        "reward_wait": 60.0,
        "reward_range": [0, 5],
    }
    assert (path, body) == ("/v1/snapshots?name=again&reward_wait=5.0", text.encode())
    assert other == "/v1/snapshots?name=thrice&default_reward=0.5"
    assert json.loads(parsed) == json.loads(text)


@both
def test_many_events_go_by_the_thousand_and_are_counted_from_the_first(make: Making) -> None:
    def refuse_the_third(request: httpx.Request) -> httpx.Response:
        sizes.append(len(json.loads(request.content)["events"]))
        said = {"index": 2, "id": "x", **LATE}
        return httpx.Response(200, json={"accepted": sizes[-1] - 2, "known": 1, "refused": [said]})

    sizes: list[int] = []
    with make(Fake(answer=refuse_the_third)) as client:
        taken = client.open("mugs").send({"action": "a"} for _ in range(2_500))
    assert sizes == [1_000, 1_000, 500]
    assert (taken.accepted, taken.known) == (2_494, 3)
    assert [refused.index for refused in taken.refused] == [2, 1_002, 2_002]
    assert taken.refused[0] == us.live.RefusedEvent(index=2, id="x", **LATE)


@both
def test_fields_of_later_batches_are_counted_from_the_first_event_too(make: Making) -> None:
    fields = [{"field": "events.7.reward", "message": "no"}, {"field": "events", "message": "no"}]
    said = {"error": "invalid", "message": "it is not valid", "fields": fields}
    fake = Fake()
    fake.answer = lambda _: httpx.Response(422, json=said) if len(fake.requests) == 2 else None
    with make(fake) as client, pytest.raises(Refused) as caught:
        client.open("mugs").send({"action": "a"} for _ in range(2_500))
    assert caught.value.fields == (("events.1007.reward", "no"), ("events", "no"))
    assert len(fake.requests) == 2


@both
def test_a_response_that_leaves_events_out_is_no_answer(make: Making) -> None:
    """Another server says {}; were that an answer, the events would be lost in silence."""
    fake = Fake(answer=lambda _: httpx.Response(200, json={}))
    with (
        make(fake) as client,
        pytest.raises(ServiceUnavailable, match="is not an Understudy service"),
    ):
        client.open("mugs").send([{"action": "a"}])


@both
def test_nothing_is_sent_of_no_events(make: Making) -> None:
    fake = Fake()
    with make(fake) as client:
        assert client.open("mugs").send([]) == us.live.BatchTaken()
    assert fake.requests == []


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Bytes that come in pieces, and may break off."""

    def __init__(self, *parts: bytes, error: Exception | None = None) -> None:
        self.parts, self.error = parts, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self.parts
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


rows = st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3), max_size=5)


@quick
@given(rows=rows, cuts=st.lists(st.integers(0, 80), max_size=6), ended=st.booleans())
def test_lines_are_cut_at_line_feeds_and_nowhere_else(
    rows: list[dict[str, str]], cuts: list[int], *, ended: bool
) -> None:
    """Whatever the pieces are, and whatever of Unicode is in the texts (such as U+2028)."""
    texts = [json.dumps(row, ensure_ascii=False) for row in [*rows, {"\u2028": "\x85\r"}]]
    whole = ("\n".join(texts) + "\n" * ended).encode("utf-8", "surrogatepass")
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    found, rest = [], b""
    for part in [*(whole[low:high] for low, high in itertools.pairwise(edges)), b"\n"]:
        rows_so_far, rest = calls.complete_rows(rest + part)
        found += rows_so_far
    assert found == [*rows, {"\u2028": "\x85\r"}]


@both
def test_the_log_is_read_as_it_comes_and_its_opening_is_tried_again(make: Making) -> None:
    stream = Stream(b'{"id": "a"', b'}\n{"id": ', '"\u2028"}'.encode())
    fake = Fake(["lost", "unavailable"], answer=lambda _: httpx.Response(200, stream=stream))
    with make(fake) as client:
        assert list(client.open("mugs").log()) == [{"id": "a"}, {"id": "\u2028"}]
    assert len(fake.requests) == 3


@both
@pytest.mark.parametrize(
    "stream",
    [Stream(b'{"id": "a"}\n{"id', error=httpx.ReadError("reset")), Stream(b'{"id": "a"}\n{"id')],
    ids=["broken off", "ended early"],
)
def test_a_log_that_breaks_off_is_never_taken_for_a_whole_one(make: Making, stream: Stream) -> None:
    fake = Fake(answer=lambda _: httpx.Response(200, stream=stream))
    with make(fake) as client:
        rows = client.open("mugs").log()
        assert next(rows) == {"id": "a"}
        with pytest.raises(ServiceUnavailable, match=r"log: it broke off .*begin it again"):
            next(rows)


@both
def test_a_log_that_is_refused_says_why(make: Making) -> None:
    body = json.dumps({"error": "unknown study", "message": "there is none"}).encode()
    fake = Fake(answer=lambda _: httpx.Response(404, stream=Stream(body)))
    with make(fake) as client, pytest.raises(Refused, match="404 unknown study: there is none"):
        list(client.open("mugs").log())


GOOD = {"action": "a"}
WRONG: dict[str, tuple[Any, str, str]] = {
    "a reward that is not there": (lambda s: s.observe("a", None), "reward", "missing; pass a f"),
    "an action that is not there": (lambda s: s.decide(None), "action", "it is missing; pass the"),
    "a reward of True": (lambda s: s.observe("a", True), "reward", "a valid number; pass a finite"),
    "a reward in words": (lambda s: s.observe("a", "0.5"), "reward", "a valid number"),
    "two rewards": (lambda s: s.observe("a", np.ones(2)), "event", "ndarray is not a kind of JSON"),
    "an infinite reward": (lambda s: s.reward("a1", np.inf), "reward", "finite"),
    "a propensity of 0": (lambda s: s.decide("a", propensity=0), "propensity", "at least 1e-100"),
    "a propensity above 1": (lambda s: s.decide("a", propensity=1.1), "propensity", "at most 1"),
    "an empty id": (lambda s: s.decide("a", id=""), "id", "1 to 128"),
    "a long id": (lambda s: s.decide("a", id="x" * 129), "id", "at most 128"),
    "an id that is no text": (lambda s: s.reward(7, 1.0), "id", "text"),
    "no id": (lambda s: s.reward(None, 1.0), "id", "it is missing"),
    "a reward of nothing": (lambda s: s.send([{"reward": 1.0}]), "events.0.id", "of its"),
    "no event": (lambda s: s.send([("a", 1.0)]), "events.0", "pass a dict of id, action"),
    "another field": (
        lambda s: s.send([GOOD, {"id": "a", "prob": 1}]),
        "events.1.prob",
        "pass id, ",
    ),
    "a fraction as action": (lambda s: s.decide(0.5), "action", "a text or a whole number"),
    "an action that is too large": (lambda s: s.decide(1 << 70), "action", "at most 9.22"),
    "a context that is a list": (lambda s: s.decide("a", context=[1]), "context", "an object"),
    "a context that JSON lacks": (lambda s: s.decide("a", context={"x": {1}}), "event", "set"),
    "a list in a context": (lambda s: s.draw({"x": [1]}), "context.x", "pass a dict of texts"),
    "a long text in a context": (lambda s: s.draw({"x": "y" * 1_001}), "context.x", "at most 1000"),
    "a part without a name": (lambda s: s.policy({"": 1}), "context.", "at least 1 character"),
    "a context that is not finite": (lambda s: s.draw({"x": np.nan}), "context.x", "finite"),
    "a date": (lambda s: s.policy({"x": np.datetime64("2026-01-01")}), "context", "date"),
    "half a character": (lambda s: s.decide("\ud800"), "event", "JSON"),
}


@both
@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_right_is_not_sent(make: Making, wrong: str) -> None:
    step, argument, words = WRONG[wrong]
    fake = Fake()
    with make(fake) as client, pytest.raises(InvalidArgument) as caught:
        step(client.open("mugs"))
    assert caught.value.argument == argument
    assert words in str(caught.value)
    assert fake.requests == []


@both
def test_numbers_of_other_libraries_are_numbers(make: Making) -> None:
    fake, context = Fake(), {"age": np.int8(40), "new": np.bool_(True), "kind": np.str_("b")}
    with make(fake) as client:
        study = client.open("mugs")
        study.observe(np.int64(3), np.float32(0.5), propensity=Decimal("0.25"), context=context)
        study.reward("a1", Fraction(1, 2))
        study.reward("a1", np.array(2))
    first, *rewards = [json.loads(body) for *_, body in fake.requests]
    del first["id"]
    assert first == {
        "action": 3,
        "propensity": 0.25,
        "context": {"age": 40, "new": True, "kind": "b"},
        "reward": 0.5,
    }
    assert [reward["reward"] for reward in rewards] == [0.5, 2]


@both
def test_options_that_json_lacks_are_not_sent(make: Making) -> None:
    fake = Fake()
    with make(fake) as client, pytest.raises(InvalidArgument, match="JSON cannot hold it"):
        client.create_study("mugs", ["red", "blue"], reward_range=(0.0, np.nan))
    assert fake.requests == []


@both
@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"url": "127.0.0.1:8642"}, "url"),
        ({"url": "ftp://host"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://[::1"}, "url"),
        ({"url": None}, "url"),
        ({"token": 7}, "token"),
        ({"token": ""}, "token"),
        ({"token": "us_sécret"}, "token"),
        ({"token": "us_secret\n"}, "token"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
    ],
)
def test_a_client_that_cannot_work_is_not_made(
    make: Making, options: dict[str, Any], argument: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make(Fake(), **options)
    assert caught.value.argument == argument
    assert "cret" not in str(caught.value)


@both
@pytest.mark.parametrize("name", ["", ".", "..", None])
def test_a_study_needs_a_name(make: Making, name: Any) -> None:
    with make(Fake()) as client, pytest.raises(InvalidArgument, match="not the name of a study"):
        client.archive(name)


@both
@pytest.mark.parametrize("actions", ["red", None, 7])
def test_actions_are_a_list(make: Making, actions: Any) -> None:
    """A text would be a list of its letters."""
    with make(Fake()) as client, pytest.raises(InvalidArgument, match="it is no list; pass one"):
        client.create_study("mugs", actions)


@both
@pytest.mark.parametrize("events", [{"action": "a"}, None])
def test_events_are_a_list(make: Making, events: Any) -> None:
    with make(Fake()) as client, pytest.raises(InvalidArgument, match="no list of events; pass"):
        client.open("mugs").send(events)


@both
@pytest.mark.parametrize("snapshot", ["policy.json", None, ["{}"]])
def test_a_snapshot_is_the_text_of_a_file_and_not_its_name(make: Making, snapshot: Any) -> None:
    with make(Fake()) as client, pytest.raises(InvalidArgument, match="pass the text of the file"):
        client.load_snapshot("again", snapshot)
