"""`understudy learn`, `understudy coverage`, `understudy certify`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import understudy as us
from understudy.cli import FOLDER, check_writable, show_progress, wide_console

if TYPE_CHECKING:
    from understudy.report import Report

# Exit codes of --gate by outcome. 1 is a crash, and 2 bad input, so that neither seems a decision.
UNDECIDED = 3
GATE_CODES = {"promote": 0, "worse": 4, "guardrail broken": 4}
FILE = click.Path(dir_okay=False, path_type=Path)


def _split_names(_context: click.Context, _option: click.Parameter, text: str | None) -> Any:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _none_if_empty(_context: click.Context, _option: click.Parameter, values: Any) -> Any:
    return list(values) or None


CLICK_TYPES: dict[str, dict[str, Any]] = {  # by the kind of a declared option
    "text": {},
    "names": {"callback": _split_names},
    "file": {"type": FILE},
    "number": {"type": float},
    "range": {"type": float, "nargs": 2},
    "count": {"type": int},
    "flag": {"is_flag": True, "default": None},
    "several": {"multiple": True, "callback": _none_if_empty},
}


class LogCommand(click.Command):
    """A command with the options that `logs.options` declares.

    They are imported when needed: `understudy --help` and other commands do not wait for them.
    """

    declared = "LogOptions"

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        log = click.Argument(["log"], metavar="LOG...", nargs=-1, required=True)
        as_json = click.Option(
            ["--json", "json_output"], is_flag=True, help="Print JSON, not tables."
        )
        return [log, *self._declared_options, as_json, *super().get_params(ctx)]

    @functools.cached_property
    def _declared_options(self) -> list[click.Parameter]:
        from understudy.logs import options  # noqa: PLC0415 - only here

        found: list[click.Parameter] = []
        for name, option in options.declared_options(getattr(options, self.declared)):
            how = (
                {"type": click.Choice(option.choices)}
                if option.choices
                else CLICK_TYPES[option.kind]
            )
            flag = "--" + name.replace("_", "-")
            found.append(click.Option([flag], metavar=option.metavar, help=option.help, **how))
        return found


class CertifyCommand(LogCommand):
    """A `LogCommand` with the options of `certify`."""

    declared = "QuestionOptions"


class LearnCommand(LogCommand):
    """A `LogCommand` with the options of `learn`."""

    declared = "LearnOptions"


@click.command(cls=LearnCommand)
@click.option("--out", type=FOLDER, required=True, help="Folder for the results.")
@click.option("--strict", is_flag=True, help="A row that would be quarantined is an error.")
@click.option("--resume", is_flag=True, help="Go on from the policy in --out.")
@click.option("--overwrite", is_flag=True, help="Replace the policy in --out.")
def learn(
    log: tuple[str, ...],
    out: Path,
    resume: bool,
    json_output: bool,
    **options: Any,
) -> None:
    """Learn a policy from a log, and certify what it would have earned.

    LOG is one or more files, globs or folders: CSV, Parquet, NDJSON, Arrow, Vowpal
    Wabbit's contextual-bandit text (.vw), or dsjson. Written to --out: policy.json,
    report.html, and quarantine.parquet with every row that could not be used, and why;
    with --unit also units.parquet, which belongs to policy.json.
    """
    check_writable(out)
    if resume and not (out / "policy.json").exists():
        raise click.UsageError(f"--resume: there is no policy.json in {out}; leave it out to begin")
    with show_progress() as watch:
        result = us.logs.learn(
            list(log),
            out=out,
            resume=out / "policy.json" if resume else None,
            watch=watch,
            **options,
        )
    _print_report(result, json_output=json_output)
    if not json_output:
        units = "" if result.policy.units is None else ", units.parquet"
        click.echo(f"wrote policy.json{units}, report.html and quarantine.parquet to {out}")


@click.command(cls=LogCommand)
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
    with show_progress() as watch:
        result = us.logs.coverage(list(log), policies=list(policies), watch=watch, **options)
    _print_report(result, json_output=json_output)


@click.command(cls=CertifyCommand)
@click.option(
    "--policy",
    "policies",
    metavar="FILE|uniform",
    multiple=True,
    help="What to certify: policy.json, probabilities by action, or the uniform policy. "
    "Repeatable: then all decisions hold together.",
)
@click.option("--best-action", is_flag=True, help="Only the policy's most probable action.")
@click.option(
    "--target-probability",
    metavar="COLUMN",
    help="The probability of the logged action under a model of your own.",
)
@click.option("--strict", is_flag=True, help="A row that would be quarantined is an error.")
@click.option("--out", type=FOLDER, help="Folder for report.html and quarantine.parquet.")
@click.option("--gate", is_flag=True, help="Exit with 0 for promote, 3 for undecided, 4 for worse.")
def certify(
    log: tuple[str, ...],
    policies: tuple[str, ...],
    out: Path | None,
    *,
    gate: bool,
    json_output: bool,
    **options: Any,
) -> int:
    """Certify a policy that stays as it is, on a log that it was not learned from.

    What is certified is --policy, or a model of your own whose probability of the
    logged action is a column: --target-probability. Printed: what it would have earned
    at least and at most, what production earned, the gain, and whether to promote it.

    With --gate the exit code is the decision, for a pipeline to stand on: 0 promote; 3 not
    decided, or not decidable; 4 worse, or a guardrail broken. As ever, 1 is a crash, and
    2 bad input.
    """
    if out is not None:
        check_writable(out)
    with show_progress() as watch:
        result = us.logs.certify(list(log), list(policies), out=out, watch=watch, **options)
    _print_report(result, json_output=json_output)
    if out is not None and not json_output:
        click.echo(f"wrote report.html and quarantine.parquet to {out}")
    return GATE_CODES.get(result.outcome.value, UNDECIDED) if gate else 0


def _print_report(result: Any, *, json_output: bool) -> None:
    from understudy.report import as_dict, show  # noqa: PLC0415 - only here

    report: Report = result.report
    if json_output:
        click.echo(json.dumps(as_dict(report), allow_nan=False, ensure_ascii=False))
    else:
        show(report, wide_console())
