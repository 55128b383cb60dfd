"""`learn`, `coverage`, `certify` give what 0.5.0 gave, and go on from its policy.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import understudy as us

from .cases import LEARN, PAPER, QUESTIONS, REFUSED
from .compare import EXPECTED, assert_same, read
from .frames import RESULTS, policy_path, probabilities_of
from .outside import first_rules, learned, named, placed, run

RESUMED = [name for name, case in LEARN.items() if case.second]


def policy_in(folder: Path) -> Any:
    return json.loads((folder / "policy.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", LEARN)
def test_learn(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed, policy.json, and the quarantined rows.

    Contexts are learned from by the first version of the rules. Since the second, V comes from
    propensities; studies of 0.5.0 go on by the first, as the test of an old store shows.
    """
    first_rules(monkeypatch)
    case = LEARN[name]
    said = learned(tmp_path / "out", (*case.first, *case.options))
    assert_same(read("learn", name, "said.json")["first"], said, name, rounded=case.summed)
    assert_same(
        read("learn", name, "policy.json"), policy_in(tmp_path / "out"), name, rounded=case.summed
    )


@pytest.mark.parametrize("name", RESUMED)
def test_an_old_policy_goes_on(name: str, tmp_path: Path) -> None:
    """0.5.0's files of the first half, and the second half by today's code."""
    kept = EXPECTED / "learn" / name
    for file in ("policy.json", "quarantine.parquet"):
        if (kept / file).exists():
            shutil.copy(kept / file, tmp_path)
    said = learned(tmp_path, (*LEARN[name].second, "--resume"))
    said["policy"] = policy_in(tmp_path)
    assert_same(read("learn", name, "said.json")["second"], said, name)


@pytest.mark.parametrize("name", LEARN)
def test_an_old_policy_loads_and_is_saved_as_it_was(name: str, tmp_path: Path) -> None:
    policy = us.logs.Policy.load(policy_path(name))
    policy.save(tmp_path / "policy.json")
    assert_same(read("learn", name, "policy.json"), policy_in(tmp_path), name)
    rounded = LEARN[name].summed
    assert_same(read("probabilities.json")[name], probabilities_of(name), name, rounded=rounded)
    assert us.load(policy_path(name)).rounds == policy.rows


@pytest.mark.parametrize("name", QUESTIONS)
def test_coverage_and_certify(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first_rules(monkeypatch)
    arguments = named(QUESTIONS[name])
    found = run(*arguments, "--json").json
    assert_same(read("questions", f"{name}.json"), found, name, rounded="--engine" in arguments)


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_refused_is_refused(name: str, tmp_path: Path) -> None:
    """With the same exit code, one line on standard error, and nothing on standard output."""
    (tmp_path / "out").mkdir()
    shutil.copy(policy_path("adaptive"), tmp_path / "out")
    said = run(*placed(REFUSED[name], tmp_path))
    assert said.code == read("refused.json")[name]
    assert (said.out, said.error.count("\n")) == ("", 1)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", RESULTS)
def test_frames(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`us.logs` in Python."""
    first_rules(monkeypatch)
    result, rounded = RESULTS[name]
    assert_same(read("frames.json")[name], result(), name, rounded=rounded)


@pytest.mark.parametrize("name", PAPER)
def test_paper(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every experiment at a small size; its figures, which 0.5.0's are not compared with, blank."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    said = run("paper", name, *PAPER[name], "--jobs", "1", "--json", "--out", tmp_path)
    assert_same(read("paper", f"{name}.json"), said.json, name)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{form}" for form in ("png", "svg", "csv")
    }
