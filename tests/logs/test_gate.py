"""`certify --gate` of `understudy.cli.log_commands`: exit codes, the JSON schema, a CI step."""

from __future__ import annotations

import copy
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.paths import ROOT
from tests.support.verdicts import Obstacle, Reason, Step, VerdictOutcome
from understudy import cli
from understudy.cli.log_commands import GATE_CODES, UNDECIDED

SCHEMA = json.loads((ROOT / "docs" / "certify.schema.json").read_text(encoding="utf-8"))
EVEN = (0.5, 0.5)
# By outcome: the propensities, mean rewards and rows of a log, its seed, and the exit code.
SITUATIONS: dict[str, tuple[Any, Any, int, int, int]] = {
    "promote": (EVEN, (0.2, 0.8), 2_000, 0, 0),
    "not enough data": (EVEN, (0.45, 0.5), 700, 3, 3),
    "no visible gain": (EVEN, (0.5, 0.5), 2_000, 7, 3),
    "worse": (EVEN, (0.8, 0.2), 2_000, 0, 4),
    "impossible": ((1.0, 0.0), (0.3, 0.2), 2_000, 0, 3),
    "no longer certain": (EVEN, (0.45, 0.5), 700, 4, 3),
    "cannot tell": (EVEN, (0.3, 0.6), 2_000, 0, 3),
}


def write_situation(outcome: str, folder: Path) -> tuple[Path, Path]:
    """A log, and a policy that always plays b, in which the verdict has this outcome."""
    q, means, rows, seed, _ = SITUATIONS[outcome]
    rng = np.random.default_rng(seed)
    actions = rng.choice(2, p=q, size=rows) if seed in {0, 7} else rng.integers(2, size=rows)
    rewards = (rng.random(rows) < np.array(means)[actions]).astype(float)
    propensities = 0.05 if outcome == "cannot tell" else np.array(q)[actions]
    log = pl.DataFrame(
        {"action": np.array(["a", "b"])[actions], "reward": rewards, "propensity": propensities}
    )
    log.write_csv(folder / "log.csv")
    (folder / "policy.json").write_text('{"b": 1.0}')
    return folder / "log.csv", folder / "policy.json"


def understudy(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["understudy", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, in which an object has no other fields than those that it describes."""
    strict = copy.deepcopy(schema)

    def close(part: Any) -> None:
        if isinstance(part, dict):
            if "properties" in part:
                part["additionalProperties"] = False
            for inner in part.values():
                close(inner)
        if isinstance(part, list):
            for inner in part:
                close(inner)

    close(strict)
    return strict


@pytest.mark.parametrize("outcome", SITUATIONS)
def test_each_outcome_has_its_exit_code_and_the_published_form(
    outcome: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log, policy = write_situation(outcome, tmp_path)
    asked = ("certify", log, "--policy", policy, "--json")
    assert understudy(*asked, "--gate", monkeypatch=monkeypatch) == SITUATIONS[outcome][-1]
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == outcome
    jsonschema_rs.validator_for(closed(SCHEMA)).validate(found)
    assert understudy(*asked, monkeypatch=monkeypatch) == 0  # without --gate, as ever
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize(("margin", "code"), [(0.02, 4), (0.3, 0)])
def test_a_broken_guardrail_stops_a_pipeline(
    margin: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The policy earns more, and is slower by .1 of the range; the form is the published one."""
    log, policy = write_situation("promote", tmp_path)
    rows = pl.read_csv(log)
    number = pl.int_range(pl.len())
    rows.with_columns(
        latency=pl.when(number % 50 != 7).then(0.4 + 0.2 * (pl.col("action") == "b")),
        reward=pl.when(number % 90 != 5).then("reward"),
        country=pl.when(number % 2 == 0).then(pl.lit("it")).otherwise(pl.lit("es")),
    ).write_csv(log)
    asked = (
        *("certify", log, "--policy", policy, "--policy", "uniform", "--json", "--gate"),
        *("--guardrail", f"latency:0:1:lower:{margin}", "--segment", "country=it,es"),
        *("--against", "production", "--least-propensity", "0.5"),
    )
    assert understudy(*asked, monkeypatch=monkeypatch) == code
    found = json.loads(capsys.readouterr().out)
    jsonschema_rs.validator_for(closed(SCHEMA)).validate(found)
    assert found["outcome"] == ("guardrail broken" if code else "promote")
    assert [one["state"] for one in found["guardrails"]] == ["broken" if code else "holds"]
    assert len(found["segments"]) == len(found["candidates"]) == 2
    assert found["other_gain"] is not None


@pytest.mark.parametrize("outcome", SITUATIONS)
def test_certify_coverage_and_the_page_say_the_same_of_the_same_policy(
    outcome: str, tmp_path: Path
) -> None:
    log, policy = write_situation(outcome, tmp_path)
    certified = us.logs.certify(log, policy)
    said = certified.report.words
    covered = us.logs.coverage(log, policy, actions=["a", "b"])
    assert covered.report.candidates[0].words == certified.report.candidates[0].words == said
    assert covered.coverage.verdicts[0].outcome == certified.outcome == outcome
    text = " ".join(re.sub("<[^>]*>", " ", html.unescape(certified.page())).split())
    for part in (certified.report.mark.word, certified.report.verdict, certified.report.step):
        assert part in text


def test_learn_and_coverage_have_the_published_form_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, policy = write_situation("promote", tmp_path)
    out = tmp_path / "out"
    for asked in (("coverage", log, "--policy", policy), ("learn", log, "--out", out)):
        assert understudy(*asked, "--json", monkeypatch=monkeypatch) == 0
        found = json.loads(capsys.readouterr().out)
        jsonschema_rs.validator_for(closed(SCHEMA)).validate(found)
    assert found["next_step"]["shares"] == [0.01, 0.1, 0.5, 1.0]
    assert "us.logs.Policy.load('policy.json')" in found["next_step"]["code"]
    assert (
        understudy(
            "coverage", log, "--policy", out / "policy.json", "--json", monkeypatch=monkeypatch
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    jsonschema_rs.validator_for(closed(SCHEMA)).validate(found)
    assert found["outcome"] is None
    assert found["candidates"][0]["outcome"] == "not certified"


def test_the_schema_names_all_values() -> None:
    properties = SCHEMA["properties"]
    assert set(properties["outcome"]["enum"]) == {None, *VerdictOutcome}
    assert set(properties["reason"]["enum"]) == {None, *Reason, *Obstacle}
    assert set(properties["obstacle"]["enum"]) == {None, *Obstacle}
    assert set(properties["next_step"]["properties"]["step"]["enum"]) == set(Step)
    assert set(SCHEMA["required"]) == set(properties)


def test_every_outcome_has_an_exit_code() -> None:
    codes = {outcome: GATE_CODES.get(outcome, UNDECIDED) for outcome in VerdictOutcome}
    assert codes[VerdictOutcome.GUARDRAIL_BROKEN] == codes[VerdictOutcome.WORSE] == 4
    assert [outcome for outcome, code in codes.items() if not code] == [VerdictOutcome.PROMOTE]
    assert set(GATE_CODES) <= set(VerdictOutcome)
    assert {1, 2}.isdisjoint(codes.values())  # a crash, and bad input


def test_bad_input_is_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, policy = write_situation("promote", tmp_path)
    gone = tmp_path / "gone.csv"
    assert understudy("certify", gone, "--policy", policy, "--gate", monkeypatch=monkeypatch) == 2
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [("promote", 0, "promote: "), ("not enough data", 3, "not decided: "), ("worse", 4, "worse")],
)
def test_the_example_of_a_ci_step_passes_for_promotions_only(
    outcome: str, code: int, said: str, tmp_path: Path
) -> None:
    log, policy = write_situation(outcome, tmp_path)
    command = ["sh", str(ROOT / "examples" / "gate.sh"), str(log), str(policy)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout.startswith(said)
    assert json.loads((tmp_path / "verdict.json").read_text())["outcome"] == outcome
