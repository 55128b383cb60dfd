"""What all commands share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console

__all__ = ["FOLDER", "POSITIVE", "check_writable", "wide_console"]

NARROWEST = 80  # a narrower table would cut numbers off
POSITIVE = click.IntRange(min=1)
FOLDER = click.Path(file_okay=False, path_type=Path)


def wide_console() -> Console:
    """Standard output, never so narrow that a table loses digits.

    >>> wide_console().width >= NARROWEST
    True
    """
    return Console(width=max(Console().width, NARROWEST))


def check_writable(out: Path) -> None:
    """Say now, not after the work, that the results cannot be written."""
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise click.ClickException(
            f"--out {out}: {nearest} cannot be written to ({error.strerror}); choose another folder"
        ) from None
