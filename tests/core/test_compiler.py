"""How kernels are compiled: when they are needed, kept on disk, and never wrong for the disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.paths import UNFINISHED

COMPILER_IS_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
needs_compiler = pytest.mark.skipif(COMPILER_IS_OFF, reason="nothing is compiled: no cache to test")

PLACES = ("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME")
WARNING = "compiled kernels cannot be kept on disk"
KEPT = {name: os.environ[name] for name in PLACES if name in os.environ}
REMEDY = "set NUMBA_CACHE_DIR to a folder that can be written to"


def run(code: str, **environment: str) -> Any:
    """What a program of its own prints, as data."""
    clean = {name: value for name, value in os.environ.items() if name not in PLACES}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


# Programs begin as forks of a process that has imported numba and compiled something: each program
# alone would do this for a second.
FORKS = """
import json, os, sys, numba, numpy as np
numba.njit(lambda numbers: numbers[0] + numbers.sum())(np.zeros(3, dtype=np.int64))
for line in sys.stdin:
    code, folder, environment, said, warned = json.loads(line)
    program = os.fork()
    if program == 0:
        for descriptor, path in ((1, said), (2, warned)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.environ.update(environment)
        numba.config.reload_config()
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        exec(code, {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    """A process to fork programs from. They find no cache that others have left."""
    clean = {name: value for name, value in os.environ.items() if name not in PLACES}
    with subprocess.Popen(
        [sys.executable, "-c", FORKS],
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.communicate()  # at the end of its input it ends


class Copy:
    """A copy of the library that can be damaged, and programs that import it."""

    def __init__(self, folder: Path, forks: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.forks = forks
        self.kernels = folder / "understudy" / "kernels"
        ignored = shutil.ignore_patterns("*.nbi", "*.nbc", *UNFINISHED)  # what numba compiled
        shutil.copytree(Path(us.__file__).parent, folder / "understudy", ignore=ignored)
        self.places = {"HOME": str(folder / "home")}
        self.warnings = ""

    def run(self, code: str) -> Any:
        """What the program says; its warnings are kept."""
        said, warned = self.folder / "said", self.folder / "warned"
        program = [code, str(self.folder), self.places, str(said), str(warned)]
        assert self.forks.stdin is not None
        assert self.forks.stdout is not None
        print(json.dumps(program), file=self.forks.stdin, flush=True)
        ended = self.forks.stdout.readline()
        self.warnings = warned.read_text(encoding="utf-8")
        assert ended == "0\n", self.warnings[-3000:]
        return json.loads(said.read_text(encoding="utf-8"))

    def change(self, path: Path, old: str, new: str) -> None:
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path, forks: subprocess.Popen[str]) -> Copy:
    return Copy(tmp_path, forks)


COUNTING = """
import json, numpy as np
from understudy import kernels
counts, before = np.zeros(2, dtype=np.int64), np.empty(3, dtype=np.int64)
kernels.confidence.count_before(counts, np.array([0, 1, 0]), before)
print(json.dumps([before.tolist(), counts.tolist()]))
"""
COUNTED = [[0, 0, 1], [2, 1]]
FULL_DISK = """
import builtins, errno, numba.core.caching
def full(path, mode="r", *rest):
    if "w" in mode and {suffix!r} in str(path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))
    return builtins.open(path, mode, *rest)
numba.core.caching.open = full
"""


@needs_compiler
def test_without_any_place_for_the_cache(copy: Copy) -> None:
    """A warning says which variable to set, and everything else is as ever."""
    shutil.rmtree(copy.kernels / "__pycache__")
    (copy.kernels / "__pycache__").write_text("not a folder")
    nowhere = copy.folder / "file"
    nowhere.write_text("not a folder")
    copy.places = dict.fromkeys(PLACES, str(nowhere / "below"))
    assert copy.run(COUNTING) == COUNTED
    assert WARNING in copy.warnings
    assert REMEDY in copy.warnings


@needs_compiler
def test_with_a_full_disk(copy: Copy) -> None:
    """What cannot be saved is compiled at every start: a warning, and the same numbers."""
    assert copy.run(FULL_DISK.format(suffix="") + COUNTING) == COUNTED
    for said in (WARNING, "No space left on device", REMEDY):
        assert said in copy.warnings
    assert copy.run(COUNTING) == COUNTED
    assert copy.warnings == ""


@needs_compiler
def test_a_folder_that_is_gone_when_a_kernel_is_saved(copy: Copy) -> None:
    """The cache was there when the library was imported."""
    gone = """
import shutil, pathlib
from understudy import kernels
folder = pathlib.Path(kernels.confidence.count_before._cache.cache_path)
shutil.rmtree(folder)
folder.write_text("not a folder")
"""
    assert copy.run(gone + COUNTING) == COUNTED
    assert WARNING in copy.warnings


@needs_compiler
def test_a_disk_that_was_full_leaves_no_code_of_older_kernels(copy: Copy) -> None:
    """An index that could be saved does not name code that could not."""
    assert copy.run(COUNTING) == COUNTED
    copy.change(
        copy.kernels / "confidence.py", "counts[actions[t]] += 1", "counts[actions[t]] += 3"
    )
    changed = [[0, 0, 3], [6, 3]]
    assert copy.run(FULL_DISK.format(suffix=".nbc") + COUNTING) == changed
    assert copy.run(COUNTING) == changed


@needs_compiler
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_cache_is_compiled_again(copy: Copy, suffix: str) -> None:
    """A file that was cut short, by a crash say, costs time and not a run."""
    assert copy.run(COUNTING) == COUNTED
    files = list((copy.kernels / "__pycache__").glob(f"confidence.count_before*.{suffix}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:40])
    assert copy.run(COUNTING) == COUNTED


# Two kernels of different files, one of which calls the other: small, so that they compile fast.
CALLED = """
from understudy.kernels.compiler import compiled

@compiled
def weight(eta, gain):
    return eta * gain
"""
CALLING = """
from understudy.kernels.called import weight
from understudy.kernels.compiler import compiled

@compiled
def total(eta, gains):
    found = 0.0
    for gain in gains:
        found += weight(eta, gain)
    return found
"""
BOTH = """
import json, numpy as np
from understudy.kernels import calling
found = calling.total(0.5, np.array([1.0, 2.0]))
stats = calling.total.stats
print(json.dumps([found, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""


@needs_compiler
def test_code_is_kept_until_any_kernel_changes(copy: Copy) -> None:
    """The second start compiles nothing; a change of one file is seen by kernels of another."""
    called = copy.kernels / "called.py"
    called.write_text(CALLED)
    (copy.kernels / "calling.py").write_text(CALLING)
    assert copy.run(BOTH) == [1.5, 0, 1]
    assert copy.warnings == ""
    assert copy.run(BOTH) == [1.5, 1, 0]
    copy.change(called, "return eta * gain", "return 2.0 * eta * gain")
    assert copy.run(BOTH) == [3.0, 0, 1]


@needs_compiler
def test_a_change_in_a_users_own_file_is_seen(copy: Copy) -> None:
    """A compiled function outside of the library is compiled again when its number changes."""
    own = copy.folder / "own_adversary.py"
    own.write_text(
        "from understudy.kernels.compiler import compiled\n\n\n"
        "@compiled\ndef mean(t):\n    return 0.25 * t\n"
    )
    code = "import json, own_adversary; print(json.dumps(own_adversary.mean(2)))"
    assert copy.run(code) == 0.5
    copy.change(own, "0.25", "0.75")
    assert copy.run(code) == 1.5


# Compiled or not


EVERY_KERNEL = """
import json, numpy as np, understudy as us
from understudy import kernels
rng, numbers = np.random.default_rng(0), []
pi = us.behaviors.interpolated(n_actions=4, alpha=0.8)
log = us.Log(rng.choice(4, 90, p=pi), rng.random(90))
for learner in (us.exp3(pi, eta=9.0), us.prod(pi, eta=0.3), us.exp3_ix_unknown(4, eta=0.3)):
    state, trace = learner.replay(learner.init(), log)
    after, policies = learner.policies(state, log)
    later, earned = learner.expected_reward(after, log, rng.random((3, 4)), np.array([0, 7, 50]))
    numbers += [*trace.probability, *policies.ravel(), *learner.policy(after), earned]
    numbers += [*later.scores, later.reference, later.total]
    if learner.estimator.order_dependence is None:
        merged = learner.merge(state, after)
        numbers += [*learner.policy(merged), merged.total]
for V, shape in ((np.eye(3) / 2, (90, 4, 3)), (np.stack([np.eye(3) / 2] * 4), (90, 3))):
    features = rng.uniform(-1, 1, shape)
    unknown = {"dimension": 3, "feature_bound": 2.0, "eta": 0.1, "disjoint": len(shape) == 2}
    for linear in (
        us.lin_prod(V, n_actions=4, horizon=90, kappa=24.0),
        us.lin_prod_compact(V, n_actions=4, kappa=24.0),
        us.lin_prod_unknown(n_actions=4, **unknown),
    ):
        shown = us.Log(log.actions, log.rewards, None, features)
        after, policies = linear.policies(linear.init(), shown)
        numbers += [*policies.ravel(), *linear.policy(after, features[0])]
learners = {"exp3": us.exp3(pi, eta=0.3), "unknown": us.exp3_ix_unknown(4, eta=0.3)}
for adversary in (
    us.adversaries.switching(n_actions=4, rounds=90),
    us.adversaries.hiding(n_actions=4),
    us.adversaries.retaliating(n_actions=4),
):
    for rewards in ("mean", "realised"):
        game = us.Game(adversary, pi, rounds=90)
        result = us.simulate(game, learners, runs=2, comparators=[0, "best"], rewards=rewards)
        for name in learners:
            assert result.path[name] == "compiled"
            numbers += [*result.regret[name].ravel(), *result.behavior_reward[name]]
compiled = hasattr(kernels.games.play_runs, "py_func")
print(json.dumps([compiled, [float(number) for number in numbers]]))
"""


def test_every_kernel_is_the_same_without_the_compiler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same numbers to twelve digits, here and in a process of the other kind."""
    exec(EVERY_KERNEL, {})
    here_compiled, here = json.loads(capsys.readouterr().out)
    there_compiled, there = run(EVERY_KERNEL, NUMBA_DISABLE_JIT=str(int(here_compiled)), **KEPT)
    assert (here_compiled, there_compiled) == (not COMPILER_IS_OFF, COMPILER_IS_OFF)
    assert len(here) > 2000
    np.testing.assert_allclose(here, there, rtol=1e-12, atol=0)


LAZY = """
import json, sys, numpy as np
import understudy as us
known = ["numba" in sys.modules]
pi = us.behaviors.uniform(n_actions=3)
learners = [us.exp3(pi, eta=0.1), us.exp3_ix(pi, horizon=9), us.prod(pi, eta=0.1)]
learners += [us.exp3_ix_unknown(3, eta=0.1), us.lin_prod(np.eye(2), n_actions=3, eta=0.1, kappa=4)]
learners += [us.lin_prod_compact(np.eye(2), n_actions=3, kappa=4)]
learners += [us.lin_prod_unknown(n_actions=3, dimension=2, feature_bound=1, horizon=9)]
states = [learner.init() for learner in learners]
us.Game(us.adversaries.hiding(n_actions=3), pi, rounds=9)
us.Game(us.adversaries.switching(n_actions=3, rounds=9), pi, rounds=9)
known.append("numba" in sys.modules)
learners[0].replay(states[0], us.Log([0, 1], [1.0, 0.0]))
known.append("numba" in sys.modules)
print(json.dumps(known))
"""


def test_the_compiler_is_imported_when_it_is_needed() -> None:
    """Not by the library, nor by making learners and games: by the first replay."""
    assert run(LAZY, **KEPT) == [False, False, True]
