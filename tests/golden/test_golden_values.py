"""Learners, certificates, games and bounds give what 0.5.0 gave; its snapshots load and go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import understudy as us

from . import values
from .compare import EXPECTED, assert_same, read, rounds_alike

SNAPSHOTS, CERTIFICATES = EXPECTED / "snapshots", EXPECTED / "certificates"


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_numbers_are_compared_by_their_bits() -> None:
    if not rounds_alike():
        pytest.skip("this machine rounds otherwise: golden numbers are compared to 1e-9")


@pytest.mark.parametrize("name", values.RECIPES)
def test_a_snapshot_is_written_as_before(name: str, tmp_path: Path) -> None:
    recipe, columns = values.RECIPES[name]
    one_by_one, at_once = us.Understudy(recipe()), us.Understudy(recipe())
    log = values.log_of("first", columns)
    for i in range(len(log)):
        one_by_one.replay(log[i : i + 1])
    at_once.replay(log)
    for understudy in (one_by_one, at_once):
        understudy.save(tmp_path / "saved.json")
        assert_same(content(SNAPSHOTS / f"{name}.json"), content(tmp_path / "saved.json"), name)


@pytest.mark.parametrize("name", values.RECIPES)
def test_an_old_snapshot_loads_and_goes_on(name: str, tmp_path: Path) -> None:
    recipe, columns = values.RECIPES[name]
    first = us.Understudy(recipe()).replay(values.log_of("first", columns))
    understudy = us.load(SNAPSHOTS / f"{name}.json")
    trace = understudy.replay(values.log_of("second", columns))
    understudy.save(tmp_path / "saved.json")
    assert_same(content(SNAPSHOTS / f"{name}.after.json"), content(tmp_path / "saved.json"), name)
    found = {
        "probability": [*first.probability, *trace.probability],
        "past_horizon": trace.past_horizon,
        "policy": understudy.policy(values.probe(columns)),
    }
    assert_same(read("traces.json")[name], values.plain(found), name)


@pytest.mark.parametrize("name", values.CERTIFICATES)
def test_certificates(name: str, tmp_path: Path) -> None:
    """New ones are written as before, old ones load and go on, and all say the same numbers."""
    empty, columns, target = values.CERTIFICATES[name]
    first = values.certificate_after(empty(), name, "first")
    old = us.load_certificate(CERTIFICATES / f"{name}.json")
    second = values.certificate_after(old, name, "second")
    certified = us.certify(
        values.log_of("first", columns),
        target,
        behavior=first.behavior,
        confidence=first.confidence,
        n_actions=3,
        lambdas=first.lambdas,
        rules=1,
    )
    made = {"first": first, "second": second, "certified": certified}
    files = {"": first, ".after": second}
    if name != "counted":
        other = values.certificate_after(empty(), name, "second")
        made["merged"] = files[".merged"] = old.merge(other)
    for suffix, certificate in files.items():
        us.save_certificate(certificate, tmp_path / "saved.json")
        kept = content(CERTIFICATES / f"{name}{suffix}.json")
        assert_same(kept, content(tmp_path / "saved.json"), f"{name}{suffix}")
    found = {key: values.figures_of(certificate) for key, certificate in made.items()}
    assert_same(read("certificates.json")[name], found, name)


@pytest.mark.parametrize("name", values.GAMES)
def test_games(name: str) -> None:
    assert_same(read("games.json")[name], values.plain(values.GAMES[name]()), name)


@pytest.mark.parametrize("name", values.THEORY)
def test_theory(name: str) -> None:
    assert_same(read("theory.json")[name], values.plain(values.THEORY[name]()), name)
