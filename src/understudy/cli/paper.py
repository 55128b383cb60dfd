"""`understudy paper` runs an experiment and writes its figure and its numbers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from understudy.cli import FOLDER, POSITIVE, check_writable, wide_console
from understudy.experiments import EXPERIMENTS, Experiment, write
from understudy.experiments.experiment import as_json
from understudy.plots import require_matplotlib

WIDEST = 1_000  # letters: wider than any table


def _sizes(option: str) -> str:
    """The default of an option, for each experiment."""
    sizes = (
        f"{name} {getattr(experiment.defaults, option)}"
        for name, experiment in EXPERIMENTS.items()
        if option in experiment.sizes
    )
    return f"[default: {', '.join(sizes)}]"


@click.command()
@click.argument("experiment", type=click.Choice(list(EXPERIMENTS)), default="figure1")
@click.option("--runs", type=POSITIVE, help=f"Runs per point.  {_sizes('runs')}")
@click.option("--rounds", type=POSITIVE, help=f"Rounds per run, n.  {_sizes('rounds')}")
@click.option("--actions", type=click.IntRange(min=2), help=f"Actions, K.  {_sizes('actions')}")
@click.option("--alphas", type=POSITIVE, help=f"Values of α from 0 to 1.  {_sizes('alphas')}")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(min=-1), default=-1, help="Workers.  [one per core]")
@click.option(
    "--out",
    type=FOLDER,
    default=Path("out"),
    show_default=True,
    help="Folder for the picture (PNG, SVG) and the numbers (CSV).",
)
@click.option(
    "--keep",
    type=FOLDER,
    help="Folder for finished cells: a run that was stopped goes on from them.",
)
@click.option("--json", "json_output", is_flag=True, help="Print the rows as JSON, not a table.")
def paper(experiment: str, out: Path, json_output: bool, **sizes: Any) -> None:
    """Reproduce the paper's Figure 1, or run another experiment.

    \b
    figure1      Exp3 and Exp3-IX on the paper's game (the default)
    unknown      an unknown behavior policy: Theorem 2, and a sharper bound
    linear       LinProd on a contextual game, regret against feature coverage
    adaptive     every comparator at once: all learners, regret against coverage
    rates        the cost of not knowing the right learning rate, in pairs of worlds
    probability  how often the bounds with high probability fail
    certificate  how soon certificates decide, and how often they are ever wrong

    The result depends on the seed and the sizes only, not on the number of workers.
    """
    chosen = EXPERIMENTS[experiment]
    given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    for name in ("runs", "rounds", "actions", "alphas"):
        if name in given and name not in chosen.sizes:
            own = ", ".join(f"--{size}" for size in chosen.sizes)
            raise click.UsageError(f"--{name}: {experiment} has no such size, but {own}")
    options = replace(chosen.defaults, **given)
    require_matplotlib()
    check_writable(out)
    rows = chosen.run(options, progress=True)
    paths = write(chosen, options, rows, out)
    if json_output:
        click.echo(as_json(rows))
        return
    console = wide_console()
    table = _table(chosen, rows)
    needed = Console(width=WIDEST).measure(table).maximum  # a wrapped number is a number still
    Console(width=max(console.width, needed)).print(table)
    for note in chosen.notes(options):
        console.print(note, style="dim", highlight=False)
    click.echo("wrote " + ", ".join(str(path) for path in paths))


def _table(experiment: Experiment, rows: Sequence[Any]) -> Table:
    table = Table(title=experiment.title, title_justify="left")
    for name in experiment.columns:
        table.add_column(
            name, justify="left" if name in experiment.text_columns else "right", no_wrap=True
        )
    for _, section in itertools.groupby(rows, operator.attrgetter(*experiment.sections)):
        for row in section:
            table.add_row(*(column(row) for column in experiment.columns.values()))
        table.add_section()
    return table
