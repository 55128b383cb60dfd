"""Benchmarks (`understudy.cli.bench`): baselines compute what we do, all run, the page has all."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from benchmarks import BENCHMARKS, as_markdown, measure, read, write, write_docs
from benchmarks.baselines import (
    one_weight_a_round,
    softmax_every_round,
)
from benchmarks.instructions import WORKLOADS, count
from benchmarks.measurement import Benchmark, Contender, Evaluation, Ratio, Table, machine
from benchmarks.replay import skipped
from benchmarks.service_growth import measure as measure_growth
from tests.support.command_line import Run, understudy
from tests.support.paths import ROOT
from understudy import cli
from understudy.errors import InvalidArgument
from understudy.experiments import EXPERIMENTS, ExperimentOptions

__all__ = ["understudy"]  # a fixture

pytestmark = pytest.mark.plain

bench_command: Any = import_module("understudy.cli.bench")  # the name is the command's in cli

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
SMALL = ExperimentOptions(runs=400, rounds=100, actions=5, alphas=3)


def figure_1_points() -> list[Any]:
    figure_1: Any = EXPERIMENTS["figure1"]
    return list(figure_1.points(SMALL))


def test_both_baselines_are_one_computation() -> None:
    """The same logs, so the same rewards: a softmax a round, or one weight a round."""
    points = figure_1_points()
    found = softmax_every_round(points, SMALL.runs)
    np.testing.assert_allclose(one_weight_a_round(points, SMALL.runs), found, rtol=1e-11)


def test_the_baselines_play_figure_1() -> None:
    """Their mean rewards are ours within four standard errors, at every point and learner."""
    points = figure_1_points()
    found = softmax_every_round(points, SMALL.runs)
    for point, means in zip(points, found, strict=True):
        ours = us.simulate(point.game, point.learners, runs=SMALL.runs, seed=1)
        for name, mean in zip(("Exp3", "Exp3-IX"), means, strict=True):
            reward = ours.reward[name]
            error = reward.std(ddof=1) * np.sqrt(2 / SMALL.runs)
            assert abs(mean - reward.mean()) < 4 * error


MARKS = {
    "latency": [pytest.mark.full],  # starts processes
    "learn": [pytest.mark.full],  # as well, to measure their memory
    "live": [pytest.mark.needs("wrk")],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, ())) for name in BENCHMARKS]
)
def test_every_benchmark_runs(name: str, tmp_path: Path) -> None:
    """At tiny sizes: all contenders are timed, all ratios are numbers, the file reads back."""
    result = measure(BENCHMARKS[name], quick=True)
    assert all(timing.seconds > 0 and timing.value > 0 for timing in result.timings)
    assert result.ratios
    assert all(ratio.at_least is None and ratio.at_most is None for ratio in result.ratios)
    assert read(write(result, tmp_path)) == result


def test_contenders_take_turns_and_medians_are_kept() -> None:
    turns: list[str] = []
    names = {"first": 3, "second": 1}
    contenders = [
        Contender(name, lambda name=name: turns.append(name), 1.0, "s", repeats)  # type: ignore[misc] # bound now
        for name, repeats in names.items()
    ]
    reported: list[tuple[str, int, int]] = []
    result = measure(
        Benchmark("turns", "Turns", lambda _: iter(contenders), lambda _: []),
        report=lambda *what: reported.append(what),
    )
    assert turns == ["first", "second", "first", "first"]
    assert reported == [("first", 0, 4), ("second", 1, 4), ("first", 2, 4), ("first", 3, 4)]
    assert [timing.repeats for timing in result.timings] == [3, 1]
    for timing in result.timings:
        assert timing.fastest <= timing.seconds <= timing.slowest


def test_a_ratio_knows_whether_it_is_kept() -> None:
    assert Ratio("r", 60.0, at_least=50.0).kept
    assert not Ratio("r", 40.0, at_least=50.0).kept
    assert Ratio("r", 4.0, at_most=5.0).kept
    assert not Ratio("r", 6.0, at_most=5.0).kept


def test_the_command_measures_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Run
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    done = understudy("bench", "rounds", "lin_prod", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "K = 100" in done.stdout
    assert machine()["python"] in done.stdout
    assert [read(tmp_path / f"{name}.json").quick for name in ("rounds", "lin_prod")] == [True] * 2


def test_the_command_names_all_benchmarks() -> None:
    assert tuple(BENCHMARKS) == bench_command.NAMES


def test_without_a_checkout_the_command_says_that_it_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a wheel: the folder of the benchmarks is not beside the package."""
    monkeypatch.setattr(bench_command, "CHECKOUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["understudy", "bench", "rounds", "--quick"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "get the source code" in printed.err
    assert "make bench" in printed.err


def test_a_wheel_holds_the_package_and_no_benchmarks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "understudy/cli/bench.py" in names
    assert {name.split("/")[0] for name in names} == {
        "understudy",
        f"understudy-{us.__version__}.dist-info",
    }
    assert [name for name in names if "benchmarks" in name] == []


def test_only_the_measured_part_of_a_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n")
    results = [measure(BENCHMARKS["lin_prod"], quick=True)]
    write_docs(results, page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert as_markdown(results) in text
    assert "old" not in text


def test_tables_of_values_stand_between_timings_and_ratios(tmp_path: Path) -> None:
    table = Table("Values", ["", "a", "b"], [["x", "1", ""]])
    made = Evaluation([table], [Ratio("r", 0.5, at_least=1.0)])
    nothing = Contender("nothing", lambda: None, 1.0, "s", 1)
    benchmark = Benchmark("b", "B", lambda _: iter([nothing]), evaluate=lambda *_: made)
    result = measure(benchmark)
    _, timings, values, ratios = as_markdown([result]).split("\n\n| ")
    assert timings.endswith("\n\nValues:")
    assert values == "| a | b |\n|---|---:|---:|\n| x | 1 |  |"
    assert ratios.endswith("| r | 0.5 | ≥ 1 | missed |")
    assert read(write(result, tmp_path)) == result


def test_the_command_speaks_to_machines(understudy: Run) -> None:
    done = understudy("bench", "rounds", "--quick", "--json")
    (result,) = json.loads(done.stdout)
    assert result["name"] == "rounds"
    assert result["machine"]["cores"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["speed"],
        ["--docs", "nowhere.md"],
        ["--docs", str(ROOT / "README.md")],
        ["rounds", "--docs", str(PAGE)],
        ["--quick", "--docs", str(PAGE)],
        ["rounds", "--out", "/dev/null/x"],
    ],
)
def test_the_command_refuses_what_it_cannot_do(arguments: list[str], understudy: Run) -> None:
    done = understudy("bench", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_page_without_a_measured_part_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(InvalidArgument, match="measured part"):
        write_docs([measure(BENCHMARKS["lin_prod"], quick=True)], page)
    assert page.read_text() == "nothing"


def test_missing_peers_are_named() -> None:
    for reason in skipped():
        assert "pip install 'understudy[bench]'" in reason


def test_the_page_shows_the_committed_results() -> None:
    """docs/performance.md is written from benchmarks/results, at full size, all within two days."""
    results = [read(RESULTS / f"{name}.json") for name in BENCHMARKS]
    assert not any(result.quick for result in results)
    assert not any(result.skipped for result in results)
    assert len({json.dumps(result.machine) for result in results}) == 1
    first, *_, last = sorted(date.fromisoformat(result.date) for result in results)
    assert last - first <= timedelta(days=1)
    assert as_markdown(results) in PAGE.read_text(encoding="utf-8")


@pytest.mark.needs("valgrind")
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_round_takes_more_instructions_than_it_did(name: str) -> None:
    """TimedWork by callgrind, within a tenth: a loss that a clock would not see."""
    kept = json.loads((RESULTS / "instructions.json").read_text(encoding="utf-8"))
    if kept["versions"] != {what: machine()[what] for what in kept["versions"]}:
        pytest.skip(f"counted with {kept['versions']}, other versions count otherwise")
    found = count(name)
    assert found == pytest.approx(kept["counts"][name], rel=0.1), "make bench writes new counts"


@pytest.mark.full
def test_the_service_is_measured_as_its_store_grows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_growth(str(tmp_path / "store.db"), 20_000)
    *stages, restart = capsys.readouterr().out.splitlines()
    assert len(stages) == 10
    assert stages[-1].lstrip().startswith("20,000 events")
    assert restart.startswith("restart after kill -9: ")
