"""Disks that are small, and full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ["fill_up", "small_disk"]


def fill_up(path: Path) -> None:
    """Write until not a byte is left."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        pytest.skip("only an administrator can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
