"""The service over HTTP: what is promised of each operation, as a user would ask for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.live.local_server import Service, serving_service, serving_store
from tests.support.live.temporary_stores import add_tokens, audited, remove_token
from understudy.live.web.app import MOST_READS
from understudy.live.web.middleware import LIMITS
from understudy.live.web.routes import MOST_COMMAS

pytestmark = pytest.mark.plain

Check = Callable[[], bool]


@contextmanager
def running(path: Path) -> Iterator[httpx.Client]:
    with (
        serving_store(path) as url,
        httpx.Client(base_url=url, timeout=60.0) as client,
    ):
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running(tmp_path / "store.db") as found:
        yield found


def create(client: httpx.Client, **spec: Any) -> dict[str, Any]:
    answer = client.post("/v1/studies", json={"name": "ads", "actions": ["a", "b"], **spec})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def send(client: httpx.Client, *events: dict[str, Any], study: str = "ads") -> dict[str, Any]:
    answer = client.post(f"/v1/studies/{study}/batches", json={"events": list(events)})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def event(i: int, **rest: Any) -> dict[str, Any]:
    return {"id": f"e{i}", "action": "ab"[i % 2], "propensity": 0.5, "reward": float(i % 2), **rest}


def first_state(client: httpx.Client, path: str) -> Any:
    """What a page is sent at first."""
    with client.stream("GET", path) as stream:
        lines = stream.iter_lines()
        return next(json.loads(line[5:]) for line in lines if line.startswith("data:"))


def eventually(check: Check) -> None:
    """What happens in another thread happens, sooner or later."""
    for _ in range(400):
        if check():
            return
        time.sleep(0.025)
    raise AssertionError("it never happened")


def test_studies_are_created_listed_and_archived(client: httpx.Client) -> None:
    made = create(client, reward_wait=60)
    assert made["study"]["actions"] == ["a", "b"]
    assert create(client, reward_wait=60) == made  # the answer may have been lost
    again = client.post("/v1/studies", json={"name": "ads", "actions": ["a", "b"]})
    assert (again.status_code, again.json()["error"]) == (409, "exists")
    create(client, name="other")
    assert [s["study"]["name"] for s in client.get("/v1/studies").json()["studies"]] == [
        "ads",
        "other",
    ]
    archived = client.post("/v1/studies/ads/archive")
    assert archived.json()["archived_at"]
    refused = client.post("/v1/studies/ads/events", json=event(1))
    assert (refused.status_code, refused.json()["error"]) == (409, "archived")
    assert len(client.get("/v1/studies").json()["studies"]) == 1
    assert len(client.get("/v1/studies?archived=true").json()["studies"]) == 2
    assert client.get("/v1/studies/ads/policy").status_code == 200  # what was learned stays
    assert client.post("/v1/studies/ads/archive").status_code == 200  # as it is


def test_an_upgrade_with_a_body_is_refused_in_plain_words(client: httpx.Client) -> None:
    """As `curl --http2` asks for; what comes after the head is then no body to the parser."""
    create(client)
    headers = {"connection": "upgrade", "upgrade": "h2c"}
    found = client.post("/v1/studies/ads/events", json=event(1), headers=headers)
    assert (found.status_code, found.json()["error"]) == (400, "malformed")
    assert "Upgrade" in found.json()["message"]


def test_an_archived_study_takes_the_rewards_that_are_on_their_way(client: httpx.Client) -> None:
    create(client, reward_wait=3_600)
    post = "/v1/studies/ads/events"
    waiting = {"id": "e1", "action": "b", "propensity": 0.5}
    assert client.post(post, json=waiting).json()["status"] == "accepted"
    client.post("/v1/studies/ads/archive")
    assert client.post(post, json=event(2)).json()["error"] == "archived"
    batch = {"events": [event(3), event(4)]}
    refused = client.post("/v1/studies/ads/batches", json=batch)
    assert (refused.status_code, refused.json()["error"]) == (409, "archived")
    assert client.post(post, json=waiting).json()["status"] == "known"
    mixed = send(client, {**waiting, "reward": 1.0}, event(5))
    assert (mixed["accepted"], mixed["refused"][0]["error"]) == (1, "archived")
    now = client.get("/v1/studies/ads").json()
    assert (now["decisions"], now["learned"], now["expired"]) == (1, 1, 0)
    assert now["refused"] == {"archived": 4}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"actions": ["a"]}, "actions"),
        ({"actions": ["a", "a"]}, "actions"),
        ({"actions": ["1", "1.0"]}, "actions"),
        ({"name": "No Name"}, "name"),
        ({"learner": "magic"}, "learner"),
        ({"behavior": "estimated", "learner": "exp3-ix"}, "learner"),
        ({"behavior": {"a": 0.5, "b": 0.6}}, "behavior"),
        ({"behavior": {"a": 1.0, "c": 0.0}}, "behavior"),
        ({"reward_range": [1, 0]}, "reward_range"),
        ({"default_reward": 2}, "default_reward"),
        ({"reward_wait": 0}, "reward_wait"),
        ({"confidence": 1.5}, "confidence"),
        ({"horizon": 0}, "horizon"),
        ({"context": {"reward": "number"}}, "context"),
        ({"context": {"x": "number"}, "learner": "exp3-ix"}, "learner"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_study_is_refused_with_its_field(
    client: httpx.Client, wrong: dict[str, Any], field: str
) -> None:
    answer = client.post("/v1/studies", json={"name": "ads", "actions": ["a", "b"], **wrong})
    assert answer.status_code == 422, answer.text
    assert [found["field"].split(".")[0] for found in answer.json()["fields"]] == [field]
    assert client.get("/v1/studies").json() == {"studies": []}


def test_feedback_in_one_piece_and_in_two(client: httpx.Client) -> None:
    create(client)
    post = "/v1/studies/ads/events"
    assert client.post(post, json=event(0)).json() == {"id": "e0", "status": "accepted"}
    assert client.post(post, json=event(0)).json() == {"id": "e0", "status": "known"}
    first = {"id": "two", "action": "b", "propensity": 0.25}
    assert client.post(post, json=first).json()["status"] == "accepted"
    assert client.get("/v1/studies/ads").json()["waiting"] == 1
    assert client.post(post, json={"id": "two", "reward": 1}).json()["status"] == "accepted"
    now = client.get("/v1/studies/ads").json()
    assert (now["decisions"], now["learned"], now["waiting"]) == (2, 2, 0)
    conflict = client.post(post, json={"id": "two", "reward": 0.5})
    assert (conflict.status_code, conflict.json()["error"]) == (409, "conflict")
    assert conflict.json()["message"].endswith("(reward: 1.0 is kept, 0.5 was sent)")
    unknown = client.post(post, json={"id": "three", "reward": 0.5})
    assert (unknown.status_code, unknown.json()["error"]) == (409, "unknown decision")


def test_a_batch_says_what_became_of_each(client: httpx.Client) -> None:
    create(client)
    found = send(client, event(0), event(1), event(0), {"id": "x", "reward": 1})
    assert (found["accepted"], found["known"]) == (2, 1)
    assert [(one["index"], one["error"]) for one in found["refused"]] == [(3, "unknown decision")]


def test_a_batch_with_a_malformed_event_is_not_taken(client: httpx.Client) -> None:
    create(client)
    wrong = [event(0), event(1, action="z", reward=2.0), {"id": "y"}, event(3, propensity=None)]
    answer = client.post("/v1/studies/ads/batches", json={"events": wrong})
    assert answer.status_code == 422
    assert {found["field"] for found in answer.json()["fields"]} == {
        "events.1.action",
        "events.1.reward",
        "events.2.action",
        "events.3.propensity",
    }
    now = client.get("/v1/studies/ads").json()
    assert (now["decisions"], now["refused"]) == (0, {"malformed": 1})


def test_a_reward_that_does_not_come_is_the_default(client: httpx.Client) -> None:
    create(client, reward_wait=0.05, default_reward=0.5, behavior="estimated")
    client.post("/v1/studies/ads/events", json={"id": "1", "action": "a"})
    eventually(lambda: client.get("/v1/studies/ads").json()["expired"] == 1)
    late = client.post("/v1/studies/ads/events", json={"id": "1", "reward": 1})
    assert (late.status_code, late.json()["error"]) == (409, "late")
    assert client.get("/v1/studies/ads").json()["refused"] == {"late": 1}
    (line,) = client.get("/v1/studies/ads/log").text.splitlines()
    assert (json.loads(line)["reward"], json.loads(line)["rewarded"]) == (0.5, False)


def test_the_policy_and_draws_agree(client: httpx.Client) -> None:
    create(client, actions=[1, 2, 10])
    send(client, *[event(i, action=[1, 2, 10][i % 3], propensity=1 / 3) for i in range(300)])
    policy = client.get("/v1/studies/ads/policy").json()
    assert [row["action"] for row in policy["policy"]] == [1, 2, 10]
    probabilities = {row["action"]: row["probability"] for row in policy["policy"]}
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-12)
    drawn = [client.post("/v1/studies/ads/draw", json={}).json() for _ in range(200)]
    assert all(one["probability"] == probabilities[one["action"]] for one in drawn)
    expected = 200 * np.array(list(probabilities.values()))
    counts = np.array([sum(one["action"] == a for one in drawn) for a in probabilities])
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 5).all()
    assert client.get("/v1/studies/ads").json()["decisions"] == 300  # a draw writes nothing


def test_contexts(client: httpx.Client) -> None:
    create(client, context={"age": "number", "town": "text"}, warmup=50)
    rng = np.random.default_rng(0)
    for start in range(0, 600, 100):
        events = []
        for i in range(start, start + 100):
            age, action = float(rng.normal()), int(rng.integers(2))
            reward = float(rng.random() < (0.8 if (age > 0) == (action == 1) else 0.2))
            context = {"age": age, "town": "xy"[int(rng.integers(2))]}
            events.append(event(i, action="ab"[action], reward=reward, context=context))
        send(client, *events)
    now = client.get("/v1/studies/ads").json()
    assert (now["learned"], now["warmup_left"]) == (550, 0)
    path = "/v1/studies/ads/policy"
    assert client.get(path).status_code == 422  # it needs a context
    found = {}
    for age in (-2.0, 2.0):
        asked = {"context": {"age": age, "town": "x"}, "production": {"a": 0.5, "b": 0.5}}
        answer = client.get(path, params={name: json.dumps(one) for name, one in asked.items()})
        found[age] = {row["action"]: row["probability"] for row in answer.json()["policy"]}
    assert found[-2.0]["a"] > 0.5 > found[2.0]["a"]
    drawn = client.post(
        "/v1/studies/ads/draw",
        json={"context": {"age": 2, "town": None}, "production": {"a": 0.5, "b": 0.5}},
    )
    assert drawn.status_code == 200
    wrong = client.post("/v1/studies/ads/events", json=event(1, id="w", context={"age": "old"}))
    assert wrong.status_code == 422


TWICE = "it is there twice; send it once"
EMPTY = '"": it is empty; send a text'
NO_FIELD = "there is no such field; did you mean {}?".format
STUDY = '"name": "a", "actions": [0, 1]'
EVENT = '"id": "a"'


@pytest.mark.parametrize(
    ("beside", "text", "field", "said"),
    [
        (STUDY, '"unit": "user"', "unit", NO_FIELD("unit_rows")),
        (STUDY, '"propensity_vector": {}', "propensity_vector", NO_FIELD("propensity_vectors")),
        (EVENT, '"unit_rows": 2', "unit_rows", NO_FIELD("unit")),
        (EVENT, '"propensity_vector": {"x": 1, "x": 0}', "propensity_vector.x", TWICE),
        (EVENT, '"context": {"a": [{"b": 1}, {"b": 1, "b": 1}]}', "context.a.1.b", TWICE),
        (EVENT, '"unit": ""', "unit", EMPTY),
        (EVENT, '"action": ""', "action", EMPTY),
        (
            EVENT,
            '"action": 9223372036854775808',
            "action",
            "9223372036854775808: it must be less than or equal to 9223372036854775807",
        ),
        (EVENT, '"unit": 0.5', "unit", "0.5: it must be a valid string, or a valid integer"),
    ],
)
def test_a_wrong_field_of_an_event_or_a_study_is_named(
    client: httpx.Client, beside: str, text: str, field: str, said: str
) -> None:
    create(client)
    path = "/v1/studies" if beside == STUDY else "/v1/studies/ads/events"
    kind = {"content-type": "application/json"}
    answer = client.post(path, content=f"{{{beside}, {text}}}", headers=kind)
    assert answer.status_code == 422
    assert answer.json()["fields"] == [{"field": field, "message": said}]


@pytest.mark.parametrize(
    ("context", "status", "words"),
    [
        (None, 422, 'context: send {"age": …'),
        ("", 400, "the context is no JSON: "),
        ("null", 422, 'context: send {"age": …'),
        ("[1]", 422, "context: a list of 1 item: it must be an object"),
        ('{"age": [1]}', 422, "context.age: a list of 1 item: it must be a valid number, or "),
        ('{"age": 1, "age": 2}', 422, "context.age: it is there twice; send it once"),
        ('{"age": "old"}', 422, "context: {'age': 'old'}: age is a number"),
    ],
)
def test_a_wrong_context_of_a_policy_is_told_once(
    client: httpx.Client, context: str | None, status: int, words: str
) -> None:
    create(client, context={"age": "number"})
    given = {} if context is None else {"context": context}
    answer = client.get("/v1/studies/ads/policy", params=given)
    found = answer.json()
    assert answer.status_code == status
    assert found["message"].startswith(words)
    told = [f"{one['field']}: {one['message']}" for one in found.get("fields", [])]
    assert told == ([found["message"]] if status == 422 else [])


def test_the_certificate_says_since_when(client: httpx.Client) -> None:
    create(client)
    empty = client.get("/v1/studies/ads/certificate").json()
    assert (empty["verdict"], empty["certificate"]) == ("cannot tell", None)
    assert client.get("/v1/studies/ads/coverage").json()["actions"] == []
    for start in range(0, 1000, 250):
        send(client, *[event(i) for i in range(start, start + 250)])
    found = client.get("/v1/studies/ads/certificate").json()
    assert found["verdict"] == "promote"
    at = found["certificate"]["promoted_at"]
    line = client.get("/v1/studies/ads/log").text.splitlines()[at - 1]
    assert found["promoted_since"][:23] == json.loads(line)["time"][:23]
    assert found["curve"]["rounds"][-1] == 1000
    assert found["curve"]["lower"][-1] == found["certificate"]["lower"]
    table = client.get("/v1/studies/ads/coverage").json()["actions"]
    assert [(row["label"], row["count"]) for row in table] == [("a", 500), ("b", 500)]


def test_a_snapshot_goes_on_in_another_service(client: httpx.Client, tmp_path: Path) -> None:
    create(client)
    send(client, *[event(i) for i in range(100)])
    snapshot = client.get("/v1/studies/ads/snapshot")
    path = tmp_path / "policy.json"
    path.write_text(snapshot.text, encoding="utf-8")
    assert us.logs.Policy.load(path).rows == 100
    with running(tmp_path / "other.db") as other:
        made = other.post(
            "/v1/snapshots?name=ads&reward_wait=5",
            content=snapshot.content,
            headers={"content-type": "application/json"},
        )
        assert made.status_code == 201, made.text
        assert made.json()["study"]["reward_wait"] == 5.0
        shown = first_state(other, "/v1/studies/ads/live")
        assert (shown["counters"]["decisions"], shown["counters"]["learned"]) == (0, 0)
        assert "a policy that was learned from 100 rows" in shown["fragments"]["settings"]
        assert "100" in shown["fragments"]["coverage"]
        for service in (client, other):
            send(service, *[event(i) for i in range(100, 200)])
        assert (
            other.get("/v1/studies/ads/snapshot").text
            == client.get("/v1/studies/ads/snapshot").text
        )
        damaged = other.post(
            "/v1/snapshots?name=x",
            content=snapshot.content.replace(b'"rows": 100', b'"rows": 101'),
            headers={"content-type": "application/json"},
        )
        assert damaged.status_code == 422
    with running(tmp_path / "other.db") as again:
        assert (
            again.get("/v1/studies/ads/snapshot").text
            == client.get("/v1/studies/ads/snapshot").text
        )
    assert [found.passed for found in audited(tmp_path / "other.db")] == [True]


def test_a_restart_goes_on_from_the_last_event(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with running(path) as client:
        create(client, reward_wait=3600)
        send(client, *[event(i) for i in range(50)], {"id": "w", "action": "a", "propensity": 0.5})
        before = client.get("/v1/studies/ads/snapshot").text
    with running(path) as client:
        assert client.get("/v1/studies/ads/snapshot").text == before
        assert send(client, *[event(i) for i in range(50)])["known"] == 50
        assert send(client, {"id": "w", "reward": 1})["accepted"] == 1
        assert client.get("/v1/studies/ads").json()["learned"] == 51
    assert [(found.passed, found.processed) for found in audited(path)] == [(True, 51)]


def test_an_audit_finds_what_was_changed(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415 - to tamper with

    path = tmp_path / "store.db"
    with running(path) as client:
        create(client)
        send(client, *[event(i) for i in range(20)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE decisions SET reward = 0.25 WHERE seq = 7")
    connection.commit()
    connection.close()
    (found,) = audited(path)
    assert found.faults == ("the snapshot after decision 20 differs from the log",)


def test_tokens_are_asked_for_once_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    add_tokens(path, read="us_r", write="us_w")
    with running(path) as client:
        spec = {"name": "ads", "actions": ["a", "b"]}
        tokens = {name: {"authorization": f"Bearer us_{name}"} for name in "rwx"}
        assert client.post("/v1/studies", json=spec).status_code == 401
        assert client.post("/v1/studies", json=spec, headers=tokens["x"]).status_code == 401
        assert client.post("/v1/studies", json=spec, headers=tokens["r"]).status_code == 403
        assert client.post("/v1/studies", json=spec, headers=tokens["w"]).status_code == 201
        assert client.get("/v1/studies", headers=tokens["r"]).status_code == 200
        assert client.post("/v1/studies/ads/draw", headers=tokens["r"]).status_code == 200
        assert client.get("/metrics").status_code == 401
        public = ("/", "/studies/ads", "/docs", "/openapi.json", "/healthz", "/readyz")
        assert [client.get(path).status_code for path in public] == [200] * len(public)


@pytest.mark.parametrize("path", ["/v1/live", "/v1/studies/ads/live"])
def test_the_streams_of_a_removed_token_end(tmp_path: Path, path: str) -> None:
    store = tmp_path / "store.db"
    add_tokens(store, read="us_r", write="us_w")
    with running(store) as client:
        client.headers["authorization"] = "Bearer us_w"
        create(client)
        headers = {"authorization": "Bearer us_r"}
        with client.stream("GET", path, headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: state"
            remove_token(store, "read")
            assert sum(line.startswith("data:") for line in lines) >= 1  # and there are no more
        assert client.get(path, headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("K", "columns", "labels", "values"),
    [
        (20, 20, 0, 0),
        (100, 64, 0, 0),
        (300, 5, 1, 9),
        (20, 20, 20, 50),
        (1_000, 0, 5, 50),
        (2_000, 0, 1, 25),
    ],
)
def test_a_live_service_takes_the_default_learner_of_any_log(
    K: int, columns: int, labels: int, values: int
) -> None:
    """Its policy.json is no larger than a request may be, though every action was learned from."""
    rng = np.random.default_rng(0)
    n = 4 * K + 1_000
    contexts: dict[str, Any] = {f"x{i}": rng.normal(size=n) for i in range(columns)}
    contexts |= {f"l{i}": [f"v{j}" for j in rng.integers(values, size=n)] for i in range(labels)}
    rows = pl.DataFrame(
        {
            "action": np.arange(n) % K,
            "reward": rng.random(n).round(3),
            "propensity": 1 / K,
            **contexts,
        }
    )
    text = us.logs.learn(rows, context=list(contexts)).policy.to_json()
    least = 20 if columns + labels > 1 else 10  # MiB: not far below, the bound is made for these
    assert least * 2**20 < len(text) < LIMITS.snapshot
    assert text.count(",") < MOST_COMMAS


def test_a_snapshot_is_bounded_and_only_one_is_loaded_at_a_time(client: httpx.Client) -> None:
    create(client)
    load, kind = "/v1/snapshots?name=new", {"content-type": "application/json"}
    large = client.post(load, content=b" " * (LIMITS.snapshot + 1), headers=kind)
    assert (large.status_code, large.json()["error"]) == (413, "too large")
    assert "33,554,432" in large.json()["message"]
    parts = client.post(load, content=b"[" + b"[]," * (MOST_COMMAS + 1) + b"[]]", headers=kind)
    assert (parts.status_code, parts.json()["fields"][0]["field"]) == (422, "policy")
    assert parts.json()["message"].startswith("policy: it has too many parts")

    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield b"{"
        begun.set()
        assert go_on.wait(60.0)
        yield b"}"

    answers: list[httpx.Response] = []
    first = threading.Thread(
        target=lambda: answers.append(client.post(load, content=slowly(), headers=kind))
    )
    first.start()
    assert begun.wait(60.0)
    eventually(lambda: client.post(load, content=b"{}", headers=kind).status_code == 503)
    busy = client.post(load, content=b"{}", headers=kind)
    assert (busy.json()["error"], busy.headers["retry-after"]) == ("busy", "1")
    assert client.post("/v1/studies/ads/events", json=event(1)).status_code == 200
    go_on.set()
    first.join()
    assert answers[0].status_code == 422
    assert client.post(load, content=b"{}", headers=kind).status_code == 422


def test_few_logs_and_snapshots_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that do not read their logs hold all slots; events and policies do not need one."""
    service = Service(str(tmp_path / "store.db"))
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slowly(_: object) -> Iterator[str]:
        begun.release()
        assert go_on.wait(60.0)
        yield "{}\n"

    monkeypatch.setattr(service, "log_lines", slowly)
    with (
        serving_service(service) as url,
        httpx.Client(base_url=url, timeout=60.0) as client,
        ThreadPoolExecutor(MOST_READS) as pool,
    ):
        create(client)
        logs = [pool.submit(client.get, "/v1/studies/ads/log") for _ in range(MOST_READS)]
        for _ in logs:
            assert begun.acquire(timeout=60.0)
        for path in ("log", "snapshot"):
            busy = client.get(f"/v1/studies/ads/{path}")
            assert (busy.status_code, busy.json()["error"]) == (503, "busy")
        assert client.post("/v1/studies/ads/events", json=event(1)).status_code == 200
        assert client.get("/v1/studies/ads/policy").status_code == 200
        go_on.set()
        assert [log.result().text for log in logs] == ["{}\n"] * MOST_READS
        assert client.get("/v1/studies/ads/snapshot").status_code == 200


def test_metrics_and_health(client: httpx.Client) -> None:
    create(client)
    send(client, event(0), event(1))
    text = client.get("/metrics").text
    assert 'understudy_decisions_total{study="ads"} 2.0' in text
    assert "understudy_store_usable 1.0" in text
    assert 'operation="send_batch"' in text
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    assert client.get("/nowhere").json()["error"] == "unknown path"
    assert client.get("/v1/studies/nowhere/policy").json()["error"] == "unknown study"
