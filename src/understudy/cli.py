"""The command line: `understudy paper`, `understudy bench`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from understudy import __version__
from understudy.errors import UnderstudyError
from understudy.experiments import EXPERIMENTS, Experiment, write
from understudy.experiments.core import as_json
from understudy.plots import require_matplotlib
from understudy.simulate import progress_bar

__all__ = ["main"]

BAD_INPUT = 2
INTERRUPTED = 130
NARROWEST = 80  # a narrower table would cut numbers off
POSITIVE = click.IntRange(min=1)


def _sizes(option: str) -> str:
    """What an option is by default, in each experiment."""
    sizes = (
        f"{name} {getattr(experiment.defaults, option)}"
        for name, experiment in EXPERIMENTS.items()
        if option in experiment.sizes
    )
    return f"[default: {', '.join(sizes)}]"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="understudy")
def app() -> None:
    """Online learning from off-policy feedback, with guarantees."""


@app.command()
@click.argument("experiment", type=click.Choice(list(EXPERIMENTS)), default="figure1")
@click.option("--runs", type=POSITIVE, help=f"Runs per point.  {_sizes('runs')}")
@click.option("--rounds", type=POSITIVE, help=f"Rounds per run, n.  {_sizes('rounds')}")
@click.option("--actions", type=click.IntRange(min=2), help=f"Actions, K.  {_sizes('actions')}")
@click.option("--alphas", type=POSITIVE, help=f"Values of α from 0 to 1.  {_sizes('alphas')}")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(min=-1), default=-1, help="Workers.  [one per core]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    help="Folder for the picture (PNG, SVG) and the numbers (CSV).",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for finished cells: a run that was stopped goes on from them.",
)
@click.option("--json", "json_output", is_flag=True, help="Print the rows as JSON, not a table.")
def paper(experiment: str, out: Path, json_output: bool, **sizes: Any) -> None:
    """Reproduce the paper's Figure 1, one of its companions, or what goes beyond.

    \b
    figure1      Exp3 and Exp3-IX on the paper's game (the default)
    unknown      Theorem 2, and a sharper bound: the behavior policy is not known
    linear       LinProd on a contextual game, regret against feature coverage
    adaptive     every comparator at once: all learners, regret against coverage
    rates        what not knowing the right rate costs, pair of worlds by pair
    probability  how often the bounds with high probability fail
    certificate  certificates over time, how often they are wrong, when they promote

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
    _check_writable(out)
    rows = chosen.run(options, progress=True)
    paths = write(chosen, options, rows, out)
    if json_output:
        click.echo(as_json(rows))
        return
    console = Console(width=max(Console().width, NARROWEST))
    console.print(_table(chosen, rows))
    for note in chosen.notes(options):
        console.print(note, style="dim", highlight=False)
    click.echo("wrote " + ", ".join(str(path) for path in paths))


NAMES = ("figure1", "rounds", "adaptive", "replay", "lin_prod", "compact", "latency")


@app.command()
@click.argument("names", metavar="[NAME]...", type=click.Choice(NAMES), nargs=-1)
@click.option("--quick", is_flag=True, help="Tiny sizes: to see that it runs, not how fast.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results, one JSON file per benchmark.",
)
@click.option(
    "--docs",
    type=click.Path(dir_okay=False, exists=True, writable=True, path_type=Path),
    help="Markdown file whose measured part is written anew from the results.",
)
@click.option("--json", "json_output", is_flag=True, help="Print the results as JSON, not tables.")
def bench(
    names: tuple[str, ...], quick: bool, out: Path | None, docs: Path | None, json_output: bool
) -> None:
    """Measure Understudy beside its peers: ratios, medians, and the machine.

    \b
    figure1    the whole of Figure 1, against NumPy vectorized over runs
    rounds     one game, the cost of a round as the actions become many
    adaptive   the same for the coverage-adaptive learner
    replay     ten million logged events, against river, Vowpal Wabbit, bincount
    lin_prod   LinProd's exact product, cost against the number of rounds
    compact    LinProd in constant memory, against the product (minutes, of the product)
    latency    imports, first calls, the whole of `understudy paper`

    Without a name, all of them: a few minutes. Peers that are not installed are
    named and left out (pip install 'understudy[bench]').
    """
    from understudy.benchmarks import BENCHMARKS, as_dict, check_page, measure, show, write_docs  # noqa: PLC0415
    from understudy.benchmarks import write as keep  # noqa: PLC0415 - only here

    if out is not None:
        _check_writable(out)
    if docs is not None:
        if quick or names:
            raise click.UsageError(
                "--docs shows all benchmarks at full size: leave --quick and names"
            )
        check_page(docs)
    results = []
    for name in names or NAMES:
        with progress_bar() as bar:
            task = bar.add_task(name)

            def report(who: str, done: int, turns: int, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, description=who, completed=done, total=turns)

            found = measure(BENCHMARKS[name], quick=quick, report=report)
            bar.update(task, description=name, completed=1, total=1)
        results.append(found)
        if not json_output:
            show(found, Console(width=max(Console().width, NARROWEST)))
        if out is not None:
            keep(found, out)
    if docs is not None:
        write_docs(results, docs)
    if json_output:
        click.echo(json.dumps([as_dict(result) for result in results], allow_nan=False))


def _check_writable(out: Path) -> None:
    """Say now, not after the work, that the results cannot be written."""
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise click.ClickException(
            f"--out {out}: {nearest} cannot be written to ({error.strerror}); choose another folder"
        ) from None


def _table(experiment: Experiment, rows: Sequence[Any]) -> Table:
    table = Table(title=experiment.title, title_justify="left")
    for name in experiment.columns:
        table.add_column(
            name, justify="left" if name in experiment.words else "right", no_wrap=True
        )
    for i, row in enumerate(rows):
        if i > 0 and experiment.sections(rows[i - 1]) != experiment.sections(row):
            table.add_section()
        table.add_row(*(cell(row) for cell in experiment.columns.values()))
    return table


def main() -> None:
    """Run the command line: one clear line and exit code 2 for bad input."""
    try:
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
