"""`learn`, `coverage` and `certify` as a person types them, with `understudy.logs.options`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import understudy as us
from tests.support.logs.log_files import make_rows, write
from understudy import cli
from understudy.logs.options import LearnOptions, LogOptions, declared_options

pytestmark = pytest.mark.plain

ROWS = make_rows(3_000)
FEW_ACTIONS = (
    "actions = 3 actions (up, east, north): the policy was learned with "
    "4 actions (south, west, east, …)"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "log.parquet", ROWS[:2_000])
    write(tmp_path / "later.csv", ROWS[2_000:])
    return tmp_path


def understudy(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["understudy", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("command", "options"),
    [("learn", LearnOptions), ("coverage", LogOptions), ("certify", LogOptions)],
)
def test_every_declared_option_is_one_of_the_command_and_of_the_function(
    command: str,
    options: type,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not understudy(command, "--help", monkeypatch=monkeypatch)
    shown, function = capsys.readouterr().out, getattr(us.logs, command)
    for name, option in declared_options(options):
        assert f" --{name.replace('_', '-')} " in shown
        assert f"        {name}: {option.help}\n" in function.__doc__
    policy = {} if command != "certify" else {"policy": "uniform"}
    with pytest.raises(TypeError, match=r"there is no option 'colour'$"):
        function(ROWS, **policy, colour="red")
    with pytest.raises(TypeError, match="no option 'actoins'; did you mean 'actions'"):
        function(ROWS, **policy, actoins=["a"])


def test_help_for_all_commands_reads_no_library_of_tables() -> None:
    code = "import sys; from understudy import cli; sys.exit('polars' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_learn_certify_and_coverage_say_what_they_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not understudy("learn", "log.parquet", "--out", "out", monkeypatch=monkeypatch)
    said = capsys.readouterr().out
    assert {path.name for path in (folder / "out").iterdir()} == {
        "policy.json",
        "report.html",
        "quarantine.parquet",
    }
    for words in ("production earned", "While learning, the", "prod-grid"):
        assert words in said
    policy = ("--policy", "out/policy.json")
    assert not understudy("certify", "later.csv", *policy, "--json", monkeypatch=monkeypatch)
    found = json.loads(capsys.readouterr().out)
    assert found["certificate"]["rounds"] == 1_000
    assert not understudy("coverage", "later.csv", *policy, monkeypatch=monkeypatch)
    said = capsys.readouterr().out
    assert "Calibration: " in said
    assert "uniform" in said
    best = ("certify", "later.csv", *policy, "--best-action", "--out", "judged")
    assert not understudy(*best, monkeypatch=monkeypatch)
    assert (folder / "judged" / "report.html").exists()


@pytest.mark.usefixtures("folder")
def test_engines_on_the_command_line_agree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for engine in ("polars", "duckdb"):
        arguments = ("coverage", "log.parquet", "--engine", engine, "--json")
        assert not understudy(*arguments, monkeypatch=monkeypatch)
        found[engine] = json.loads(capsys.readouterr().out)
        fixed = ("--horizon", "2000", "--learner", "exp3-ix", "--out", engine)
        assert not understudy(
            "learn", "log.parquet", "--engine", engine, *fixed, monkeypatch=monkeypatch
        )
        capsys.readouterr()
    for ours, theirs in zip(found["polars"]["actions"], found["duckdb"]["actions"], strict=True):
        assert ours == {
            **theirs,
            **{k: pytest.approx(v, rel=1e-9) for k, v in theirs.items() if isinstance(v, float)},
        }
    assert found["polars"]["actions"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("learn", "log.parquet", "--out", "out", "--resume"), "there is no policy.json"),
        (("learn", "log.parquet", "--out", "."), "the log is in this folder"),
        (("learn", "nowhere.csv", "--out", "out"), "there is no such file"),
        (("learn", "log.parquet", "--out", "out", "--engine", "duckdb"), "--horizon"),
        (
            ("learn", "log.parquet", "--out", "out", "--warmup", "0.2"),
            "it out, or name their",
        ),
        (("certify", "later.csv"), "one policy to certify"),
        (("certify", "later.csv", "--policy", "uniform", "--best-action"), "has none"),
        (("coverage", "later.csv", "--reward-range", "1", "0"), "a lower and a higher"),
    ],
)
def test_wrong_commands_end_in_one_line(
    arguments: tuple[str, ...],
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    assert understudy(*arguments, monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert said.startswith("understudy: ")
    assert sorted(path.name for path in folder.iterdir()) == before


OUT = ("--out", "out")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("learn", "later.csv", *OUT, "--resume", "--overwrite"), "leave out --overwrite"),
        (
            ("learn", "later.csv", *OUT, "--resume", "--context", "x", "--warmup", "0.2"),
            "leave out --warmup",
        ),
        (
            ("certify", "later.csv", "--policy", "uniform", "--out", "."),
            "the log is in this folder",
        ),
        (("learn", "later.csv", *OUT, "--resume", "--actions", "few.txt"), FEW_ACTIONS),
        (("learn", "strange.csv", *OUT, "--resume"), "of the policy that --resume goes on from"),
        (("certify", "later.csv", *OUT, "--policy", "uniform"), "it holds a policy"),
    ],
)
def test_what_contradicts_a_policy_of_before_ends_in_one_line(
    arguments: tuple[str, ...],
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not understudy("learn", "log.parquet", *OUT, monkeypatch=monkeypatch)
    (folder / "few.txt").write_text("east\nnorth\nup\n")
    write(folder / "strange.csv", ROWS[:9].with_columns(action=pl.lit("up")))
    before = {path: path.read_bytes() for path in (folder / "out").iterdir()}
    capsys.readouterr()
    assert understudy(*arguments, monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert {path: path.read_bytes() for path in (folder / "out").iterdir()} == before
