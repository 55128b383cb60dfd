"""What the API and the page say about a study (`understudy.live.web.study_json`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.live.changing_study import shown
from tests.support.live.single_study import Event, SingleStudy
from understudy.report import as_dict


def grown(
    folder: Path, ends: Callable[[us.Certificate], bool], *, change: int
) -> tuple[SingleStudy, us.Certificate]:
    """A study whose learner hardly learns, until a certificate fits.

    Production mostly plays the second action, which is the better one until so many rounds.
    """
    single = SingleStudy(folder, learner="exp3-ix:eta=0.0001", least_propensity=0.1)
    rng = np.random.default_rng(1)
    for n in range(4_000):
        first = bool(rng.random() < 0.1)
        reward = float(first == (n >= change))
        q = 0.1 if first else 0.9
        single.send(Event(id=str(n), action="ba"[first], propensity=q, reward=reward))
        study = single.study.state.study
        assert study is not None
        assert isinstance(study.certificate, us.Certificate)
        if ends(study.certificate):
            return single, study.certificate
    raise AssertionError("no such certificate")


def test_a_gain_that_only_a_window_shows(tmp_path: Path) -> None:
    """The policy is bad at first, so that the gain since round 1 is not certain yet."""

    def ends(certificate: us.Certificate) -> bool:
        window = certificate.window
        return bool(certificate.promoted and window is not None and window.start > 1)

    single, certificate = grown(tmp_path, ends, change=60)
    views, ask = shown(single)
    found = ask("/v1/studies/study/certificate").json["certificate"]
    window, n = certificate.window, certificate.rounds
    assert window is not None
    assert found["window"] == {"start": window.start, "gain": window.gain}
    assert found["gain"] <= 0.0 < found["gain_upper"]
    assert found["gain_upper"] == (certificate.gain_upper or 0.0) / n
    assert (found["worse"], found["worse_at"]) == (certificate.worse, certificate.worse_at)
    assert (found["centered_rounds"], found["rules"], found["rounds"]) == (n, 2, n)
    page = views.view("study")
    assert page["kind"] == "promote"
    assert f"Gain per row since row {window.start}: at least" in page["verdict"]
    assert f"gain since round {window.start}" in page["fragments"]["bounds"]
    assert f"not since round {window.start} alone" in page["fragments"]["certificate"]
    assert views.summary("study")["verdict"] == page["verdict"]


@pytest.mark.parametrize(
    ("rows", "better", "outcome"),
    [(1_500, 0.9, "promote"), (350, 0.7, "not enough data"), (900, 0.5, "no visible gain")],
)
def test_the_api_and_the_page_say_what_learn_says(
    rows: int, better: float, outcome: str, tmp_path: Path
) -> None:
    single, rng = SingleStudy(tmp_path), np.random.default_rng(2)
    for n in range(rows):
        b = bool(rng.random() < 0.5)
        reward = float(rng.random() < (better if b else 0.5))
        single.send(Event(id=str(n), action="ab"[b], propensity=0.5, reward=reward))
    single.export(tmp_path / "log.parquet")
    learned = us.logs.learn(tmp_path / "log.parquet", actions=["a", "b"], time="time")
    views, ask = shown(single)
    found, page = ask("/v1/studies/study/certificate").json, views.view("study")
    report = learned.report
    assert (found["outcome"], learned.outcome) == (outcome, outcome)
    assert found["words"] == report.words
    assert page["why"].startswith(report.said)
    assert page["word"] == report.mark.word
    assert found["next_step"]["words"] == report.step
    assert found["gain"] == as_dict(report)["gain"]
    assert "Gain per row: at least" in page["fragments"]["gain"]
    assert page["fragments"]["gain"] in learned.page()


def test_a_loss_is_shown(tmp_path: Path) -> None:
    single, certificate = grown(tmp_path, lambda found: bool(found.worse), change=4_000)
    views, ask = shown(single)
    found = ask("/v1/studies/study/certificate").json
    assert found["verdict"] == "worse"
    assert found["certificate"]["worse"] is True
    assert found["certificate"]["worse_at"] == certificate.worse_at
    assert found["certificate"]["gain_upper"] < 0.0
    page = views.view("study")
    assert page["kind"] == "worse"
    for label in ("gain over production, at most", "loss certain after round"):
        assert label in page["fragments"]["bounds"]


def test_units_are_counted_and_shown(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, unit_rows=2, reward_wait=5.0)
    for unit in ("ada", "bob"):
        single.send(Event(id=unit, unit=unit, action="a", propensity=0.5, reward=1.0))
        single.send(Event(id=f"{unit} 2", unit=unit, action="ab"[unit == "bob"], reward=1.0))
    single.send(*(Event(id=f"{i}", unit="ada", action="ab"[i]) for i in range(2)))
    views, ask = shown(single)
    now = ask("/v1/studies/study").json
    counts = ("decisions", "folded", "learned", "later_events", "changing_units", "later_changes")
    assert [now[name] for name in counts] == [2, 2, 1, 2, 1, 1]
    assert now["study"]["unit_rows"] == 2
    page = views.view("study")
    assert "later events of a unit" in page["fragments"]["events"]
    assert "1 unit changed the action" in page["fragments"]["events"]
    assert "is a unit, with its first 2 events" in page["fragments"]["settings"]
    metrics = ask("/metrics").body.decode()
    assert 'understudy_later_events_total{study="study"} 2.0' in metrics
    assert 'understudy_changing_units_total{study="study"} 1.0' in metrics


@pytest.mark.parametrize("learned", [0, 1])
def test_contradictions_are_counted_and_shown(tmp_path: Path, learned: int) -> None:
    single = SingleStudy(tmp_path, least_propensity=0.1)
    events = [Event(id=f"{i}", action="a", propensity=0.05, reward=1.0) for i in range(3)]
    fine = Event(id="fine", action="a", propensity=0.5, reward=1.0)
    single.send(*events, *[fine] * learned)
    views, ask = shown(single)
    now = ask("/v1/studies/study").json
    counts = ("decisions", "folded", "learned", "contradictions", "refused")
    assert [now[name] for name in counts] == [3 + learned, 3 + learned, learned, 3, {}]
    assert ask("/v1/studies/study/certificate").json["verdict"] == "cannot tell"
    page = views.view("study")
    said = "propensities of 3 decisions contradict the declared least one, 0.1."
    assert said in page["fragments"]["events"]
    assert page["kind"] == "cannot tell"
    assert "quarantined" in page["why"]
    metrics = ask("/metrics").body.decode()
    assert 'understudy_contradictions_total{study="study"} 3.0' in metrics


@pytest.mark.parametrize(
    "spec",
    [
        {"propensity_vectors": True},
        {"unit_rows": 3},
        {"unit_rows": 1, "propensity_vectors": True, "context": {"age": "number"}},
    ],
)
def test_the_first_event_that_the_page_shows_is_valid(tmp_path: Path, spec: dict[str, Any]) -> None:
    single = SingleStudy(tmp_path, **spec)
    example = Event.model_validate(shown(single)[0].view("study")["example"])
    assert [one.status for one in single.send(example)] == ["accepted"]
