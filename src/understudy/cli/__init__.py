"""The command line `understudy`, and what its commands share; they are in modules beside it."""

from __future__ import annotations

import importlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from understudy.errors import UnderstudyError

__all__ = ["main"]

BAD_INPUT = 2
INTERRUPTED = 130
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
NARROWEST = 80  # a narrower table would cut numbers off
POSITIVE = click.IntRange(min=1)
FOLDER = click.Path(file_okay=False, path_type=Path)
MODULES = {
    "log_commands": ("certify", "coverage", "learn"),
    "service_commands": ("audit", "clock", "export", "serve", "token"),
    "paper": ("paper",),
    "plan": ("plan",),
    "bench": ("bench",),
}
COMMANDS = {command: module for module, commands in MODULES.items() for command in commands}


class LazyGroup(click.Group):
    """A group that imports a command when it is used: `learn` does not wait for experiments."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - always the same
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module: Any = importlib.import_module(f"understudy.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="understudy", prog_name="understudy")
def app() -> None:
    """Online learning from off-policy feedback, with guarantees."""


def main() -> None:
    """Run the command line; bad input ends it with one line and exit code 2."""
    open_standard_streams()
    try:
        with silence_native_stderr():
            status = app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(BAD_INPUT)
    except click.ClickException as error:
        _fail(error.format_message())
    except UnderstudyError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'file system'}: {error.strerror or error}")
    except (click.Abort, KeyboardInterrupt):
        click.echo("understudy: stopped", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> None:
    click.echo(f"understudy: {' '.join(message.split())}", err=True)
    sys.exit(BAD_INPUT)


class LenientFile(io.FileIO):
    """A file that loses what cannot be written to it: a full disk must not end a command."""

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            super().write(data)
        return len(data)


def lenient_text(descriptor: int) -> io.TextIOWrapper:
    """Return a text file on a descriptor, to which writing never fails."""
    raw = LenientFile(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), errors="backslashreplace", line_buffering=True)


def open_standard_streams() -> None:
    """Let closed standard streams lead nowhere, and writing to standard error never fail."""
    while (unused := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        pass  # else the next open file, such as a store, would become standard error
    os.close(unused)
    sys.stdout = sys.stdout or lenient_text(STANDARD_OUTPUT)
    if sys.stderr is None or _is_standard_error():
        sys.stderr = lenient_text(STANDARD_ERROR)


def wide_console() -> Console:
    """Return a console for standard output that is wide enough for tables."""
    return Console(width=max(Console().width, NARROWEST))


def check_writable(out: Path) -> None:
    """Raise an error before the work starts if its results cannot be written."""
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise click.ClickException(
            f"--out {out}: {nearest} cannot be written to ({error.strerror}); choose another folder"
        ) from None


@contextmanager
def silence_native_stderr() -> Iterator[None]:
    """Drop what native libraries write to standard error, which may be pages about one bad file.

    Messages of Python still arrive.
    """
    sys.stderr.flush()
    kept = os.dup(STANDARD_ERROR)
    with ExitStack() as stack:
        stack.callback(os.close, kept)
        if _is_standard_error():
            ours = stack.enter_context(lenient_text(kept))
            stack.enter_context(redirect_stderr(ours))
        nowhere = stack.enter_context(Path(os.devnull).open("wb"))
        os.dup2(nowhere.fileno(), STANDARD_ERROR)
        stack.callback(os.dup2, kept, STANDARD_ERROR)
        yield


def _is_standard_error() -> bool:
    try:
        return sys.stderr.fileno() == STANDARD_ERROR
    except io.UnsupportedOperation:  # a test or a notebook keeps what is said in memory
        return False


@contextmanager
def show_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a progress callback; on a terminal it shows a bar, the rows and their speed."""
    from rich.progress import (  # noqa: PLC0415 - only here
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
    )
    from rich.text import Text  # noqa: PLC0415

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")

    console = Console(stderr=True)
    if not console.is_interactive:  # standard error is then for errors
        yield lambda _phase, _rows, _expected: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        Speed(),
    )
    bar = Progress(*columns, console=console)
    tasks: dict[str, Any] = {}

    def watch(phase: str, rows: int, expected: int | None) -> None:
        bar.start()
        if phase not in tasks:
            tasks[phase] = bar.add_task(phase, total=expected)
        bar.update(tasks[phase], advance=rows)

    try:
        yield watch
        for task in bar.tasks:
            bar.update(task.id, total=task.completed)
    finally:
        bar.stop()
