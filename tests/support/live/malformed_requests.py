"""Requests that a service must refuse: what is sent is right but for one thing."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["PLAIN", "STUDIES", "VISITS", "Sent", "malformed"]

# Two studies that exist, and an event that each of them would take.
PLAIN = {"name": "plain", "actions": ["a", "b"], "reward_range": [-1.0, 1.0]}
VISITS = {"name": "visits", "actions": [1, 2], "context": {"age": "number", "town": "text"}}
STUDIES = (PLAIN, VISITS)
EVENTS: dict[str, dict[str, Any]] = {
    "plain": {"id": "new", "action": "a", "propensity": 0.5, "reward": 1.0},
    "visits": {
        "id": "new",
        "action": 1,
        "propensity": 0.5,
        "reward": 1.0,
        "context": {"age": 40.0, "town": "Ulm"},
    },
}
NESTED = "[" * 20_000 + "]" * 20_000
NEITHER_TEXT_NOR_NUMBER: tuple[object, ...] = (True, [], {}, ["a"], {"a": 1})
NO_NUMBER: tuple[object, ...] = (
    "0.5",
    True,
    [],
    {},
    [0.5],
    {"value": 0.5},
    math.nan,
    math.inf,
    -math.inf,
    10**400,
)
NO_TEXT: tuple[object, ...] = (None, 1, 0.5, True, [], {}, "", "x" * 129, "a\0b", "x" * 100_000)


@dataclass(frozen=True)
class Sent:
    """A request, as it goes out."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


Spoil = Callable[[random.Random, dict[str, Any]], object]


def malformed(rng: random.Random) -> Sent:
    """Another one every time."""
    return rng.choice((_event, _event, _batch, _batch, _raw, _raw, _request, _study, _snapshot))(
        rng
    )


def _event(rng: random.Random) -> Sent:
    study = rng.choice(tuple(EVENTS))
    return _post(f"/v1/studies/{study}/events", _spoiled(rng, study))


def _batch(rng: random.Random) -> Sent:
    """Events that would be taken, and one that is not; or no events at all."""
    study = rng.choice(tuple(EVENTS))
    good = [{**EVENTS[study], "id": f"good-{i}"} for i in range(rng.randrange(20))]
    good.insert(rng.randrange(len(good) + 1), _spoiled(rng, study))
    body: object = rng.choice(
        (
            *[{"events": good}] * 6,
            {"events": []},
            {"events": [EVENTS[study]] * 1_001},
            {"events": EVENTS[study]},
            {"events": None},
            {"events": [EVENTS[study]], "study": study},
            {"events": [[EVENTS[study]]]},
            [EVENTS[study]],
            {},
        )
    )
    return _post(f"/v1/studies/{study}/batches", body)


def _spoiled(rng: random.Random, study: str) -> dict[str, Any]:
    event: dict[str, Any] = copy.deepcopy(EVENTS[study])
    rng.choice(SPOILS if study == "plain" else (*SPOILS, *SPOILS_OF_CONTEXT))(rng, event)
    return event


def _set(name: str, *values: object) -> Spoil:
    return lambda rng, event: event.update({name: rng.choice(values)})


def _drop(*names: str) -> Spoil:
    return lambda _, event: [event.pop(name, None) for name in names]


SPOILS: tuple[Spoil, ...] = (
    _set("id", *NO_TEXT),
    _drop("id"),
    _set("action", "c", "", "A", 3, 1.5, 10**30, "a\0", "a" * 201, *NEITHER_TEXT_NOR_NUMBER),
    _set("propensity", None, 0, 0.0, -0.5, 1.1, 1e-300, 5e-324, 1 + 1e-9, *NO_NUMBER),
    _drop("propensity"),
    _set("reward", 1.1, -1.1, 1e308, 1 + 1e-12, *NO_NUMBER),
    _drop("action", "reward"),
    _drop("action"),  # a propensity without an action
    _set("extra", None, 1, "x"),
    _set("Reward", 1.0),
    _set("context", {"age": 40.0}, {"age": 40.0, "town": "Ulm", "x": 1}, [], "x", 1, {"": 1}, {}),
    _set("context", {"age": NESTED}, {f"c{i}": 1 for i in range(100)}, {"age": {"age": 1}}),
)
SPOILS_OF_CONTEXT: tuple[Spoil, ...] = (
    _drop("context"),
    lambda rng, event: event["context"].update(
        age=rng.choice(("40", [], {}, math.nan, math.inf, 10**400))
    ),
    lambda rng, event: event["context"].update(
        town=rng.choice((1, True, [], {}, "x" * 1_001, "\0"))
    ),
    lambda rng, event: event["context"].pop(rng.choice(("age", "town"))),
)


def _raw(rng: random.Random) -> Sent:
    """Bytes that are no JSON, or not one that can be meant."""
    study = rng.choice(tuple(EVENTS))
    good = json.dumps(EVENTS[study]).encode()
    bad: tuple[bytes, ...] = (
        good[: rng.randrange(len(good))],
        good + rng.choice((b"}", b"x", b" {}", good, b"\0")),
        good.replace(b'"new"', b'"' + bytes([rng.randrange(0x80, 0x100)]) + b'"'),
        good.replace(
            b'"new"', rng.choice((rb'"\ud800"', rb'"\udfff\ud800"', rb'"\u12"', b'"a\nb"'))
        ),
        good.replace(b"0.5", rng.choice((b"NaN", b"Infinity", b"1e999", b"0x1", b".5", b"0.5.5"))),
        good.replace(b'"reward"', b'"propensity"'),
        good[:-1] + b', "reward": 0.5}',
        good[:-1] + rb', "\u0072eward": 1.0}',
        good.replace(b'"', b"'"),
        NESTED.encode(),
        b'{"id": ' + NESTED.encode() + b"}",
        b"[" * 100_000,
        rng.choice((b"", b"null", b"true", b"1", b'"x"', b"[]", b"{}", b"\xff\xfe{\0}\0")),
        rng.randbytes(rng.randrange(1, 200)),
    )
    return Sent("POST", f"/v1/studies/{study}/events", rng.choice(bad))


def _request(rng: random.Random) -> Sent:
    """An event that would be taken, sent to where it cannot be, or in another guise."""
    good = _post("/v1/studies/plain/events", EVENTS["plain"])
    kinds = ("text/plain", "application/xml", "", "application/jsonx", "multipart/form-data")
    unknown = ("nobody", "PLAIN", "plain%00", "plain%20", "..%2fplain", "x" * 500, "%F0%28", "é")
    lost = ("/v1/event", "/v2/studies", "/v1/studies/plain/events/new", "/v1", "/%00")
    return rng.choice(
        (
            replace(good, headers={"content-type": rng.choice(kinds)}),
            replace(good, headers={}),
            replace(good, method=rng.choice(("PUT", "DELETE", "PATCH", "GET", "TRACE"))),
            replace(good, path=f"/v1/studies/{rng.choice(unknown)}/events"),
            replace(good, path=rng.choice(lost)),
            replace(good, path=good.path + rng.choice(("?id=1", "?context=", "?%00", "?token=x"))),
            replace(
                good, headers={**good.headers, "host": rng.choice(("evil.example", "10.0.0.1"))}
            ),
            replace(good, headers={**good.headers, "origin": "https://evil.example"}),
            replace(good, body=b" " * 1_100_000 + good.body),
            Sent("GET", "/v1/studies/plain/policy?context=" + rng.choice(("{", "1", "{}", "%ff"))),
            Sent("GET", f"/v1/studies/{rng.choice(unknown)}/log"),
            Sent("DELETE", "/v1/studies/plain"),
            Sent("POST", f"/v1/studies/{rng.choice(unknown)}/archive"),
        )
    )


def _study(rng: random.Random) -> Sent:
    spec: dict[str, Any] = {**rng.choice(STUDIES), "name": "new"}
    wrong: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("name", (*NO_TEXT, "Upper", "a b", "-a", "a/b", "ä", "x" * 65)),
        (
            "actions",
            ([], ["a"], ["a", "a"], ["1", 1], ["a", ""], "ab", [1.5, 2], None, ["a", "\0"]),
        ),
        ("behavior", ("x", 1, {}, {"a": 0.5, "b": 0.6}, {"c": 1.0}, {"a": math.nan}, [])),
        ("learner", ("none", 1, "", [])),
        ("horizon", (0, -1, 1.5, "9", True, 10**400)),
        ("reward_range", ([1, 0], [0, 0], [0], [0, 1, 2], [0, math.inf], "01", None, [0, "1"])),
        ("reward_wait", (0, -1, 1e300, None, *NO_NUMBER)),
        ("default_reward", (2.0, -2.0, *NO_NUMBER)),
        ("confidence", (0, 1, 1.5, -1, None, *NO_NUMBER)),
        ("context", ({}, {"age": "date"}, {"reward": "number"}, {"": "text"}, [], "age", 1)),
        ("warmup", (0, 1, 10**9, 2.5, "9", None)),
        ("extra", (1, None)),
    )
    name, values = rng.choice(wrong)
    return _post("/v1/studies", {**spec, name: rng.choice(values)})


def _snapshot(rng: random.Random) -> Sent:
    """What is no policy.json, or is not asked for as it should be."""
    queries = ("?name=new", "", "?name=", "?name=New", "?name=new&reward_wait=x", "?name=new&x=1")
    body = rng.choice(
        (
            b"{}",
            b"[]",
            b"",
            b"{",
            NESTED.encode(),
            json.dumps({"format": "understudy", "version": 2, "kind": "policy"}).encode(),
            json.dumps({"format": "understudy", "version": 99, "kind": "policy"}).encode(),
            rng.randbytes(50),
        )
    )
    return Sent("POST", "/v1/snapshots" + rng.choice(queries), body)


def _post(path: str, body: object) -> Sent:
    return Sent("POST", path, json.dumps(body).encode())
