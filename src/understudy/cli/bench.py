"""`understudy bench` runs the benchmarks of a source checkout."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from understudy.cli import FOLDER, check_writable, wide_console
from understudy.simulation.simulate import progress_bar

CHECKOUT = Path(__file__).parents[3]
# Help must work without a checkout, so the names are written here; a test compares them.
NAMES = (
    *("figure1", "rounds", "adaptive", "replay", "learn", "certify", "live"),
    *("lin_prod", "compact"),
    *("latency", "mixture", "defaults", "policies", "policy_growth"),
)


@click.command()
@click.argument("names", metavar="[NAME]...", type=click.Choice(NAMES), nargs=-1)
@click.option("--quick", is_flag=True, help="Tiny sizes: to see that it runs, not how fast.")
@click.option(
    "--out",
    type=FOLDER,
    help="Folder for the results, one JSON file per benchmark.",
)
@click.option(
    "--docs",
    type=click.Path(dir_okay=False, exists=True, writable=True, path_type=Path),
    help="Markdown file whose measured part is replaced by the results.",
)
@click.option("--json", "json_output", is_flag=True, help="Print the results as JSON, not tables.")
def bench(
    names: tuple[str, ...], quick: bool, out: Path | None, docs: Path | None, json_output: bool
) -> None:
    """Measure Understudy beside its peers, in a checkout of its source code.

    \b
    figure1    the whole of Figure 1, against NumPy vectorized over runs
    rounds     one game, the cost of a round as the actions become many
    adaptive   the same for the coverage-adaptive learner
    replay     ten million logged events, against river, Vowpal Wabbit, bincount
    learn      ten million rows of Parquet to a policy, against Vowpal Wabbit, GROUP BY
    certify    a fixed policy on millions of rows, on one core
    live       the live service under load, against its bare framework (needs wrk)
    lin_prod   LinProd's exact product, cost against the number of rounds
    compact    LinProd in constant memory, against the product (minutes, of the product)
    latency    imports, first calls, `understudy paper`, `learn` and `certify`
    mixture    replay with the default learners, in rows per second
    defaults   the default learners on games with known means, and on digits
    policies   the true value of learned policies, against Vowpal Wabbit and others
    policy_growth  the true value of the default policy from 10⁴ to 10⁶ rows

    Without a name, all of them: about an hour, most of it policies. Peers that
    are not installed are named and left out (pip install 'understudy[bench]').
    """
    benchmarks = _import_benchmarks()
    if out is not None:
        check_writable(out)
    if docs is not None:
        if quick or names:
            raise click.UsageError(
                "--docs shows all benchmarks at full size: leave --quick and names"
            )
        benchmarks.check_page(docs)
    results = []
    for name in names or NAMES:
        with progress_bar() as bar:
            task = bar.add_task(name)

            def report(who: str, done: int, turns: int, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, description=who, completed=done, total=turns)

            found = benchmarks.measure(benchmarks.BENCHMARKS[name], quick=quick, report=report)
            bar.update(task, description=name, completed=1, total=1)
        results.append(found)
        if not json_output:
            benchmarks.show(found, wide_console())
        if out is not None:
            benchmarks.write(found, out)
    if docs is not None:
        benchmarks.write_docs(results, docs)
    if json_output:
        click.echo(json.dumps([benchmarks.as_dict(result) for result in results], allow_nan=False))


def _import_benchmarks() -> Any:
    """Import the package `benchmarks`, which is beside `src` in a checkout and in no wheel."""
    if not (CHECKOUT / "benchmarks" / "__init__.py").is_file():
        raise click.UsageError(
            "the benchmarks are not installed with the package: get the source code of Understudy "
            "and type `make bench` there"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module("benchmarks")
