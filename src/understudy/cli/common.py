"""What all commands share."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path

import click
from rich.console import Console

__all__ = ["FOLDER", "POSITIVE", "check_writable", "own_words", "wide_console"]

STANDARD_ERROR = 2
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


@contextmanager
def own_words() -> Iterator[None]:
    """Standard error for what Python says: native readers fill pages over a damaged file.

    >>> with own_words():
    ...     _ = os.write(STANDARD_ERROR, b"a page")
    """
    sys.stderr.flush()
    kept = os.dup(STANDARD_ERROR)
    with ExitStack() as stack:
        stack.callback(os.close, kept)
        if _is_standard_error():
            ours = stack.enter_context(os.fdopen(kept, "w", buffering=1, closefd=False))
            stack.enter_context(redirect_stderr(ours))
        nowhere = stack.enter_context(Path(os.devnull).open("wb"))
        os.dup2(nowhere.fileno(), STANDARD_ERROR)
        stack.callback(os.dup2, kept, STANDARD_ERROR)
        yield


def _is_standard_error() -> bool:
    try:
        return sys.stderr.fileno() == STANDARD_ERROR
    except io.UnsupportedOperation:  # somebody catches what is said, in memory
        return False
