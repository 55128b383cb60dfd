"""The command line in this process, and all that it leaves behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from understudy import cli

__all__ = ["COMMANDS", "Place", "Run", "Said", "place", "understudy", "use_progress_bar"]

COMMANDS = ("learn", "coverage", "certify")


Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    error: str


@dataclass(frozen=True, eq=False)
class Place:
    """A folder with logs, an empty current folder, and a folder for temporary files."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    @property
    def out(self) -> Path:
        return self.root / "results" / "out"

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.root / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def run(self, command: str, *arguments: str | Path) -> Said:
        """As a person types it; what native code writes is seen too."""
        self.capfd.readouterr()
        self.monkeypatch.setattr(sys, "argv", ["understudy", command, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = self.capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, said.out, said.err)

    def run_on(self, command: str, log: str | Path, *arguments: str | Path) -> Said:
        """With what the command needs beside a log."""
        needed: dict[str, list[str | Path]] = {
            "learn": ["--out", self.out],
            "certify": ["--policy", "uniform"],
        }
        return self.run(command, log, *needed.get(command, []), *arguments)

    def refused(self, command: str, log: str | Path, *arguments: str | Path) -> str:
        """The one line of a command that must fail, and change nothing."""
        before = self.files()
        said = self.run_on(command, log, *arguments)
        assert said.code == 2, (said.out, said.error)
        assert said.error.startswith("understudy: "), said.error
        assert said.error.endswith("\n")
        assert said.error.count("\n") == 1, said.error
        assert len(said.error) < 2_500
        assert not said.out
        assert self.files() == before
        return said.error

    def files(self) -> dict[str, bytes | None]:
        """All that is anywhere below, with its content."""
        return {
            str(path): path.read_bytes() if path.is_file() else None
            for path in self.root.rglob("*")
        }


@pytest.fixture
def understudy(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command `understudy` in this process: a process of its own imports for a second."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        command = ["understudy", *arguments]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(command, ended.value.code, said.out, said.err)

    return run


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Place:
    for name in ("logs", "current", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return Place(tmp_path, monkeypatch, capfd)


def use_progress_bar(watched: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """Let this bar of progress, instead of the terminal's, watch the commands about logs."""
    patch.setattr("understudy.cli.log_commands.show_progress", watched)
