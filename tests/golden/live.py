"""A store of the live service, what its studies answer, and what they answer after more events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

import understudy as us

from .compare import EXPECTED, INPUTS
from .outside import rows_of, run

__all__ = [
    "STUDIES",
    "ask_all",
    "audited",
    "begin",
    "exported",
    "go_on",
    "logs_of",
    "settle",
]

STUDIES = ("router", "offers", "warming", "fixed", "counted", "continued")
CONTEXTS = ({"age": 51.5, "city": "Oslo"}, {"age": None, "city": "Turin"})
Clock = Callable[[float], None]


def begin(url: str, turn: Clock) -> None:
    """Make six studies and leave them under way. `turn` sets the clock of the service, in seconds.

    Rewards come at once, later, twice, too late, never; one study has contexts, one still prepares
    them, one is archived while decisions wait, one only counts its behavior, and one goes on from a
    policy.json.
    """
    now = 0.0
    with httpx.Client(base_url=url, timeout=60.0) as client:
        _create(client)
        for i, row in enumerate(_rows("plain-1.csv")[:25]):
            now += 1.0
            turn(now)
            decision = {key: row[key] for key in ("action", "propensity")} | {"id": f"r{i}"}
            if i % 3 == 0:
                _send(client, "router", decision | {"reward": row["reward"]})
                continue
            _send(client, "router", decision)
            if i % 10:  # the others never get one
                _send(client, "router", {"id": f"r{i}", "reward": row["reward"]})
        now += 700.0  # the wait of "router" is over
        turn(now)
        _until(client, "router", 25)
        _send(client, "router", {"id": "r10", "reward": 1.0})  # too late
        _send(client, "router", {"id": "r0", "action": "pen", "propensity": 0.1})  # a contradiction
        _send(client, "router", {"id": "nowhere", "reward": 1.0})
        for i, row in enumerate(_rows("contexts-1.csv")[:45]):
            context = {"age": float(row["age"]), "city": row["city"]}
            event = {key: row[key] for key in ("action", "propensity", "reward")}
            _send(client, "offers", event | {"id": f"o{i}", "context": context})
            if i < 8:
                _send(
                    client, "warming", event | {"id": f"w{i}", "context": {"age": context["age"]}}
                )
        for i, row in enumerate(_rows("bare-1.csv")[:25]):
            event = {"id": f"c{i}", "action": row["action"], "reward": row["reward"]}
            _send(client, "counted", event)
        for i, row in enumerate(_rows("plain-2.csv")[:20]):
            event = {key: row[key] for key in ("action", "propensity", "reward")}
            _send(client, "continued", event | {"id": f"p{i}"})
        now += 10.0
        turn(now)
        for i, row in enumerate(_rows("obd-1.tsv", "\t")[:24]):
            reward = {"reward": 3.0 * row["click"] - 1.0} if i < 18 else {}
            _send(client, "fixed", {"id": f"f{i}", "action": int(row["item_id"]), **reward})
        for i, row in enumerate(_rows("plain-1.csv")[25:37]):
            decision = {key: row[key] for key in ("action", "propensity")}
            _send(client, "router", decision | {"id": f"q{i}"})  # these wait
        _ask(client, "POST", "/v1/studies/fixed/archive")
        _until(client, "continued", 20)


def _create(client: httpx.Client) -> None:
    labels = ["mug", "book", "lamp", "pen"]
    contexts = {"age": "number", "city": "text"}
    for spec in (
        {"name": "router", "actions": labels, "learner": "coverage-adaptive", "reward_wait": 600.0},
        {
            "name": "offers",
            "actions": labels[:3],
            "learner": "lin-prod-compact",
            "context": contexts,
            "warmup": 15,
            "confidence": 0.9,
        },
        {
            "name": "warming",
            "actions": labels[:3],
            "learner": "lin-prod-compact",
            "context": {"age": "number"},
            "warmup": 12,
        },
        {
            "name": "fixed",
            "actions": [1, 2, 3],
            "learner": "exp3-ix",
            "horizon": 200,
            "behavior": {"1": 0.5, "2": 0.3, "3": 0.2},
            "reward_range": [-1.0, 2.0],
            "default_reward": 0.5,
        },
        {
            "name": "counted",
            "actions": [*labels, "vase"],
            "learner": "exp3-ix-unknown",
            "behavior": "estimated",
        },
    ):
        _ask(client, "POST", "/v1/studies", spec)
    policy = (EXPECTED / "learn" / "adaptive" / "policy.json").read_bytes()
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/snapshots?name=continued", content=policy, headers=headers)
    assert answer.status_code == 201, answer.text


def go_on(url: str) -> dict[str, Any]:
    """Give the rewards that are awaited, and send more events: what the client says to each."""
    said: dict[str, Any] = {}
    with us.live.Client(url) as client:
        router = client.open("router")
        rows = _rows("plain-1.csv")
        pairs = list(enumerate(rows[25:37]))
        said["rewards"] = [_taken(router.reward(f"q{i}", row["reward"])) for i, row in pairs[:10]]
        said["again"] = _taken(router.reward("q0", rows[25]["reward"]))
        more = [
            {"id": f"s{i}", **{key: row[key] for key in ("action", "propensity", "reward")}}
            for i, row in enumerate(rows[37:])
        ]
        wrong = [
            {"id": "q1", "reward": 0.123},
            {"id": "r10", "reward": 1.0},
            {"id": "nowhere", "reward": 1.0},
        ]
        said["batch"] = _batch(router.send([*more, *wrong, more[0]]))
        router.reward("q11", 0.0)  # q10 still waits, so nothing after it is learned from
        offers = client.open("offers")
        for i, row in enumerate(_rows("contexts-2.csv")[:20]):
            context = {"age": float(row["age"]), "city": row["city"]}
            event = {"propensity": row["propensity"], "context": context, "id": f"x{i}"}
            offers.observe(row["action"], row["reward"], **event)
        warming = client.open("warming")
        for i, row in enumerate(_rows("contexts-2.csv")[:15]):
            ticket = warming.decide(
                row["action"],
                propensity=row["propensity"],
                context={"age": float(row["age"])},
                id=f"y{i}",
            )
            warming.reward(ticket, row["reward"])
        fixed = client.open("fixed")
        said["archived"] = [_taken(fixed.reward(f"f{i}", 2.0 if i % 2 else -1.0)) for i in (18, 19)]
        said["refused"] = _refusal(lambda: fixed.observe(1, 0.0))
        said["wrong"] = _refusal(lambda: client.create_study("wrong", ["a"]))
        said["no study"] = _refusal(lambda: client.study("nowhere"))
        counted = client.open("counted")
        events = [
            {"id": f"d{i}", "action": row["action"], "reward": row["reward"]}
            for i, row in enumerate(_rows("bare-2.csv")[:20])
        ]
        said["counted"] = _batch(counted.send(events))
        policy = (EXPECTED / "learn" / "contexts" / "policy.json").read_text(encoding="utf-8")
        client.load_snapshot("loaded", policy, reward_wait=60.0)
        loaded = client.open("loaded")
        for i, row in enumerate(_rows("contexts-2.csv")[:12]):
            visits = None if row["visits"] == "" else float(row["visits"])
            context = {"age": float(row["age"]), "city": row["city"], "visits": visits}
            event = {"propensity": row["propensity"], "context": context, "id": f"l{i}"}
            loaded.observe(row["action"], row["reward"], **event)
        said["policies"] = {
            name: {str(label): p for label, p in client.open(name).policy().items()}
            for name in ("router", "counted", "continued")
        }
    return said


def _taken(taken: Any) -> dict[str, Any]:
    return {"id": taken.id, "status": taken.status}


def _batch(taken: Any) -> dict[str, Any]:
    refused = [{"id": one.id, "error": one.error} for one in taken.refused]
    return {"accepted": taken.accepted, "known": taken.known, "not taken": refused}


def _refusal(work: Callable[[], object]) -> dict[str, Any]:
    try:
        work()
    except us.errors.Refused as error:
        return {"status": error.status, "error": error.error}
    raise AssertionError("it was not refused")


def ask_all(url: str, *more: str, snapshots: bool = False) -> dict[str, Any]:
    """What every study answers, by its name."""
    with httpx.Client(base_url=url, timeout=60.0) as client:
        listed = _get(client, "/v1/studies?archived=true")["body"]["studies"]
        found: dict[str, Any] = {"all": [one["study"]["name"] for one in listed]}
        for name in (*STUDIES, *more):
            at = f"/v1/studies/{name}"
            parts = ("certificate", "coverage", *(["snapshot"] if snapshots else []))
            found[name] = {
                "study": _get(client, at),
                "policy": [_get(client, f"{at}/policy{of}") for of in _contexts(name)],
                **{part: _get(client, f"{at}/{part}") for part in parts},
            }
    return found


def _contexts(name: str) -> list[str]:
    if name == "offers":
        return ["", *(f"?context={json.dumps(one)}" for one in CONTEXTS)]
    if name == "warming":
        return ["", '?context={"age": 30}']
    if name == "loaded":
        return ['?context={"age": 30, "city": "Rome", "visits": null}']
    return [""]


def _get(client: httpx.Client, path: str) -> Any:
    answer = client.get(path)
    return {"status": answer.status_code, "body": answer.json()}


def settle(url: str, expected: dict[str, Any]) -> None:
    """Wait until every study has learned from as many decisions as expected."""
    with httpx.Client(base_url=url, timeout=60.0) as client:
        for name, answers in expected.items():
            if name != "all":
                _until(client, name, answers["study"]["body"]["folded"])


def _until(client: httpx.Client, name: str, folded: int) -> None:
    for _ in range(400):
        if client.get(f"/v1/studies/{name}").json()["folded"] >= folded:
            return
        time.sleep(0.025)
    raise AssertionError(f"{name} has not learned from {folded} decisions")


def exported(store: Path, name: str, out: Path) -> list[dict[str, Any]]:
    """The rows that `understudy export` writes of a study."""
    assert run("export", name, "--store", store, "--out", out).code == 0
    return rows_of(out)


def audited(store: Path) -> Any:
    """What `understudy audit` finds."""
    return run("audit", "--json", "--store", store).json


def logs_of(url: str) -> dict[str, list[dict[str, Any]]]:
    """What the service gives as the log of every study."""
    with httpx.Client(base_url=url, timeout=60.0) as client:
        texts = {name: client.get(f"/v1/studies/{name}/log").text for name in STUDIES}
    return {name: [json.loads(line) for line in text.splitlines()] for name, text in texts.items()}


def _rows(name: str, separator: str = ",") -> list[dict[str, Any]]:
    """Rows of an input, with numbers where they are rewards and propensities."""
    lines = (INPUTS / name).read_text(encoding="utf-8").splitlines()
    names = lines[0].split(separator)
    numbers = {"reward", "propensity", "click", "propensity_score"}
    return [
        {
            key: float(value) if key in numbers else value
            for key, value in zip(names, line.split(separator), strict=True)
        }
        for line in lines[1:]
    ]


def _send(client: httpx.Client, study: str, event: dict[str, Any]) -> None:
    """Whether it is taken or refused, the store holds it."""
    client.post(f"/v1/studies/{study}/events", json=event)


def _ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()
