"""What ends a sweep before its time: a kill, Ctrl-C, a full disk. Finished cells outlive them all.

Run as a program with FOLDER [LARGEST_FILE], this file plays the sweep below.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import understudy as us
from understudy import cli, saved
from understudy.simulation.adversaries import Oblivious

pytestmark = pytest.mark.plain

Array = NDArray[np.float64]  # nothing of tests: this file is a program, too

PI = np.array([0.4, 0.3, 0.2, 0.1])
ROUNDS = 40
RUNS = 3
SEEDS = range(12)
PAUSE = "UNDERSTUDY_TEST_PAUSE"  # seconds that the adversary thinks, at least three times a cell


@saved
@dataclass(frozen=True, eq=False)
class Pondering(Oblivious):
    """The same means in all rounds, after a pause: a cell takes its time on any computer."""

    bernoulli: bool = True
    rounds: int | None = None

    @property
    def size(self) -> int:
        return 4

    def between(self, start: int, stop: int) -> Array:
        time.sleep(float(os.environ.get(PAUSE, "0")))
        return np.tile([0.2, 0.4, 0.6, 0.8], (stop - start, 1))

    def corners(self) -> Array:
        return np.array([[0.2, 0.4, 0.6, 0.8]])


def sweep(wide: int = 1) -> us.Sweep:
    """A cell per seed; `wide` is the number of comparators, which makes files larger."""
    return us.Sweep(
        games={"pondering": us.Game(Pondering(), PI, rounds=ROUNDS)},
        learners={"known": us.exp3_ix(PI, horizon=ROUNDS)},
        seeds=SEEDS,
        runs=RUNS,
        comparators=[0] * wide,
    )


def main(folder: str, largest_file: int | None = None) -> None:
    """Play the sweep and say how it went: as a line of JSON, with the runs that were played."""
    played: list[int] = []
    try:
        if largest_file is not None:
            us.simulate(sweep(), keep=folder)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
        wide = 1 if largest_file is None else 1000
        results = us.simulate(sweep(wide), jobs=2, keep=folder, progress=played.append)
        end: dict[str, Any] = {"end": "finished", "rows": results.rows()[:1000]}
    except KeyboardInterrupt:
        end = {"end": "interrupted"}
    except OSError as error:
        end = {"end": error.strerror, "file": error.filename}
    print(json.dumps({**end, "played": sum(played)}))  # noqa: T201 - the test reads it


def listen_to_ctrl_c() -> None:
    """A shell that starts programs in the background tells them not to."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def started(*command: str, pause: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """A program of its own, ended if the test ends before it."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, PAUSE: str(pause), "PYTHONWARNINGS": "default"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,  # noqa: PLW1509 - no thread of a test holds a lock meanwhile
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def finish(*command: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a program that is left alone."""
    with started(*command) as process:
        out, errors = process.communicate(timeout=120)
        return process.returncode, out, errors


def cells(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


def wait_for_cells(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until that many cells are finished, but not forever."""
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.json"))) < count:
        assert process.poll() is None, "it ended too early to be stopped"
        assert time.monotonic() < deadline, "no cells for a minute"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], Any]:
    """The cells and the rows of a sweep that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    results = us.simulate(sweep(), keep=folder)
    return cells(folder), results.rows()


def assert_goes_on(folder: Path, undisturbed: tuple[dict[str, bytes], Any]) -> None:
    """What is kept is right and not played again; the rest is played; the result is the same."""
    expected, rows = undisturbed
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 0 < len(kept) < len(expected)
    assert expected.items() > cells(folder).items()
    played: list[int] = []
    results = us.simulate(sweep(), keep=folder, progress=played.append)
    assert sum(played) == RUNS * (len(expected) - len(kept))
    assert results.rows() == rows
    assert cells(folder) == expected
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.full  # processes that start again and again
def test_a_sweep_that_is_killed_again_and_again_goes_on(
    tmp_path: Path, undisturbed: tuple[dict[str, bytes], Any]
) -> None:
    """Twice by SIGKILL, which nothing can be done about."""
    kept: dict[str, bytes] = {}
    for count in (2, 6):
        with started(__file__, str(tmp_path), pause=0.05) as process:
            wait_for_cells(tmp_path, count, process)
            process.kill()
            assert process.wait(timeout=60) == -signal.SIGKILL
        assert cells(tmp_path).items() >= kept.items()
        assert undisturbed[0].items() >= cells(tmp_path).items()
        kept = cells(tmp_path)
    assert_goes_on(tmp_path, undisturbed)


@pytest.mark.full  # processes that start again and again
def test_two_sweeps_may_share_a_folder(
    tmp_path: Path, undisturbed: tuple[dict[str, bytes], Any]
) -> None:
    """At the same time: the worst that happens is that a cell is played twice."""
    with started(__file__, str(tmp_path)) as one, started(__file__, str(tmp_path)) as two:
        ends = [json.loads(process.communicate(timeout=120)[0]) for process in (one, two)]
    assert [end["rows"] for end in ends] == [undisturbed[1]] * 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == undisturbed[0]


# In two of a hundred interruptions joblib's own process that tracks semaphores finds one that is
# gone already, and says so.
TRACKER = re.compile(
    r".*/resource_tracker\.py:\d+: UserWarning: resource_tracker: "
    r"(There appear to be \d+ leaked semlock|/loky-\S+: FileNotFoundError).*\n"
    r"  warnings\.warn\(.*\n"
)


def test_ctrl_c_reaches_the_caller_and_leaves_the_finished_cells(
    tmp_path: Path, undisturbed: tuple[dict[str, bytes], Any]
) -> None:
    with started(__file__, str(tmp_path), pause=0.1) as process:
        wait_for_cells(tmp_path, 2, process)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert json.loads(out)["end"] == "interrupted"
    assert (process.returncode, TRACKER.sub("", errors)) == (0, "")
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}
    assert_goes_on(tmp_path, undisturbed)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Nothing may be said in here, nor when what was left over is cleared away."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in said] == []


class Stop(Exception):
    """What a caller's own function may raise."""


@pytest.mark.parametrize("jobs", [1, 2])
def test_stopping_early_does_not_warn(jobs: int, tmp_path: Path) -> None:
    """An error of the caller's own comes out as it is, and nothing is said beside it."""

    def stop(done: int) -> None:
        raise Stop(done)

    with silent(), pytest.raises(Stop):
        us.simulate(sweep(), jobs=jobs, progress=stop, keep=tmp_path)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_with_nothing_left_to_play_does_not_warn(jobs: int, tmp_path: Path) -> None:
    us.simulate(sweep(), keep=tmp_path)
    with silent():
        assert len(us.simulate(sweep(), jobs=jobs, keep=tmp_path)) == len(SEEDS)


SIZES = ["--rounds", "100000", "--runs", "8", "--alphas", "8", "--actions", "50"]


def paper(folder: Path, *options: str) -> list[str]:
    """`understudy paper`, long enough to be stopped."""
    where = ["--keep", str(folder / "keep"), "--out", str(folder / "out")]
    return ["-m", "understudy", "paper", *SIZES, *where, *options]


@pytest.mark.large
@pytest.mark.full  # processes that start again and again
def test_ctrl_c_on_the_command_line_is_not_the_end_of_the_work(tmp_path: Path) -> None:
    """One line, exit code 130, nothing half-written; the same command goes on, to the same CSV."""
    code, _, errors = finish(*paper(tmp_path / "undisturbed"))
    assert code == 0, errors
    with started(*paper(tmp_path)) as process:
        wait_for_cells(tmp_path / "keep", 4, process)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert said(errors) == ["understudy: stopped"]
    assert not (tmp_path / "out").exists()
    kept = cells(tmp_path / "keep")
    assert {path.name for path in (tmp_path / "keep").iterdir()} == set(kept)
    assert kept.items() < cells(tmp_path / "undisturbed" / "keep").items()
    code, _, errors = finish(*paper(tmp_path))
    assert code == 0, errors
    assert cells(tmp_path / "keep") == cells(tmp_path / "undisturbed" / "keep")
    for form in ("csv", "png", "svg"):
        one, two = (
            (folder / "out" / f"figure1.{form}").read_bytes()
            for folder in (tmp_path, tmp_path / "undisturbed")
        )
        assert one == two


def said(errors: str) -> list[str]:
    """What stands on standard error beside the bar."""
    lines = (line.strip() for line in errors.splitlines())
    return [line for line in lines if line and not line.startswith("runs ")]


@pytest.mark.full  # processes that start again and again
def test_a_file_system_that_takes_no_more_is_named(
    tmp_path: Path, undisturbed: tuple[dict[str, bytes], Any]
) -> None:
    """Finished cells stay whole, nothing is left of the one that did not fit; then it goes on."""
    code, out, _ = finish(__file__, str(tmp_path), "2000")
    end = json.loads(out)
    assert (code, end["end"]) == (0, "File too large")
    assert Path(end["file"]).parent == tmp_path
    assert not Path(end["file"]).exists()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == undisturbed[0]
    results = us.simulate(sweep(1000), keep=tmp_path)
    assert Path(end["file"]).exists()
    assert len(cells(tmp_path)) == 2 * len(results)


LIMITED = (
    "import resource; from understudy.cli import main;"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY)); main()"
)
SMALL = ["paper", "--rounds", "50", "--actions", "5", "--alphas", "6"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of cells from the command line, in this process."""
    folder = tmp_path_factory.mktemp("begun")
    where = ["--keep", str(folder / "keep"), "--out", str(folder / "out")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["understudy", *SMALL, "--runs", "3", *where])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 0
    return folder


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_on_the_command_line_a_full_disk_is_one_line(jobs: str, begun: Path) -> None:
    """With the file's name, and exit code 2; here files of 300 runs do not fit."""
    before = cells(begun / "keep")
    where = ["--keep", str(begun / "keep"), "--out", str(begun / "other"), "--jobs", jobs]
    code, out, errors = finish("-c", LIMITED, *SMALL, "--runs", "300", *where)
    assert (code, out) == (2, "")
    assert {path.name for path in (begun / "keep").iterdir()} == set(before)
    assert cells(begun / "keep") == before
    assert not (begun / "other").exists()
    (line,) = said(errors)
    assert line.startswith(f"understudy: {begun / 'keep'}")
    assert line.endswith(".json: File too large")


def run(*command: str) -> bool:
    """Whether a command of the system works here."""
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    return False


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    options: Sequence[str] = ("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))
    if os.geteuid() != 0 or not run("mount", *options):
        pytest.skip("only root may mount a small file system, and not everywhere")
    try:
        yield folder
    finally:
        assert run("umount", str(folder))


def test_a_full_disk_keeps_what_fits_and_goes_on_when_there_is_space(small_disk: Path) -> None:
    ballast, wide = small_disk / "ballast", sweep(40)
    ballast.write_bytes(bytes(40 * 1024))
    with pytest.raises(OSError, match="No space left on device") as caught:
        us.simulate(wide, keep=small_disk / "keep")
    assert Path(caught.value.filename).parent == small_disk / "keep"
    kept = cells(small_disk / "keep")
    assert 0 < len(kept) < len(SEEDS)
    assert {path.name for path in (small_disk / "keep").iterdir()} == set(kept)
    ballast.unlink()
    played: list[int] = []
    results = us.simulate(wide, keep=small_disk / "keep", progress=played.append)
    assert sum(played) == RUNS * (len(SEEDS) - len(kept))
    assert cells(small_disk / "keep").items() > kept.items()
    assert results.rows() == us.simulate(wide).rows()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
