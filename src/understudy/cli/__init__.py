"""The command line: `learn`, `coverage`, `certify`, `serve` and its company, `paper`, `bench`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from understudy import __version__
from understudy.cli.common import silence_native_stderr
from understudy.errors import UnderstudyError

__all__ = ["main"]

BAD_INPUT = 2
INTERRUPTED = 130
MODULES = {
    "log_commands": ("certify", "coverage", "learn"),
    "service_commands": ("audit", "export", "serve", "token"),
    "paper": ("paper",),
    "bench": ("bench",),
}
COMMANDS = {command: module for module, commands in MODULES.items() for command in commands}


class LazyGroup(click.Group):
    """The commands, each imported when it is used: `learn` does not wait for the experiments."""

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
@click.version_option(__version__, prog_name="understudy")
def app() -> None:
    """Online learning from off-policy feedback, with guarantees."""


def main() -> None:
    """Run the command line: one clear line and exit code 2 for bad input."""
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
