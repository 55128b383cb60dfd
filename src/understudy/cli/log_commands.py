"""`understudy learn`, `understudy coverage`, `understudy certify`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import understudy as us
from understudy.cli.common import FOLDER, check_writable, watched, wide_console

if TYPE_CHECKING:
    from understudy.report import Report

__all__ = ["certify", "coverage", "learn"]

Command = TypeVar("Command", bound=Callable[..., None])

FILE = click.Path(dir_okay=False, path_type=Path)
FORMATS = ("csv", "parquet", "ndjson", "arrow", "vw", "dsjson")
LEARNERS = (
    "coverage-adaptive",
    "exp3-ix",
    "prod",
    "exp3",
    "exp3-ix-unknown",
    "lin-prod-compact",
)
ENGINES = ("polars", "duckdb", "dask", "pyspark")
PRESETS = ("obd",)

SHARED = [
    click.argument("log", metavar="LOG...", nargs=-1, required=True),
    click.option("--action", metavar="COLUMN", help="Which action was played.  [default: action]"),
    click.option("--reward", metavar="COLUMN", help="What it earned.  [default: reward]"),
    click.option(
        "--propensity",
        metavar="COLUMN",
        help="The probability with which it was played.  [default: propensity]",
    ),
    click.option("--time", metavar="COLUMN", help="The order of rows; sorted if they are not."),
    click.option("--eligible", metavar="COLUMN", help="The actions that could have been played."),
    click.option("--preset", type=click.Choice(PRESETS), help="Columns of a well-known data set."),
    click.option("--format", type=click.Choice(FORMATS), help="If the names of files do not say."),
    click.option(
        "--reward-range",
        nargs=2,
        type=float,
        metavar="LOW HIGH",
        help="The smallest and largest reward possible.  [default: 0 1]",
    ),
    click.option("--actions", type=FILE, help="All actions, one label a line, or a JSON list."),
    click.option(
        "--behavior",
        metavar="logged|estimated|FILE",
        help="Where propensities come from.  [default: logged, if there is such a column]",
    ),
    click.option("--confidence", type=float, help="Of the certificate.  [default: 0.95]"),
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        help="Compute sums in no order: no curves; learn needs --horizon.",
    ),
    click.option("--json", "json_output", is_flag=True, help="Print JSON, not tables."),
]


def log_options(command: Command) -> Command:
    """The arguments that all three commands share."""
    for option in reversed(SHARED):
        command = option(command)
    return command


@click.command()
@click.option("--out", type=FOLDER, required=True, help="Folder for the results.")
@log_options
@click.option("--context", metavar="A,B,C", help="Columns of the context, numbers or categories.")
@click.option(
    "--learner", type=click.Choice(LEARNERS), help="Who learns.  [default: what suits the log]"
)
@click.option("--horizon", type=click.IntRange(min=1), help="Fix the rate for so many rows.")
@click.option(
    "--warmup", type=float, help="Rows that prepare contexts: a share, or how many.  [default: 0.1]"
)
@click.option("--strict", is_flag=True, help="A row that would be quarantined is an error.")
@click.option("--resume", is_flag=True, help="Go on from the policy in --out.")
@click.option("--overwrite", is_flag=True, help="Replace the policy in --out.")
def learn(
    log: tuple[str, ...],
    out: Path,
    context: str | None,
    resume: bool,
    json_output: bool,
    **options: Any,
) -> None:
    """Learn a policy from a log, and certify what it would have earned.

    LOG is one or more files, globs or folders: CSV, Parquet, NDJSON, Arrow, Vowpal
    Wabbit's contextual-bandit text (.vw), or dsjson. Written to --out: policy.json,
    report.html, and quarantine.parquet with every row that could not be used, and why.
    """
    check_writable(out)
    if resume and not (out / "policy.json").exists():
        raise click.UsageError(f"--resume: there is no policy.json in {out}; leave it out to begin")
    with watched() as watch:
        learned = us.logs.learn(
            list(log),
            out=out,
            context=_names(context),
            resume=out / "policy.json" if resume else None,
            watch=watch,
            **options,
        )
    _print(learned, json_output=json_output)
    if not json_output:
        click.echo(f"wrote policy.json, report.html and quarantine.parquet to {out}")


@click.command()
@log_options
@click.option(
    "--policy",
    "policies",
    metavar="FILE",
    multiple=True,
    help="A policy to ask about: policy.json, or probabilities by action. Repeatable.",
)
def coverage(
    log: tuple[str, ...], policies: tuple[str, ...], json_output: bool, **options: Any
) -> None:
    """Say what a log can tell, before anything is learned from it.

    Per action: how often it was played, what it earned, how well it is covered. Whether
    propensities agree with frequencies, whether the behavior drifts, and what the log
    can say about policies: uniform, the best action, and those named by --policy.
    """
    with watched() as watch:
        found = us.logs.coverage(list(log), policies=list(policies), watch=watch, **options)
    _print(found, json_output=json_output)


@click.command()
@log_options
@click.option(
    "--policy",
    metavar="FILE|uniform",
    help="What to certify: policy.json, probabilities by action, or the uniform policy.",
)
@click.option("--best-action", is_flag=True, help="Only the policy's most probable action.")
@click.option(
    "--target-probability",
    metavar="COLUMN",
    help="The probability of the logged action under a model of your own.",
)
@click.option("--strict", is_flag=True, help="A row that would be quarantined is an error.")
@click.option("--out", type=FOLDER, help="Folder for report.html and quarantine.parquet.")
def certify(
    log: tuple[str, ...],
    policy: str | None,
    out: Path | None,
    json_output: bool,
    **options: Any,
) -> None:
    """Certify a policy that stays as it is, on a log that it was not learned from.

    What is certified is --policy, or a model of your own whose probability of the
    logged action is a column: --target-probability. Printed: what it would have earned
    at least and at most, what production earned, the gain, and whether to promote it.
    """
    if out is not None:
        check_writable(out)
    with watched() as watch:
        found = us.logs.certify(list(log), policy, out=out, watch=watch, **options)
    _print(found, json_output=json_output)
    if out is not None and not json_output:
        click.echo(f"wrote report.html and quarantine.parquet to {out}")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _print(found: Any, *, json_output: bool) -> None:
    from understudy.logs.reporting import as_dict  # noqa: PLC0415 - only here
    from understudy.report import show  # noqa: PLC0415

    report: Report = found.report
    if json_output:
        click.echo(json.dumps(as_dict(report), allow_nan=False, ensure_ascii=False))
        return
    show(report, wide_console())
