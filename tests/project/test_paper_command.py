"""`understudy paper` as a person types it, right and wrong."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.support.command_line import Run, understudy
from understudy import __version__, cli
from understudy.experiments import EXPERIMENTS

__all__ = ["understudy"]  # a fixture

pytestmark = pytest.mark.plain

SMALL = ["--runs", "3", "--rounds", "60", "--actions", "5", "--alphas", "3", "--jobs", "1"]
COLUMNS = ["alpha", "learner", "mean", "q25", "q75", "coverage", "bound"]
PNG = b"\x89PNG\r\n\x1a\n"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("experiment", "learners"),
    [
        ("figure1", {"Exp3", "Exp3-IX"}),
        ("unknown", {"Exp3-IX", "Exp3-IX, unknown", "Exp3-IX, unknown, kl"}),
        ("linear", {"LinProd", "LinProd, tuned to C"}),
    ],
)
def test_each_experiment_writes_a_picture_and_its_numbers(
    experiment: str, learners: set[str], tmp_path: Path, understudy: Run
) -> None:
    done = understudy("paper", experiment, *SMALL, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{experiment}.{form}" for form in ("png", "svg", "csv")
    }
    rows = read(tmp_path / f"{experiment}.csv")
    assert list(rows[0]) == COLUMNS
    assert {row["learner"] for row in rows} == learners
    assert [float(row["alpha"]) for row in rows] == np.repeat(
        [0.0, 0.5, 1.0], len(learners)
    ).tolist()
    assert all(float(row["q25"]) <= float(row["q75"]) for row in rows)
    assert (tmp_path / f"{experiment}.png").read_bytes().startswith(PNG)
    text = "".join(ElementTree.parse(tmp_path / f"{experiment}.svg").getroot().itertext())
    assert all(name in text for name in learners)
    assert all(name in done.stdout for name in learners)
    assert "wrote" in done.stdout
    assert "9/9" in done.stderr  # the progress bar, on standard error


def test_probability_writes_a_picture_and_its_numbers(tmp_path: Path, understudy: Run) -> None:
    small = ("--runs", "3", "--rounds", "30", "--actions", "3")
    done = understudy("paper", "probability", *small, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = read(tmp_path / "probability.csv")
    assert {row["game"] for row in rows} == {"stationary", "switching", "retaliating"}
    assert {row["comparator"] for row in rows} == {"fixed", "best in hindsight"}
    assert sum(row["delta"] == "" for row in rows) == 3  # the means
    assert (tmp_path / "probability.png").read_bytes().startswith(PNG)
    text = "".join(ElementTree.parse(tmp_path / "probability.svg").getroot().itertext())
    assert all(word in text for word in ("best in hindsight", "bound on its mean", "retaliating"))
    assert "at 95 %" in done.stdout


@pytest.mark.parametrize(
    ("experiment", "sizes", "words"),
    [
        ("adaptive", ["--rounds", "60", "--actions", "3", "--alphas", "2"], {"rare best", "Prod"}),
        ("rates", ["--rounds", "500", "--actions", "3"], {"0.0001", "adaptive"}),
    ],
)
def test_experiments_beyond_the_paper(
    experiment: str, sizes: list[str], words: set[str], tmp_path: Path, understudy: Run
) -> None:
    small = ["--runs", "2", "--jobs", "1", "--out", str(tmp_path)]
    done = understudy("paper", experiment, *sizes, *small)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{experiment}.{form}" for form in ("png", "svg", "csv")
    }
    assert (tmp_path / f"{experiment}.png").read_bytes().startswith(PNG)
    text = (tmp_path / f"{experiment}.csv").read_text(encoding="utf-8")
    assert all(word in text and word in done.stdout for word in words)


def test_paper_alone_is_figure_1_and_says_why_exp3_has_no_bound(
    tmp_path: Path, understudy: Run
) -> None:
    done = understudy("paper", *SMALL, "--out", str(tmp_path / "new" / "folder"))
    assert done.returncode == 0, done.stderr
    rows = read(tmp_path / "new" / "folder" / "figure1.csv")
    assert all((row["bound"] == "") == (row["learner"] == "Exp3") for row in rows)
    assert "η ≤ min q" in done.stdout


def test_the_result_depends_on_the_seed_and_not_on_the_processes(
    tmp_path: Path, understudy: Run
) -> None:
    for name, options in (("one", []), ("two", ["--jobs", "2"]), ("other", ["--seed", "1"])):
        done = understudy("paper", *SMALL, *options, "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
    for form in ("csv", "png", "svg"):
        one, two, other = (
            (tmp_path / name / f"figure1.{form}").read_bytes() for name in ("one", "two", "other")
        )
        assert one == two
        assert one != other


def test_json_is_for_machines(tmp_path: Path, understudy: Run) -> None:
    done = understudy("paper", *SMALL, "--json", "--out", str(tmp_path))
    rows = json.loads(done.stdout)
    assert list(rows[0]) == COLUMNS
    assert rows[0]["bound"] is None
    assert float(read(tmp_path / "figure1.csv")[1]["mean"]) == rows[1]["mean"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["paper", "figure2"], "figure1"),
        (["paper", "--runs", "0"], "--runs"),
        (["paper", "--runs", "many"], "--runs"),
        (["paper", "--actions", "1"], "--actions"),
        (["paper", "--rounds", "-3"], "--rounds"),
        (["paper", "--alphas", "0"], "--alphas"),
        (["paper", "rates", "--alphas", "3"], "rates has no such size, but --runs, --rounds"),
        (["paper", "--seed", "-1"], "--seed"),
        (["paper", "--jobs", "0"], "jobs"),
        (["paper", "--run", "3"], "--runs"),
        (["paper", "--out", __file__], "--out"),
        (["paper", "--out", "/dev/null/folder"], "/dev/null"),
        (["paper", "--out", "/proc/folder"], "/proc cannot be written to"),
        (["papers"], "paper"),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    arguments: list[str], hint: str, understudy: Run
) -> None:
    done = understudy(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("understudy: ")
    assert hint in done.stderr


def test_without_matplotlib_it_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(sys, "argv", ["understudy", "paper", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "pip install matplotlib" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(EXPERIMENTS["figure1"]), "run", interrupt)
    monkeypatch.setattr(sys, "argv", ["understudy", "paper", *SMALL, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err.endswith("understudy: stopped\n")


def test_without_arguments_it_shows_its_help(understudy: Run) -> None:
    done = understudy()
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: ")
    assert "\n  paper" in done.stderr


def test_a_narrow_terminal_cuts_no_number_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Run
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    done = understudy("paper", *SMALL, "--out", str(tmp_path))
    assert "…" not in done.stdout
    assert "75 %" in done.stdout
    sizes = ("--runs", "1", "--rounds", "50")
    done = understudy("paper", "certificate", *sizes, "--out", str(tmp_path))
    assert "…" not in done.stdout  # a table wider than NARROWEST
    assert "│ sticky users, as units " in done.stdout


def test_help_and_version(understudy: Run) -> None:
    assert "paper" in understudy("--help").stdout
    assert "--alphas" in understudy("paper", "-h").stdout
    assert understudy("--version").stdout == f"understudy, version {__version__}\n"
