"""Instructions per round, counted by callgrind: the same on a busy machine as on a quiet one.

    python -m benchmarks.instructions benchmarks/results/instructions.json

writes the counts that a test compares new ones with. Kernels are compiled for a generic processor,
so that the counts depend on the code and not on the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import understudy as us
from benchmarks.measurement import machine
from understudy.errors import MissingExtra
from understudy.snapshots import write_atomically

__all__ = ["WORKLOADS", "count", "require_callgrind"]

GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PYTHONHASHSEED": "0"}
MODULE = "benchmarks.instructions"
VERSIONS = ("python", "numpy", "numba")
K = 100
Work = Callable[[], object]


def replay() -> tuple[Work, int]:
    """Exp3-IX over a log, with its trace."""
    rounds = 100_000
    rng = np.random.default_rng(0)
    learner = us.exp3_ix(us.behaviors.uniform(n_actions=K), horizon=rounds)
    log = us.Log(rng.integers(K, size=rounds), rng.integers(2, size=rounds).astype(np.float64))
    return lambda: learner.replay(learner.init(), log), rounds


def game() -> tuple[Work, int]:
    """Exp3-IX in the paper's game."""
    rounds = 100_000
    pi_b = us.behaviors.uniform(n_actions=K)
    played = us.Game(us.adversaries.switching(n_actions=K, rounds=rounds), pi_b, rounds)
    learners = {"Exp3-IX": us.exp3_ix(pi_b, horizon=rounds)}
    return lambda: us.simulate(played, learners), rounds


def grid() -> tuple[Work, int]:
    """The adaptive learner without a horizon over a log with propensities, 26 levels."""
    rounds = 100_000
    rng = np.random.default_rng(0)
    learner = us.coverage_adaptive(us.Logged(K))
    rewards = rng.integers(2, size=rounds).astype(np.float64)
    log = us.Log(rng.integers(K, size=rounds), rewards, np.full(rounds, 1 / K))
    return lambda: learner.replay(learner.init(), log), rounds


def lin_prod() -> tuple[Work, int]:
    """LinProd over a log of 1 000 rounds, K = d = 10."""
    rounds, size = 1_000, 10
    rng = np.random.default_rng(0)
    features = rng.random((rounds, size, size))
    learner = us.lin_prod(np.eye(size), n_actions=size, eta=0.01, kappa=10.0)
    log = us.Log(rng.integers(size, size=rounds), rng.random(rounds), features=features)
    return lambda: learner.replay(learner.init(), log), rounds


WORKLOADS = {workload.__name__: workload for workload in (replay, game, grid, lin_prod)}


def require_callgrind() -> None:
    """Raise `MissingExtra` if valgrind is not installed."""
    if shutil.which("valgrind") is None or shutil.which("callgrind_control") is None:
        raise MissingExtra("counting instructions needs valgrind, which is not installed")


def count(name: str) -> float:
    """Instructions per round of a workload, once everything is compiled and loaded."""
    require_callgrind()
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **GENERIC, "NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-m", MODULE, "run", name]
        subprocess.run(command, check=True, env=environment, capture_output=True)  # compiles
        callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        done = subprocess.run(
            [*callgrind, "--callgrind-out-file=/dev/null", *command, "counted"],
            check=True,
            env=environment,
            capture_output=True,
            text=True,
        )
    (line,) = (line for line in done.stderr.splitlines() if "I   refs:" in line)
    return int(line.rpartition(":")[2].replace(",", "")) / WORKLOADS[name]()[1]


def run(name: str, *, counted: bool) -> None:
    """Run a workload twice; the first call compiles, and callgrind counts the second."""
    work, _ = WORKLOADS[name]()
    work()
    if counted:
        _instrument("on")
        work()
        _instrument("off")


def _instrument(switch: str) -> None:
    control = ["callgrind_control", f"--instr={switch}", str(os.getpid())]
    subprocess.run(control, check=True, capture_output=True)


def main(arguments: list[str]) -> None:
    """`run NAME [counted]` runs a workload; a path alone is the file for all counts."""
    if arguments[:1] == ["run"]:
        run(arguments[1], counted="counted" in arguments[2:])
        return
    counts = {name: round(count(name), 1) for name in WORKLOADS}
    found = machine()
    result = {
        "unit": "instructions per round",
        "versions": {name: found[name] for name in VERSIONS},
        "counts": counts,
    }
    write_atomically(Path(arguments[0]), (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
