"""Understudy as others see it: its command line, its files, its service as a process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from .compare import INPUTS

__all__ = ["Said", "first_rules", "learned", "named", "placed", "rows_of", "run", "served"]

PATIENCE = 60.0  # seconds until a service that does not start is a failure
LISTENING = "listening on "


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed."""

    code: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.error
        return json.loads(self.out)


def first_rules(patch: pytest.MonkeyPatch) -> None:
    """Learn and certify by the rules of 0.5.0: V comes from plays, the curvature of LinProd is 1,

    and bets have no centers.
    """
    from understudy.certificates import Certificate  # noqa: PLC0415 - the inside, once more
    from understudy.logs.aggregation.sufficient_statistics import certify_sums  # noqa: PLC0415
    from understudy.logs.features import LearnerFactory  # noqa: PLC0415
    from understudy.logs.runs.study import Study  # noqa: PLC0415

    patch.setattr(LearnerFactory, "covariance", LearnerFactory.played_covariance)
    patch.setattr(LearnerFactory, "curvature", 1.0)
    patch.setitem(Study.begin.__kwdefaults__ or {}, "rules", 1)
    made = Certificate.__init__

    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **{"rules": 1} | named)

    patch.setattr(Certificate, "__init__", begin)
    patch.setitem(certify_sums.__kwdefaults__ or {}, "rules", 1)


def run(*arguments: str | Path, folder: Path = INPUTS) -> Said:
    """`understudy …` in this process, as if typed in `folder`."""
    from understudy.cli import main  # noqa: PLC0415 - a name of the inside

    out, error, code, before = io.StringIO(), io.StringIO(), 0, sys.argv
    sys.argv = ["understudy", *map(str, arguments)]
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
        ):
            main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), error.getvalue())


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that Understudy wrote: Parquet or NDJSON."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path).to_dicts()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def learned(out: Path, arguments: tuple[str, ...]) -> dict[str, Any]:
    """What `learn` printed and wrote, but for policy.json."""
    printed = run("learn", *arguments, "--out", out, "--json").json
    return {"printed": printed, "quarantine": rows_of(out / "quarantine.parquet")}


def named(arguments: tuple[str, ...]) -> list[str]:
    """The arguments with the policy.json that `@name` stands for."""
    return [
        f"../expected/learn/{one[1:]}/policy.json" if one.startswith("@") else one
        for one in arguments
    ]


def placed(arguments: tuple[str, ...], folder: Path) -> list[str]:
    """The arguments with folders in place of OUT and NEW."""
    return [
        one.replace("OUT", str(folder / "out")).replace("NEW", str(folder / "new"))
        for one in arguments
    ]


@contextlib.contextmanager
def served(store: Path, program: tuple[str, ...] = ("-m", "understudy")) -> Iterator[str]:
    """`understudy serve` on a store as a process of its own: its address, until the block ends."""
    arguments = ("serve", "--store", str(store), "--port", "0")
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            (sys.executable, *program, *arguments), stdin=subprocess.DEVNULL, stderr=said
        )
        try:
            yield _address(process, said.fileno())
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE)


def _address(process: subprocess.Popen[bytes], said: int) -> str:
    deadline = time.monotonic() + PATIENCE
    while True:
        words = os.pread(said, 1 << 16, 0).decode()
        if LISTENING in words:
            return words.partition(LISTENING)[2].split()[0]
        assert process.poll() is None, words
        assert time.monotonic() < deadline, words
        time.sleep(0.01)
