"""The client and the service, together: what one asks the other answers."""

from __future__ import annotations

import functools
import importlib
import json
import math
import random
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import understudy as us
from tests.support.paths import DOCS
from understudy import cli
from understudy.errors import Refused

pytestmark = pytest.mark.plain

PAGE = DOCS / "live.md"
router = importlib.import_module("examples.llm_router")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A service that runs, as the example starts it."""
    with router.own_service(folder) as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[us.live.Client]:
    with us.live.Client(url) as found:
        yield found


def test_propensities_and_units_reach_the_study(client: us.live.Client) -> None:
    """By every way that clients send events."""
    chances = {"red": 0.25, "blue": 0.75}
    cups = client.create_study("cups", ["red", "blue"], propensity_vectors=True, unit_rows=2)
    assert cups.observe("red", 1.0, propensity_vector=chances, unit=7).status == "accepted"
    assert cups.reward(cups.decide("red", unit="7"), 0.0).status == "accepted"
    assert cups.send([{"action": "red", "unit": 7, "reward": 1.0}]).accepted == 1
    with client.background("cups") as feed:
        assert feed.observe("blue", 1.0, propensity_vector=chances, unit="b")
        assert feed.observe("blue", 1.0, propensity_vector=chances, unit="b")
    found = cups.certificate()["certificate"]
    assert (found["rounds"], found["centered_rounds"], found["production"]) == (2, 2, 0.75)
    rows = [(row["unit"], row["propensity"], row["reward"]) for row in cups.log()]
    assert rows == [("7", 0.25, 0.5), ("b", 0.75, 1.0)]
    assert client.study("cups")["later_events"] == 1
    with pytest.raises(Refused, match=r"first event of its unit.*send the propensities") as refused:
        cups.observe("red", 1.0, unit="c")
    assert refused.value.error == "incomplete"
    with pytest.raises(Refused) as refused:
        cups.observe("red", 1.0, propensity_vector={"red": 0.5, "blue": 0.6}, unit="c")
    assert [field for field, _ in refused.value.fields] == ["propensity_vector"]
    with pytest.raises(us.errors.InvalidEvent, match=r"propensity_vector.red = 2: it must be at"):
        cups.observe("red", 1.0, propensity_vector={"red": 2}, unit="c")
    with pytest.raises(us.errors.InvalidEvent, match=r"_vector.red = nan: .* finite number; pass"):
        cups.observe("red", 1.0, propensity_vector={"red": math.nan}, unit="c")
    with pytest.raises(Refused, match="may be used once"):
        client.load_snapshot("cups-2", cups.snapshot())


def test_every_question_has_an_answer(client: us.live.Client) -> None:
    mugs = client.create_study("mugs", ["red", "blue"], reward_range=(0, 5))
    taken = mugs.observe("red", 5, propensity=0.5, id="a1")
    assert taken == us.live.Taken(id="a1", status="accepted")
    assert mugs.observe("red", 5, propensity=0.5, id="a1").status == "known"
    key = mugs.decide("blue", propensity=0.5)
    assert mugs.reward(key, 0.0).status == "accepted"
    events = [
        {"action": "red", "propensity": 0.5, "reward": 4.0},
        {"id": "a1", "reward": 1.0},
        {"id": key, "reward": 0.0},
    ]
    sent = mugs.send(events)
    assert (sent.accepted, sent.known) == (1, 1)
    assert [(one.index, one.id, one.error) for one in sent.refused] == [(1, "a1", "conflict")]
    policy = mugs.policy()
    assert list(policy) == ["blue", "red"]
    assert sum(policy.values()) == pytest.approx(1.0)
    drawn = mugs.draw()
    assert (drawn.probability, drawn.learned) == (policy[drawn.action], 3)
    rows = list(mugs.log())
    assert [row["reward"] for row in rows] == [5.0, 0.0, 4.0]
    assert rows[1]["id"] == key
    assert mugs.coverage()["learned"] == mugs.certificate()["learned"] == 3
    assert client.study("mugs")["decisions"] == 3
    again = client.load_snapshot("again", mugs.snapshot(), reward_wait=60.0)
    assert again.policy() == policy
    assert json.loads(again.snapshot())["rows"] == 3
    client.archive("again")
    names = [study["study"]["name"] for study in client.studies(archived=True)]
    assert {"mugs", "again"} <= set(names)
    assert "again" not in [study["study"]["name"] for study in client.studies()]


def test_contexts_and_all_options_are_understood(client: us.live.Client) -> None:
    study = client.create_study(
        "visits",
        [1, 2],
        learner="lin-prod-compact",
        behavior="logged",
        horizon=100,
        reward_range=(0, 1),
        reward_wait=60.0,
        default_reward=0.0,
        confidence=0.9,
        context={"age": "number"},
        warmup=2,
    )
    for age, action in ((20, 1), (60, 2), (40, 1)):
        study.observe(action, 1.0, propensity=0.5, context={"age": age})
    assert set(study.policy({"age": 30})) == {1, 2}
    assert study.draw({"age": 30}).action in {1, 2}
    fixed = client.create_study("fixed", [1, 2], behavior={1: 0.25, 2: 0.75})
    assert fixed.observe(1, 0.5).status == "accepted"


REFUSALS: dict[str, tuple[Any, int, str]] = {
    "an unknown study": (lambda c: c.study("nothing"), 404, "unknown study"),
    "a study that exists": (lambda c: c.create_study("mugs", ["red", "blue"]), 409, "exists"),
    "a reward of nothing": (lambda c: c.open("mugs").reward("none", 1.0), 409, "unknown decision"),
    "an unknown action": (lambda c: c.open("mugs").observe("x", 1, propensity=1), 422, "invalid"),
    "no propensity": (lambda c: c.open("mugs").observe("red", 1), 422, "invalid"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_those_of_the_service(client: us.live.Client, case: str) -> None:
    ask, status, error = REFUSALS[case]
    router.open_study(client, "mugs")  # which is there already
    with pytest.raises(Refused) as caught:
        ask(client)
    assert caught.value.status == status
    assert caught.value.error == error


def test_the_router_example(client: us.live.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """The understudies find the model for each kind, for sure, and the canary earns more."""
    rng, best = random.Random(1), {"chat": "small", "code": "medium"}
    for prompts, share in ((router.BESIDE, 0.0), (router.CANARY, router.SHARE)):
        studies = router.play(client, prompts, share, rng)
        router.report(client, studies)
    said = capsys.readouterr().out
    beside, canary = (float(mean) for mean in re.findall(r"(\S+) a prompt", said))
    assert canary > beside + 0.1
    assert said.count(": promote\n") >= 2
    for kind, study in studies.items():
        policy = study.policy()
        assert max(policy, key=lambda model: policy[model]) == best[kind]
    seen = [client.study(study.name) for study in studies.values()]
    assert sum(study["decisions"] for study in seen) == router.BESIDE + router.CANARY
    assert all(study["expired"] > 0 and not study["refused"] for study in seen)


def test_the_page_about_it_runs(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/live.md, one after the other, as a reader would type them."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(us.live, "Client", functools.partial(us.live.Client, url))
    Path("actions.txt").write_text("small\nlarge\n")
    names: dict[str, Any] = {}
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if language == "python":
            exec(compile(block, "live.md", "exec"), names)
            continue
        for line in block.splitlines():
            type_in(shlex.split(line), url, monkeypatch)
    names["client"].close()
    assert names["taken"].accepted == 2_500
    assert names["certificate"].lower / 6 == pytest.approx(0.163, abs=5e-4)
    assert names["feed"].delivery == us.live.Delivery(taken=2)
    assert names["found"]["verdict"] == "promote"
    live, learned = (
        json.loads(names["snapshot"]),
        json.loads(Path("learned/policy.json").read_text()),
    )
    assert live["rows"] == learned["rows"] == len(names["rows"]) == 2_504
    for part in ("actions", "policy", "learner", "state", "certificate", "curve"):
        assert live[part] == learned[part]


def type_in(words: list[str], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What curl and we do; tokens are for another store, for this service has none."""
    if words[0] == "curl":
        _, where, _, header, _, body = words
        name, value = header.split(": ")
        where = where.replace("http://127.0.0.1:8642", url)
        assert httpx.post(where, content=body, headers={name: value}).is_success
    elif words != ["understudy", "serve"]:
        other = ["--store", "other.db"] if words[1] == "token" else []
        monkeypatch.setattr(sys, "argv", [*words, *other])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0
