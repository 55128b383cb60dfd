"""The command `plan` of `understudy.cli`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import understudy as us
from tests.support.command_line import Place, Run, place, understudy
from tests.support.paths import DOCS
from understudy.cli.plan import parse_guardrail, parse_numbers, read_rows
from understudy.errors import InvalidArgument

__all__ = ["place", "understudy"]  # fixtures

pytestmark = pytest.mark.large

SMALL = ("--actions", "3", "--exploration", "0.5", "--reward", "0.2", "--gain", "0.1")
QUICK = ("--runs", "30")


def test_the_decision_comes_first(understudy: Run) -> None:
    said = understudy("plan", *SMALL, *QUICK, "--traffic", "100")
    assert said.returncode == 0
    lines = said.stdout.splitlines()
    plan = us.plan(3, traffic=100, exploration=0.5, reward=0.2, gain=0.1, runs=30)
    assert lines[0] == repr(plan)
    assert lines[1].split() == ["chance", "of", "a", "verdict", "days", "rows"]
    assert [line.split("%")[0].strip() for line in lines[2:7]] == ["10", "25", "50", "75", "90"]
    assert "Assumes that production plays" in said.stdout
    assert not said.stderr


def test_json_has_the_numbers(understudy: Run) -> None:
    said = understudy("plan", *SMALL, *QUICK, "--json")
    found = json.loads(said.stdout)
    plan = us.plan(3, exploration=0.5, reward=0.2, gain=0.1, runs=30)
    assert found["median_rows"] == plan.median
    assert found["ninety_rows"] == plan.ninety
    assert found["median_days"] is None
    assert found["decision"] == repr(plan)
    assert found["power"][-1] == {
        "rows": plan.curve[0][-1],
        "days": None,
        "power": plan.curve[1][-1],
    }
    short = json.loads(understudy("plan", *SMALL, *QUICK, "--longest", "3", "--json").stdout)
    assert short["median_rows"] is None
    assert short["longest"] == 3
    assert short["power"] == []
    assert found["slowest_guardrail"] is None
    guarded = (*SMALL, *QUICK, "--guardrail", "seconds:0:60:lower:2:20:15", "--json")
    assert json.loads(understudy("plan", *guarded).stdout)["slowest_guardrail"] == "seconds"


def test_a_picture_and_its_numbers_are_written(understudy: Run, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    said = understudy("plan", *SMALL, *QUICK, "--traffic", "50", "--out", str(out))
    assert sorted(path.name for path in out.iterdir()) == ["power.csv", "power.png", "power.svg"]
    assert said.stdout.splitlines()[-1].startswith("wrote ")
    with (out / "power.csv").open(encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    powers = [row["power"] for row in rows]
    assert powers == sorted(powers)
    assert powers[-1] >= 0.9
    assert all(row["days"] == row["rows"] / 50.0 for row in rows)
    first = (out / "power.png").read_bytes()
    understudy("plan", *SMALL, *QUICK, "--traffic", "50", "--out", str(out))
    assert (out / "power.png").read_bytes() == first


def test_files_name_actions_in_any_order(understudy: Run, tmp_path: Path) -> None:
    shares, means = tmp_path / "shares.csv", tmp_path / "means.json"
    shares.write_text("action,probability\nold,0.6\nnew,0.4\n", encoding="utf-8")
    means.write_text('{"new": 0.5, "old": 0.2}', encoding="utf-8")
    files = ("--production", str(shares), "--means", str(means))
    found = json.loads(understudy("plan", *files, *QUICK, "--json").stdout)
    assert found["production"] == [0.6, 0.4]
    assert found["means"] == [0.2, 0.5]
    lists = ("--production", "0.6, 0.4", "--means", "0.2,0.5")
    assert json.loads(understudy("plan", *lists, *QUICK, "--json").stdout) == found


@pytest.mark.parametrize(
    ("content", "numbers", "labels"),
    [
        ("[0.25, 0.75]", [0.25, 0.75], None),
        ("0.25\n0.75\n", [0.25, 0.75], None),
        ("share\n0.25\n0.75\n", [0.25, 0.75], None),
        ('{"a": 0.25, "b": 0.75}', [0.25, 0.75], ["a", "b"]),
        ("a,0.25\nb,0.75\n", [0.25, 0.75], ["a", "b"]),
        ('action,mean\n"a, or b",0.25\nc,0.75\n', [0.25, 0.75], ["a, or b", "c"]),
    ],
)
def test_files_of_numbers(content: str, numbers: list[float], labels: Any, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text(content, encoding="utf-8")
    assert parse_numbers("means", str(path)) == (numbers, labels)


@pytest.mark.parametrize(
    "content", ["[0.5, {}]", "[", '{"a": "x"}', "a,b\nc,d\n", "a,0.5\na,0.5\n", "\x00", "[null]"]
)
def test_files_that_hold_no_numbers_are_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidArgument) as caught:
        parse_numbers("means", str(path))
    assert caught.value.argument == "means"


def test_files_must_name_the_same_actions(tmp_path: Path) -> None:
    for name, labels in (("first", "ab"), ("second", "ac")):
        text = "".join(f"{label},0.5\n" for label in labels)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument, match="not those of the other file"):
        read_rows({"production": str(tmp_path / "first"), "means": str(tmp_path / "second")})


def test_a_guardrail_is_a_text_of_six_to_eight_parts() -> None:
    metric = us.Guardrail("latency_ms", low=0.0, high=2000.0, better="lower", margin=20.0)
    text = "latency_ms:0:2000:lower:20:120"
    assert parse_guardrail(text) == us.PlannedGuardrail(metric, 120.0)
    assert parse_guardrail(f"{text}:80") == us.PlannedGuardrail(metric, 120.0, 80.0)
    assert parse_guardrail(f"{text}:80:-5") == us.PlannedGuardrail(metric, 120.0, 80.0, -5.0)
    for wrong in ("latency_ms", f"{text}:1:1:1", "latency_ms:0:x:lower:20:120", "a:0:1:up:0:0.5"):
        with pytest.raises(InvalidArgument):
            parse_guardrail(wrong)


WRONG = [
    ((), "exploration"),
    (("--actions", "1"), "--actions"),
    (("--actions", "3", "--exploration", "0", "--reward", "0.1", "--gain", "0.1"), "exploration"),
    (("--actions", "3", "--exploration", "nan", "--reward", "0.1", "--gain", "0.1"), "exploration"),
    ((*SMALL, "--traffic", "0"), "traffic"),
    ((*SMALL, "--traffic", "-3"), "traffic"),
    ((*SMALL, "--confidence", "1"), "confidence"),
    ((*SMALL, "--runs", "0"), "--runs"),
    ((*SMALL, "--learner", "magic"), "--learner"),
    ((*SMALL, "--guardrail", "latency"), "guardrail"),
    (("--production", "1,0", "--reward", "0.1", "--gain", "0.1"), "production"),
    (("--production", "0.5,0.6", "--reward", "0.1", "--gain", "0.1"), "production"),
    (("--production", "nowhere.csv", "--reward", "0.1", "--gain", "0.1"), "production"),
    (("--production", "0.5,0.5", "--means", "0.1,nan"), "means"),
    (("--production", "0.5,0.5", "--means", "0.1,1.2"), "means"),
]


@pytest.mark.parametrize(("arguments", "name"), WRONG)
def test_bad_input_ends_with_one_line(place: Place, arguments: tuple[str, ...], name: str) -> None:
    before = place.files()
    said = place.run("plan", *arguments, "--out", str(place.out))
    assert said.code == 2, (said.out, said.error)
    assert said.error.startswith("understudy: ")
    assert said.error.count("\n") == 1
    assert name in said.error
    assert not said.out
    assert place.files() == before


def test_the_page_about_plans_runs(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    page = (DOCS / "plan.md").read_text(encoding="utf-8")
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", page, re.DOTALL):
        if language == "python":
            exec(compile(block, "plan.md", "exec"), names)
            continue
        for line in block.splitlines():
            assert understudy(*shlex.split(line)[1:]).returncode == 0
    assert names["guarded"].median > 0.0
    assert (tmp_path / "planned" / "power.png").exists()


def test_the_help_shows_an_example_that_runs(understudy: Run) -> None:
    text = understudy("plan", "--help").stdout
    (line,) = (line for line in text.splitlines() if line.strip().startswith("understudy plan "))
    found = json.loads(understudy(*line.split()[1:], "--runs", "20", "--json").stdout)
    assert found["ninety_days"] > found["median_days"] > 10
    assert math.isclose(found["gain"], 0.003)
