"""The client of the live service: how often it asks, and what it says if that is in vain."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.live.fake_service import Fake, Fault, Making, blocking, plain
from tests.support.strategies import quick
from understudy.errors import Refused, ServiceUnavailable

pytestmark = pytest.mark.plain

both = pytest.mark.parametrize("make", [plain, blocking])
faults = st.lists(st.sampled_from(get_args(Fault)), max_size=12)


def feed(client: Any) -> tuple[int, set[str]]:
    """Send feedback in every form: how many calls failed, and which facts the others stated.

    A decision whose own call failed gets its reward all the same: the caller chose the id.
    """
    study, failed, sent = client.open("mugs"), 0, set[str]()
    events = [{"id": f"e{i}", "action": "a", "reward": 0.5} for i in range(3)]
    steps: dict[tuple[str, ...], Callable[[], object]] = {
        ("one action", "one reward"): lambda: study.observe("a", 1, propensity=0.5, id="one"),
        ("two action",): lambda: study.decide("a", propensity=0.5, id="two"),
        ("two reward",): lambda: study.reward("two", 0.5),
        tuple(f"e{i} {name}" for i in range(3) for name in ("action", "reward")): lambda: (
            study.send(events)
        ),
    }
    for stated, step in steps.items():
        try:
            step()
        except ServiceUnavailable:
            failed += 1
        else:
            sent.update(stated)
    return failed, sent


@both
@quick
@given(script=faults, retries=st.integers(0, 6))
def test_whatever_is_lost_every_event_is_counted_once(
    make: Making, script: list[Fault], retries: int
) -> None:
    """Also if its answer is lost after it was taken; what fails was counted once at most."""
    fake = Fake(list(script))
    with make(fake, retries=retries) as client:
        failed, sent = feed(client)
    assert all(count == 1 for count in fake.taken.values())
    assert sent <= fake.taken.keys()
    if not failed:
        assert sent == fake.taken.keys()
    if len(script) <= retries:
        assert not failed


@quick
@given(script=faults, retries=st.integers(0, 3), chance=st.floats(0.0, 1.0, exclude_max=True))
def test_both_clients_ask_wait_and_fail_alike(
    script: list[Fault], retries: int, chance: float
) -> None:
    seen = []
    for make in (plain, blocking):
        fake, waits = Fake(list(script)), list[float]()
        making: Any = make
        with making(fake, retries=retries, random=lambda: chance, sleep=waits.append) as client:
            found = feed(client)
        seen.append((fake.requests, waits, found))
    assert seen[0] == seen[1]


@both
def test_an_id_is_made_before_the_first_try_and_is_that_of_all_tries(make: Making) -> None:
    fake = Fake(["answer lost", "lost", "none", "slow", "none"])
    with make(fake) as client:
        study = client.open("mugs")
        first, second = study.decide("a", propensity=0.5), study.decide("a", propensity=0.5)
    bodies = [body for *_, body in fake.requests]
    assert len(set(bodies[:3])) == len(set(bodies[3:])) == 1
    assert [json.loads(body)["id"] for body in bodies[2:4]] == [first, second]
    assert first != second


@both
def test_a_client_tries_so_often_waits_twice_as_long_each_time_and_then_says_what_to_do(
    make: Making,
) -> None:
    for chance, share in ((0.0, 0.5), (1.0, 1.0)):
        fake, waits = Fake(["lost"] * 99), list[float]()
        making = make(fake, retries=7, random=lambda c=chance: c, sleep=waits.append)
        with making as client, pytest.raises(ServiceUnavailable) as caught:
            client.studies()
        assert len(fake.requests) == 8
        assert waits == [share * wait for wait in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)]
    assert str(caught.value) == (
        "GET /v1/studies: no answer in 8 tries (ConnectError: refused); start it with "
        "`understudy serve`, or pass the url of one that runs"
    )
    assert isinstance(caught.value, ConnectionError)


@both
def test_retries_print_nothing(make: Making, capfd: pytest.CaptureFixture[str]) -> None:
    with make(Fake(["lost", "busy"])) as client:
        client.open("mugs").reward("a1", 1.0)
    assert capfd.readouterr() == ("", "")


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@both
@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("7", 7.0, 7.25),
        ("0", 0.0, 0.25),
        ("soon", 0.0, 0.25),
        ("", 0.0, 0.25),
        ("Mon, 20 Jan 2020 00:00:00 GMT", 0.0, 0.25),
        ("121", None, None),
        ("Mon, 20 Jan 99999 00:00:00 GMT", 0.0, 0.25),
        (f"Mon, {'9' * 400} Jan 2020 00:00:00 GMT", 0.0, 0.25),
        ("Tue, 20 Jan 2099 00:00:00 GMT", None, None),
        ("Tue, 20 Jan 2099 00:00:00 -0000", None, None),
        ("120", 120.0, 120.25),
    ],
)
def test_retry_after_is_obeyed_or_not_waited_for(
    make: Making, said: str, least: float | None, most: float | None
) -> None:
    """A number of seconds, or a date; whoever asks for more than two minutes is not asked again."""
    answers = [httpx.Response(503, headers={"retry-after": said})]
    fake, waits = Fake(answer=lambda _: answers.pop() if answers else None), list[float]()
    with make(fake, sleep=waits.append) as client:
        if least is None or most is None:
            with pytest.raises(ServiceUnavailable, match="not now, after one try"):
                client.open("mugs").reward("a1", 1.0)
            assert (len(fake.requests), waits) == (1, [])
        else:
            client.open("mugs").reward("a1", 1.0)
            assert len(fake.requests) == 2
            assert least <= waits[0] <= most


def test_a_date_to_retry_after_is_waited_for() -> None:
    answers = [httpx.Response(429, headers={"retry-after": in_seconds(60)})]
    fake, waits = Fake(answer=lambda _: answers.pop() if answers else None), list[float]()
    with plain(fake, sleep=waits.append) as client:
        client.open("mugs").reward("a1", 1.0)
    assert 30.0 < waits[0] <= 60.25


def test_a_cancelled_call_is_not_tried_again() -> None:
    asked: list[httpx.Request] = []

    async def cancel(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise asyncio.CancelledError

    async def call() -> None:
        async with us.live.AsyncClient(transport=httpx.MockTransport(cancel)) as client:
            await client.studies()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call())
    assert len(asked) == 1


@both
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 415, 422, 500])
def test_a_refusal_is_raised_at_once_with_all_that_was_said(make: Making, status: int) -> None:
    fields = [{"field": f"f{i}", "message": "it is wrong"} for i in range(7)]
    said = {"error": "late", "message": "its wait\nis over", "fields": fields}
    fake = Fake(answer=lambda _: httpx.Response(status, json=said))
    with make(fake) as client, pytest.raises(Refused) as caught:
        client.open("mugs").reward("a1", 1.0)
    assert len(fake.requests) == 1
    assert (caught.value.status, caught.value.error) == (status, "late")
    assert caught.value.message.startswith("its wait\nis over")
    assert caught.value.fields == tuple((f"f{i}", "it is wrong") for i in range(7))
    words = str(caught.value)
    assert words.startswith(f"{status} late: its wait is over")
    assert words.endswith("f4: it is wrong; and 2 more)")
    assert "\n" not in words
    assert ("Client(token=" in words) == (status in {401, 403})
    assert str(pickle.loads(pickle.dumps(caught.value))) == words


@both
@pytest.mark.parametrize(
    "said",
    [
        b"<html>hello</html>",
        b"[1, 2]",
        b'{"policy": [{"name": "a"}]}',
        b'{"policy": null}',
        b'{"policy": [{"action": "a", "probability": "much"}]}',
        b"\xff",
    ],
    ids=["page", "list", "other field", "null", "no number", "no text"],
)
def test_what_is_no_service_of_ours_is_told_as_such(make: Making, said: bytes) -> None:
    fake = Fake(answer=lambda _: httpx.Response(200, content=said))
    with (
        make(fake) as client,
        pytest.raises(ServiceUnavailable, match="is not an Understudy service"),
    ):
        client.open("mugs").policy()


@both
def test_other_servers_that_say_no_are_quoted_as_far_as_they_say_anything(make: Making) -> None:
    fake = Fake(answer=lambda _: httpx.Response(404, text="<html>"))
    with make(fake) as client, pytest.raises(Refused, match="404 not found: it does not say why"):
        client.study("mugs")
    elsewhere = httpx.Response(307, headers={"location": "https://elsewhere/"})
    fake = Fake(answer=lambda _: elsewhere)
    with make(fake) as client, pytest.raises(ServiceUnavailable, match="to https://elsewhere/"):
        client.study("mugs")


@pytest.mark.parametrize(
    ("plain_class", "async_class"),
    [(us.live.Client, us.live.AsyncClient), (us.live.StudyClient, us.live.AsyncStudyClient)],
)
def test_both_clients_have_the_same_methods(plain_class: type, async_class: type) -> None:
    """The same arguments; all that waits for an answer is a coroutine."""

    def methods(client: type) -> dict[str, Any]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(client, callable)
            if not name.startswith("_")
        }

    found, expected = methods(async_class), methods(plain_class)
    expected.pop("background", None)  # that of `Client` serves both
    assert found == expected
    for name in found.keys() - {"open", "log"}:
        assert inspect.iscoroutinefunction(getattr(async_class, name)), name


@pytest.mark.parametrize(
    ("old", "new"), [("Study", "StudyClient"), ("AsyncStudy", "AsyncStudyClient")]
)
def test_a_name_of_0_5_0_warns_and_works(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"understudy.live.{old} is now {new}"):
        assert getattr(us.live, old) is getattr(us.live, new)
    with pytest.raises(AttributeError, match=f"no attribute '{old}s'"):
        getattr(us.live, f"{old}s")
