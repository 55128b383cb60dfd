"""The command line: `learn`, `coverage`, `certify`, `serve` and its company, `paper`, `bench`."""

from __future__ import annotations

import sys

import click

from understudy import __version__
from understudy.cli.bench import bench
from understudy.cli.common import silence_native_stderr
from understudy.cli.log_commands import certify, coverage, learn
from understudy.cli.paper import paper
from understudy.cli.service_commands import audit, export, serve, token
from understudy.errors import UnderstudyError

__all__ = ["main"]

BAD_INPUT = 2
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="understudy")
def app() -> None:
    """Online learning from off-policy feedback, with guarantees."""


for command in (learn, coverage, certify, serve, audit, export, token, paper, bench):
    app.add_command(command)


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
