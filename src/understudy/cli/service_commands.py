"""The commands of the live service: `understudy serve`, `audit`, `export`, `clock`, `token`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from understudy import errors
from understudy.cli import INTERRUPTED, show_progress, wide_console

if TYPE_CHECKING:
    from understudy.live.decision_log import AuditResult

PASSWORD_SHOWN = (
    "understudy: the command line showed the password of the store to other users of this machine; "
    "set it in PGPASSFILE or PGPASSWORD, or the whole URL in UNDERSTUDY_STORE"
)


def _hide_url(context: click.Context, option: click.Parameter, store: str) -> str:
    """Hide a URL of the command line from the process list, and warn of a password in it."""
    source = context.get_parameter_source(option.name or "")
    if "://" in store and source is ParameterSource.COMMANDLINE:
        with suppress(ImportError):  # of the live extra; without it, the command ends soon
            from setproctitle import getproctitle, setproctitle  # noqa: PLC0415 - only here

            setproctitle(getproctitle().replace(store, "…"))
        if "password=" in store or ":" in store.partition("://")[2].rpartition("@")[0]:
            click.echo(PASSWORD_SHOWN, err=True)
    return store


STORE = click.option(
    "--store",
    default="understudy.db",
    show_default=True,
    envvar="UNDERSTUDY_STORE",
    show_envvar=True,
    callback=_hide_url,
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
@click.option("--accept-loss", is_flag=True, help="Accept, for good, that writes are missing.")
def audit(store: str, json_output: bool, accept_loss: bool) -> int:
    """Process every study's events again, and compare with its snapshot, bit for bit.

    The exit code is 1 if something differs, or if acknowledged writes are
    missing. Numbers that another machine rounded otherwise are counted, and
    are no difference. The service may be running.
    """
    if accept_loss:
        with _live_store(store) as stores, closing(stores.open_tokens(store, create=False)) as kept:
            if lost := kept.accept_loss():
                click.echo(f"accepted: {lost:,} acknowledged writes are missing", err=True)
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
                "rounded": result.rounded,
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
        name = "(the store)" if result.study is None else result.study
        found = "\n".join(result.faults) or ("equal" if result.processed else "nothing kept yet")
        if result.rounded:
            found += f", but {result.rounded:,} numbers were rounded otherwise (by another machine)"
        table.add_row(name, f"{result.decisions:,}", f"{result.processed:,}", found)
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
        with show_progress() as watch:
            rows = decision_log.export(reader, record, out, reader.clock(), watch)
    click.echo(f"wrote {rows:,} decisions to {out}")
    if record.base is not None:
        click.echo("the study continues a policy.json, whose own rows are not in this log")


@click.command()
@STORE
@click.option(
    "--set-back",
    is_flag=True,
    help="Set the store's clock to the machine's; stop the service first.",
)
def clock(store: str, set_back: bool) -> None:
    """Show the clock of a store beside the machine's.

    The store's clock never goes back by itself, so one wrong time of the machine
    stays in it. The service still measures waits, but writes wrong times.
    --set-back changes times that lie in the future to the present. Decisions
    keep their order, and a wait that is over stays over.
    """
    with _live_store(store) as stores:
        from understudy.live import clock as clocks  # noqa: PLC0415 - only here

        with closing(stores.open_reader(store)) as reader:
            found = clocks.Clocks(reader.clock(), clocks.machine_time())
        if set_back:
            with closing(stores.open_store(store)) as writer:
                writer.open()
                clocks.set_back(writer, found.machine)
    side = "ahead" if found.ahead > 0 else "behind"
    click.echo(f"store    {clocks.shown(found.kept)}, {abs(found.ahead):,.0f} s {side}")
    click.echo(f"machine  {clocks.shown(found.machine)}")
    if set_back:
        click.echo("the store's clock was set back to the machine's")


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
    with (
        _live_store(store) as stores,
        closing(stores.open_tokens(store, create=False)) as tokens,
    ):
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
    """Yield `live.store`, if its extra is installed; add the store's name to errors about it.

    Rows that another program has changed fail where they are used, with any of Python's errors.
    """
    with errors.require_extra("live", "the live service"):
        import understudy.live.web.server  # noqa: F401, PLC0415
    from understudy.live import store as stores  # noqa: PLC0415 - only here

    try:
        yield stores
    except (errors.StoreInUse, errors.InvalidArgument):
        raise
    except (errors.StoreUnavailable, ValueError, TypeError, LookupError) as error:
        name, reason = stores.hide_credentials(store), str(error)
        if not isinstance(error, errors.StoreUnavailable):
            reason = (
                f"its content cannot be read ({type(error).__name__}: {errors.first_line(error)})"
            )
        raise errors.StoreUnavailable(f"store = {name!r}: {reason}") from error
