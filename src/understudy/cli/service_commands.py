"""The commands of the live service: `understudy serve`, `audit`, `export`, `token`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy import errors
from understudy.cli import INTERRUPTED, show_progress, wide_console

if TYPE_CHECKING:
    from understudy.live.decision_log import AuditResult

STORE = click.option(
    "--store",
    default="understudy.db",
    show_default=True,
    metavar="FILE|postgresql://…",
    help="Where studies and their events are stored.",
)
FAILED = 1
MICROSECOND = 1_000  # nanoseconds


@click.command()
@STORE
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True)
def serve(store: str, host: str, port: int) -> None:
    """Learn beside production, live: a service with a page, until it is stopped.

    Nothing has to be set up: events are kept in one file. The page is at
    http://127.0.0.1:8642/, the API at /docs. Another address than this
    machine's own needs a token first: understudy token add NAME --scope write.
    """
    with _ended_by_sigint(), _live_store(store):
        from understudy.live.web.server import serve as run  # noqa: PLC0415 - only here

        run(store, host, port)


@click.command()
@STORE
@click.option("--json", "json_output", is_flag=True, help="Print JSON, not a table.")
def audit(store: str, json_output: bool) -> int:
    """Process every study's events again, and compare with its snapshot, bit for bit.

    The exit code is 1 if something differs. The service may be running.
    """
    with (
        _live_store(store) as stores,
        closing(stores.open_reader(store)) as reader,
        show_progress() as watch,
    ):
        from understudy.live.decision_log import audit as run  # noqa: PLC0415 - only here

        results = run(reader, watch)
    if json_output:
        rows = [
            {
                "study": result.study,
                "decisions": result.decisions,
                "folded": result.processed,  # its name in JSON since 0.5.0
                "faults": result.faults,
                "passed": result.passed,
            }
            for result in results
        ]
        click.echo(json.dumps(rows))
    else:
        _print_audit(results)
    return 0 if all(result.passed for result in results) else FAILED


def _print_audit(results: list[AuditResult]) -> None:
    from rich.table import Table  # noqa: PLC0415 - only here

    table = Table("study", "decisions", "compared up to", "found")
    for result in results:
        faults = "\n".join(result.faults) or ("equal" if result.processed else "nothing kept yet")
        table.add_row(result.study, f"{result.decisions:,}", f"{result.processed:,}", faults)
    wide_console().print(table)


@click.command()
@click.argument("study")
@STORE
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="A file that ends in .parquet or .ndjson.",
)
def export(study: str, store: str, out: Path) -> None:
    """Write the processed decisions of a study as a log, in order.

    `understudy learn` on it gives the state of the study, bit for bit.
    """
    with _live_store(store) as stores, closing(stores.open_reader(store)) as reader:
        from understudy.live import decision_log  # noqa: PLC0415 - only here

        record = decision_log.study_named(reader, study)
        now = max(time.time_ns() // MICROSECOND, reader.clock())
        with show_progress() as watch:
            rows = decision_log.export(reader, record, out, now, watch)
    click.echo(f"wrote {rows:,} decisions to {out}")
    if record.base is not None:
        click.echo("the study goes on from a policy.json: what that was learned from is not in it")


@click.group()
def token() -> None:
    """Tokens of a service; without any, it serves its own machine only."""


@token.command("add")
@click.argument("name")
@click.option("--scope", type=click.Choice(["read", "write"]), required=True)
@click.option("--replace", is_flag=True, help="Replace the token of this name.")
@STORE
def add(name: str, scope: Any, replace: bool, store: str) -> None:
    """Create a token, and print it once."""
    with _live_store(store) as stores, closing(stores.open_tokens(store)) as tokens:
        from understudy.live.web.tokens import digest_of, new_token  # noqa: PLC0415 - only here

        if not replace and any(record.name == name for record in tokens.tokens()):
            raise errors.InvalidArgument(
                "name",
                name,
                "there is a token of this name, and its holder would be shut out",
                "choose another name, or pass --replace",
            )
        made = new_token()
        tokens.add_token(name, digest_of(made), scope, time.time_ns() // MICROSECOND)
    click.echo(made)


@token.command("remove")
@click.argument("name")
@STORE
def remove(name: str, store: str) -> None:
    """Remove a token; a running service notices within seconds."""
    with _live_store(store) as stores, closing(stores.open_tokens(store)) as tokens:
        there = tokens.remove_token(name)
        left = len(tokens.tokens())
    if not there:
        raise click.ClickException(f"there is no token {name!r}; understudy token list names them")
    none = "there is none left: without tokens, a service answers its own machine only"
    click.echo(f"removed; {f'{left} left' if left else none}")


@token.command("list")
@STORE
def list_tokens(store: str) -> None:
    """List the tokens by name; the store keeps only their hashes."""
    with _live_store(store) as stores, closing(stores.open_reader(store)) as reader:
        for record in reader.tokens():
            click.echo(f"{record.name}\t{record.scope}")


@contextmanager
def _ended_by_sigint() -> Iterator[None]:
    """Let SIGINT end the process until the service handles it: an import may lose an exception.

    Polars, when imported, replaces the system's own action and calls a handler of Python.
    """
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGINT, before)
        raise


@contextmanager
def _live_store(store: str) -> Iterator[Any]:
    """Yield `live.store`, if its extra is installed; add the store's name to errors about it."""
    with errors.require_extra("live", "the live service"):
        import understudy.live.web.server  # noqa: F401, PLC0415
    from understudy.live import store as stores  # noqa: PLC0415 - only here

    try:
        yield stores
    except errors.StoreInUse:
        raise
    except errors.StoreUnavailable as error:
        name = stores.hide_credentials(store)
        raise errors.StoreUnavailable(f"store = {name!r}: {error}") from None
