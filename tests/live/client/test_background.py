"""Feedback that a thread sends: all of it arrives, in its order, or an error says what did not.

The thread is that of `understudy.live.client.background`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from threading import Event as Signal
from threading import Thread
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.live.fake_service import Fake, Fault, plain
from tests.support.strategies import quick
from understudy.errors import Refused, ServiceUnavailable, Undelivered
from understudy.live import BatchTaken, Delivery
from understudy.live.client import background

pytestmark = pytest.mark.plain

LOSING = st.lists(st.sampled_from(["none", "lost", "answer lost", "slow", "busy"]), max_size=10)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PAUSE", 0.0)
    monkeypatch.setattr(background, "REFUSED_PAUSE", 0.0)


def sent(fake: Fake) -> list[dict[str, Any]]:
    """All events of all batches, in the order in which they came."""
    return [event for *_, body in fake.requests for event in json.loads(body)["events"]]


@quick
@given(script=LOSING, retries=st.integers(0, 2), events=st.integers(0, 30))
def test_all_that_was_taken_arrives_once_and_in_order(
    script: list[Fault], retries: int, events: int
) -> None:
    """Through a service that comes and goes: it is asked until it answers."""
    fake, gone = Fake(list(script)), Signal()
    with plain(fake, retries=retries) as client:
        feed = client.background("mugs")
        for i in range(events):
            assert feed.observe("a", 0.5, propensity=0.5, id=f"e{i}")
        waiting = (gone.wait(0.001) for _ in range(10_000))
        while fake.faults and feed.delivery.taken < events:
            next(waiting)  # what fails after `close` is tried but once
        feed.close()
    assert feed.delivery == Delivery(taken=events)
    assert [*fake.taken] == [f"e{i} {name}" for i in range(events) for name in ("action", "reward")]
    assert set(fake.taken.values()) <= {1}


def test_a_decision_comes_before_its_reward_and_names_it() -> None:
    fake = Fake()
    with plain(fake) as client, client.background("mugs") as feed:
        key = feed.decide("a", propensity=0.5, context={"age": 40})
        assert key is not None
        assert feed.reward(key, 1.0)
    decision = {"id": key, "action": "a", "propensity": 0.5, "context": {"age": 40}}
    assert sent(fake) == [decision, {"id": key, "reward": 1.0}]


class Stuck(Fake):
    """Answers nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = Signal(), Signal()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.set()
        assert self.let_go.wait(10)
        return super().__call__(request)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    fake = Stuck()
    yield fake
    fake.let_go.set()


def test_what_finds_no_room_is_not_taken_and_is_told(stuck: Stuck) -> None:
    """Decisions leave room for rewards: a reward that is lost would count as the default one."""
    with plain(stuck) as client:
        feed = client.background("mugs", most=2)
        assert feed.observe("a", 0.5, id="first")
        assert stuck.asked.wait(10)
        key = feed.decide("b", id="second")
        assert feed.decide("c") is None
        assert not feed.observe("d", 0.5)
        assert feed.reward(str(key), 1.0)
        assert feed.reward("first", 0.5)
        assert not feed.reward("other", 1.0)
        assert feed.delivery == Delivery(dropped=3)
        stuck.let_go.set()
        with pytest.raises(Undelivered, match=r"3 found no room \(pass a larger most\)$"):
            feed.close()
    assert feed.delivery == Delivery(taken=4, dropped=3)
    assert [event["id"] for event in sent(stuck)] == ["first", "second", "second", "first"]


def test_rewards_that_wait_take_the_room_of_decisions(stuck: Stuck) -> None:
    with plain(stuck) as client, client.background("mugs", most=2) as feed:
        assert feed.reward("first", 1.0)
        assert feed.reward("second", 1.0)
        assert feed.decide("a") is None
        assert feed.reward("third", 1.0)
        stuck.let_go.set()
        with pytest.raises(Undelivered, match="study: 1 found no room"):
            feed.close()


def test_nothing_is_taken_after_the_end_and_the_end_comes_once() -> None:
    with plain(Fake()) as client:
        feed = client.background("mugs")
        feed.close()
        assert not feed.observe("a", 0.5)
        assert feed.delivery == Delivery(unsent=1)
        feed.close()


def test_what_no_service_took_in_the_end_is_told() -> None:
    fake = Fake(["lost"] * 1_000_000)
    with plain(fake, retries=2) as client:
        feed = client.background("mugs")
        for _ in range(3):
            feed.observe("a", 0.5)
        with pytest.raises(Undelivered, match=r"3 could not be sent; the last error: .*3 tries"):
            feed.close()
    assert feed.delivery == Delivery(unsent=3)
    assert isinstance(feed.trouble, ServiceUnavailable)


def test_what_fails_while_the_end_comes_is_tried_once_more() -> None:
    """The service was away when `close` was called, and is back a moment later."""
    tries: list[Thread] = []

    def send(events: Sequence[object]) -> BatchTaken:
        if not tries:
            tries.append(Thread(target=feed.close))
            tries[0].start()
            with feed._changed:
                assert feed._changed.wait_for(lambda: feed._closing, 10)
            raise ServiceUnavailable("away")
        return BatchTaken(accepted=len(events))

    feed = background.Background(send, most=1)
    feed.decide("a", propensity=0.5)
    feed._thread.join(10)
    tries[0].join(10)
    assert feed.delivery == Delivery(taken=1)


def test_a_thread_that_ends_takes_no_more_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client was closed too early: no event is accepted that would never be sent."""
    ended: list[object] = []
    monkeypatch.setattr("threading.excepthook", lambda args: ended.append(args.exc_value))
    with plain(Fake()) as client:
        feed = client.background("mugs")
    assert feed.observe("a", 0.5)
    feed._thread.join(10)
    assert isinstance(feed.trouble, RuntimeError)
    assert ended == [feed.trouble]
    assert not feed.observe("a", 0.5)
    assert feed.decide("a") is None
    assert not feed.reward("a1", 1.0)
    assert feed.delivery == Delivery(unsent=4)
    with pytest.raises(Undelivered, match=r"4 could not be sent; .*RuntimeError: .*closed"):
        feed.close()
    assert feed.delivery == Delivery(unsent=4)


@pytest.mark.parametrize("name", ["", "..", None])
def test_a_background_needs_the_name_of_a_study(name: Any) -> None:
    with plain(Fake()) as client, pytest.raises(us.errors.InvalidArgument, match="not the name"):
        client.background(name)


@pytest.mark.parametrize("status", [413, 422])
def test_one_bad_event_takes_no_good_one_with_it(status: int, stuck: Stuck) -> None:
    """A batch that is refused whole is sent in smaller parts, until the bad event is alone."""

    def refuse(request: httpx.Request) -> httpx.Response | None:
        bad = any(event["id"] == "bad" for event in json.loads(request.content)["events"])
        said = {"error": "invalid", "message": "an event is wrong"}
        return httpx.Response(status, json=said) if bad else None

    stuck.answer = refuse
    ids = [f"e{i}" for i in range(40)]
    ids[23] = "bad"
    with plain(stuck) as client:
        feed = client.background("mugs")
        for key in ids:
            assert feed.observe("a", 0.5, id=key)
        stuck.let_go.set()
        with pytest.raises(Undelivered, match=r"1 were refused; the last error: .*event is wrong"):
            feed.close()
    assert feed.delivery == Delivery(taken=39, refused=1)
    assert [fact.split()[0] for fact in fake_order(stuck)] == [key for key in ids if key != "bad"]


def fake_order(fake: Fake) -> list[str]:
    """The decisions, in the order in which they were taken."""
    return [fact for fact in fake.taken if fact.endswith("action")]


def test_events_of_an_archived_study_are_refused_once() -> None:
    said = {"error": "archived", "message": "this study is archived"}
    fake = Fake(answer=lambda _: httpx.Response(409, json=said))
    with plain(fake) as client:
        feed = client.background("mugs")
        feed.observe("a", 0.5)
        with pytest.raises(Undelivered, match=r"1 were refused; .*this study is archived"):
            feed.close()
    assert feed.delivery == Delivery(refused=1)
    assert isinstance(feed.trouble, Refused)
    assert len(fake.requests) == 1


NOT_ABOUT_EVENTS = [400, 401, 403, 404, 405, 408, 415, 431, 500, 501]


@pytest.mark.parametrize("status", NOT_ABOUT_EVENTS)
def test_events_wait_while_a_refusal_is_not_about_them(status: int) -> None:
    """A token was rotated, or a proxy sends requests elsewhere, until someone mends it."""
    refused_often, mended = Signal(), Signal()

    def refuse(_: httpx.Request) -> httpx.Response | None:
        if mended.is_set():
            return None
        if len(fake.requests) > 3:
            refused_often.set()
        return httpx.Response(status, json={"error": "astray", "message": "not here"})

    fake = Fake(answer=refuse)
    with plain(fake) as client, client.background("mugs") as feed:
        for i in range(5):
            assert feed.observe("a", 0.5, id=f"e{i}")
        assert refused_often.wait(10)
        assert feed.delivery == Delivery()
        assert isinstance(feed.trouble, Refused)
        assert feed.trouble.status == status
        mended.set()
    assert feed.delivery == Delivery(taken=5)
    assert fake_order(fake) == [f"e{i} action" for i in range(5)]


@pytest.mark.parametrize("status", NOT_ABOUT_EVENTS)
def test_events_that_wait_at_the_end_are_counted_as_unsent(status: int) -> None:
    said = {"error": "astray", "message": "not here"}
    fake = Fake(answer=lambda _: httpx.Response(status, json=said))
    with plain(fake) as client:
        feed = client.background("mugs")
        feed.observe("a", 0.5)
        with pytest.raises(Undelivered, match=rf"1 could not be sent; .*{status} astray"):
            feed.close()
    assert feed.delivery == Delivery(unsent=1)


def test_wrong_tokens_are_sent_too_seldom_to_block_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After ten wrong tokens in a minute, the service compares no new token of that address."""
    monkeypatch.undo()
    assert 60.0 / background.REFUSED_PAUSE < 10


def test_late_rewards_are_counted_and_nothing_is_missing() -> None:
    """The service knows of them; other events that it refuses are missing."""
    late = {"index": 0, "id": "x", "error": "late", "message": "its wait is over"}
    conflict = {"index": 1, "id": "y", "error": "conflict", "message": "it said something else"}
    said = {"accepted": 0, "known": 0, "refused": [late]}
    fake = Fake(answer=lambda _: httpx.Response(200, json=said))
    with plain(fake) as client:
        with client.background("mugs") as feed:
            feed.reward("x", 1.0)
        assert feed.delivery == Delivery(late=1)
        said["refused"] = [late, conflict]
        feed = client.background("mugs")
        feed.reward("x", 1.0)
        feed.reward("y", 1.0)
        with pytest.raises(Undelivered, match=r"409 conflict: it said something else \(id y\)"):
            feed.close()


FORGETFUL = """
import httpx, understudy as us

def answer(request):
    open({path!r}, "ab").write(request.content)
    return httpx.Response(200, json={{"accepted": 1, "known": 0, "refused": []}})

client = us.live.Client(transport=httpx.MockTransport(answer))
feed = client.background("mugs")
feed.observe("a", 0.5, id="last words")
"""


def test_a_program_that_ends_without_closing_still_sends(tmp_path: Any) -> None:
    path = tmp_path / "sent"
    code = FORGETFUL.format(path=str(path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)
    assert json.loads(path.read_bytes())["events"][0]["id"] == "last words"


def test_there_must_be_room_for_something() -> None:
    with plain(Fake()) as client, pytest.raises(us.errors.InvalidArgument, match="most = 0"):
        client.background("mugs", most=0)
