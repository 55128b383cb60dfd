"""`understudy plan`: how long a log must become, before any of it is collected."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

import understudy as us
from understudy.cli import FOLDER, POSITIVE, check_writable, wide_console
from understudy.errors import InvalidArgument, first_line
from understudy.formatting import number, percent, rough_count

if TYPE_CHECKING:
    from understudy.simulation import Plan

CHANCES = (0.1, 0.25, 0.5, 0.75, 0.9)  # the rows of the table
PATIENCE = 1.0  # seconds before a bar is drawn
NUMBERS = "a list such as 0.8,0.1,0.1, or a file"
GUARDRAIL = "NAME:LOW:HIGH:BETTER:MARGIN:MEAN[:DEVIATION[:EFFECT]]"
FEWEST_PARTS, MOST_PARTS = 6, 8


@click.command()
@click.option("--actions", type=click.IntRange(min=2), help="How many actions there are.")
@click.option("--traffic", type=float, help="Rows per day. Without it the plan counts rows.")
@click.option(
    "--exploration",
    type=float,
    metavar="SHARE",
    help="The share of rows in which production draws any action; else it plays action 0.",
)
@click.option("--production", metavar="SHARES", help=f"Or its share of each action: {NUMBERS}.")
@click.option("--reward", type=float, help="Production's mean reward in [0, 1], such as 0.02.")
@click.option("--gain", type=float, help="The smallest gain a row that matters, such as 0.003.")
@click.option("--best", type=int, help="The better action.  [the one that is played least]")
@click.option(
    "--against",
    type=click.Choice(["production", "action"]),
    default="production",
    show_default=True,
    help="The gain is over production's mixture, or over its most frequent action.",
)
@click.option(
    "--means", metavar="MEANS", help=f"In place of --reward and --gain, all means: {NUMBERS}."
)
@click.option("--policy", metavar="SHARES", help=f"A policy to certify, with --means: {NUMBERS}.")
@click.option(
    "--learner",
    type=click.Choice(["prod-grid", "exp3-ix"]),
    help="Certify a learner while it learns.",
)
@click.option("--horizon", type=POSITIVE, help="The number of rows that exp3-ix is made for.")
@click.option(
    "--guardrail",
    "guardrails",
    metavar=GUARDRAIL,
    multiple=True,
    help="A metric that may not become worse by more than a margin, such as "
    "latency_ms:0:2000:lower:20:120:80. Without a deviation it is a rate. Repeatable.",
)
@click.option("--confidence", type=float, default=0.95, show_default=True)
@click.option("--runs", type=POSITIVE, default=400, show_default=True, help="Simulated logs.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--longest", type=POSITIVE, help="The most rows to simulate.")
@click.option("--out", type=FOLDER, help="Folder for power.png, power.svg and power.csv.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON, not a table.")
def plan(out: Path | None, json_output: bool, **options: Any) -> None:
    """Plan a log: the days until a verdict, with 50 % and 90 % power.

    The log is simulated many times, and certified as `understudy certify` does:
    actions, traffic, how production explores, its mean reward and the smallest gain
    that matters are enough. For instance, three e-mails, 2,000 sends a day, clicks of
    2 %, and a gain of 0.3 points:

    \b
    understudy plan --actions 3 --traffic 2000 --exploration 0.1 --reward 0.02 --gain 0.003

    Files hold a JSON list or object by action, or CSV lines of action and number.
    """
    if out is not None:
        from understudy.plots import require_matplotlib  # noqa: PLC0415 - only here

        require_matplotlib()
        check_writable(out)
    rows = {name: options.pop(name) for name in ("production", "means", "policy")}
    guardrails = [parse_guardrail(text) for text in options.pop("guardrails")]
    with late_bar(options["runs"]) as progress:
        found = us.plan(**options, **read_rows(rows), guardrails=guardrails, progress=progress)
    written = [] if out is None else write(found, out)
    if json_output:
        click.echo(json.dumps(as_dict(found), allow_nan=False))
        return
    show(found, wide_console())
    if written:
        click.echo("wrote " + ", ".join(str(path) for path in written))


# ------------------------------------------------------------------------------ what it reads


def read_rows(texts: dict[str, str | None]) -> dict[str, Any]:
    """The numbers of every option, in the order of the labels of the first one that has some."""
    found: dict[str, list[float] | None] = {}
    order: list[str] | None = None
    for name, text in texts.items():
        if text is None:
            found[name] = None
            continue
        numbers, labels = parse_numbers(name, text)
        if order is not None and labels is not None:
            if sorted(labels) != sorted(order):
                reason = f"its actions are not those of the other file, {', '.join(order)}"
                raise InvalidArgument(name, text, reason, "name the same actions in both")
            numbers = [numbers[labels.index(label)] for label in order]
        found[name], order = numbers, order or labels
    return found


def parse_numbers(name: str, text: str) -> tuple[list[float], list[str] | None]:
    """The numbers of a list or of a file, with the labels of actions, if there are any.

    >>> parse_numbers("means", "0.1, 0.2")
    ([0.1, 0.2], None)
    """
    try:
        return [float(part) for part in text.split(",")], None
    except ValueError:
        pass
    try:
        content = Path(text).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "it is no list of numbers, and no file that can be read"
        problem = getattr(error, "strerror", None) or first_line(error)
        raise InvalidArgument(name, text, f"{reason} ({problem})", f"pass {NUMBERS}") from None
    try:
        return _parse_file(content)
    except (ValueError, TypeError, RecursionError) as error:
        reason = f"its numbers cannot be read ({first_line(error)})"
        remedy = "write a JSON list, or CSV lines of action and number"
        raise InvalidArgument(name, text, reason, remedy) from None


def _parse_file(content: str) -> tuple[list[float], list[str] | None]:
    if content.lstrip().startswith("["):
        return [float(value) for value in json.loads(content)], None
    if content.lstrip().startswith("{"):
        pairs = list(json.loads(content).items())
    else:
        lines = [row for row in csv.reader(io.StringIO(content)) if row]
        if lines and not _is_number(lines[0][-1]):
            lines = lines[1:]  # a header
        if not lines:
            raise ValueError("there are none")
        if all(len(row) == 1 for row in lines):
            return [float(row[0]) for row in lines], None
        pairs = [(row[0].strip(), row[-1]) for row in lines]
    labels = [str(label) for label, _ in pairs]
    if len(set(labels)) < len(labels):
        raise ValueError("an action is there twice")
    return [float(value) for _, value in pairs], labels


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_guardrail(text: str) -> us.PlannedGuardrail:
    """The guardrail that an option describes.

    >>> parse_guardrail("latency_ms:0:2000:lower:20:120:80").deviation
    80.0
    """
    name, *parts = text.split(":")
    if not FEWEST_PARTS <= len(parts) + 1 <= MOST_PARTS:
        reason = f"it has {len(parts) + 1} parts"
        raise InvalidArgument("guardrail", text, reason, f"pass {GUARDRAIL}")
    low, high, better, *rest = parts
    try:
        bottom, top, margin, mean, *more = map(float, (low, high, *rest))
    except ValueError as error:
        raise InvalidArgument("guardrail", text, str(error), f"pass {GUARDRAIL}") from None
    metric = us.Guardrail(name, bottom, top, better, margin)
    return us.PlannedGuardrail(metric, mean, *more)


@contextmanager
def late_bar(runs: int) -> Iterator[Callable[[int], object]]:
    """Yield a report of the runs just decided; on a terminal, after a second, a bar shows them."""
    from understudy.simulation.simulate import progress_bar  # noqa: PLC0415 - only here

    started, bar = time.monotonic(), progress_bar()
    task = bar.add_task("decided", total=runs)

    def report(decided: int) -> None:
        bar.advance(task, decided)
        if time.monotonic() - started > PATIENCE:
            bar.start()

    if not Console(stderr=True).is_interactive:  # standard error is then for errors
        yield lambda decided: decided
        return
    try:
        yield report
    finally:
        bar.stop()


# ----------------------------------------------------------------------------- what it writes


def show(found: Plan, console: Console) -> None:
    """Print the decision, power over time, and what the plan assumes."""
    from understudy.simulation import plan_words  # noqa: PLC0415 - only here

    click.echo(plan_words.decision(found))
    table = Table("chance of a verdict", box=None, pad_edge=False)
    if found.traffic is not None:
        table.add_column("days", justify="right")
    table.add_column("rows", justify="right")
    for chance in CHANCES:
        rounds = found.rounds_for(chance)
        if math.isfinite(rounds):
            days = [] if found.traffic is None else [number(rounds / found.traffic, 2)]
            table.add_row(percent(chance), *days, rough_count(rounds))
    if table.row_count:
        console.print(table)
    for sentence in (*plan_words.hints(found), *plan_words.assumptions(found)):
        console.print(sentence, style="dim", highlight=False, markup=False)


def as_dict(found: Plan) -> dict[str, Any]:
    """The plan as JSON; null where a chance is not reached, or days are not known."""
    from understudy.simulation import plan_words  # noqa: PLC0415 - only here

    return {
        "decision": plan_words.decision(found),
        "median_rows": _finite(found.median),
        "ninety_rows": _finite(found.ninety),
        "median_days": _finite(found.median_days),
        "ninety_days": _finite(found.ninety_days),
        "longest": found.longest,
        "gain": found.gain,
        "limit_rows": _finite(found.limit),
        "slowest_guardrail": None if found.slowest is None else found.slowest[0],
        "confidence": found.confidence,
        "runs": len(found.decisions),
        "seed": found.seed,
        "power": _power(found),
        "production": found.game.behavior.tolist(),
        "means": found.game.means.tolist(),
        "hints": plan_words.hints(found),
        "assumptions": plan_words.assumptions(found),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _power(found: Plan) -> list[dict[str, float | None]]:
    return [
        {"rows": rounds, "days": found.days_of(rounds), "power": power}
        for rounds, power in zip(*(column.tolist() for column in found.curve), strict=True)
    ]


def write(found: Plan, out: Path) -> list[Path]:
    """Write the picture as PNG and SVG, and its numbers as CSV, each file whole or not at all."""
    from understudy.plots import to_bytes  # noqa: PLC0415 - only here
    from understudy.snapshots import write_atomically  # noqa: PLC0415 - as above

    figure, buffer = found.plot(), io.StringIO()
    writer = csv.DictWriter(buffer, ["rows", "days", "power"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(_power(found))
    contents = {
        "png": to_bytes(figure, "png"),
        "svg": to_bytes(figure, "svg"),
        "csv": buffer.getvalue().encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"power.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content)
    return paths
