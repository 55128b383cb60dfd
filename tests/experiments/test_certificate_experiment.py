"""The certificate experiment: its rows, its picture, what was measured, and the tables."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from tests.support.paths import DOCS
from understudy.errors import InvalidArgument
from understudy.experiments import ExperimentOptions, write
from understudy.experiments.certificate_experiment import (
    BASELINE_PART,
    BETTER_PART,
    CERTIFICATE,
    GUARDED_PART,
    ROUTER_PART,
    VALIDITY_PART,
    WORLD_PART,
    WORSE_PART,
    CertificateRow,
    games_by_part,
)
from understudy.experiments.certificate_games import KINDS
from understudy.experiments.certificate_speed import SEQUENCES
from understudy.experiments.certificate_validity import STATEMENTS
from understudy.experiments.question_games import QUESTIONS

SMALL = ExperimentOptions(runs=3, rounds=60)
MOVING = ("hedged", "plug_in")  # sequences that are valid for fixed policies alone


@pytest.fixture(scope="module")
def small() -> list[CertificateRow]:
    return CERTIFICATE.run(SMALL)


def test_a_small_run_has_a_row_per_game(small: list[CertificateRow]) -> None:
    wanted = [(part, one.name) for part, own in games_by_part(0).items() for one in own]
    assert [(row.part, row.game) for row in small] == wanted
    assert {row.games for row in small} == {3}
    for row in small:
        assert all(isinstance(column(row), str) for column in CERTIFICATE.columns.values())
        judged = [getattr(row, name) for name in ("gain", "promoted", "worse", "allowed")]
        assert all((share is None) == (row.part != VALIDITY_PART) for share in judged)
        undecided = row.part in {VALIDITY_PART, BASELINE_PART}
        assert (row.decided is None) == undecided
        assert (row.decided_1 is None) == (undecided or row.part == GUARDED_PART)
        assert (row.certified is None) == (row.certified_10 is None) == (row.part != BASELINE_PART)
    lengths = {row.game: row.rounds for row in small}
    assert (lengths["easy"], lengths["coin, a quarter"]) == (600, 1_800)
    assert (lengths["no gain"], lengths["bold play"]) == (60, 15)
    assert (lengths["over a rule"], lengths["over production"]) == (30, 1_920)
    games = 3 * (len(KINDS) + len(QUESTIONS))
    assert any(f"{games}" in note for note in CERTIFICATE.notes(SMALL))


@pytest.mark.large
def test_workers_do_not_change_the_rows(small: list[CertificateRow]) -> None:
    assert CERTIFICATE.run(replace(SMALL, jobs=2)) == small


@pytest.mark.plain
def test_the_picture_shows_every_game(small: list[CertificateRow], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = CERTIFICATE.draw(SMALL, small)
    decisions, worlds, kinds, gain = figure.axes
    names = [text.get_text() for text in kinds.get_yticklabels()]
    assert names == [kind.name for kind in (*KINDS, *QUESTIONS)]
    assert len(decisions.get_yticklabels()) == 6 + 1 + 4
    assert "16 worlds" in worlds.get_title(loc="left")
    assert "hard" in gain.get_title(loc="left")
    paths = write(CERTIFICATE, SMALL, small, tmp_path)
    assert [path.name for path in paths] == [
        f"certificate.{form}" for form in ("png", "svg", "csv")
    ]


def test_games_of_certificates_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="keep"):
        CERTIFICATE.run(ExperimentOptions(runs=1, rounds=10, keep=tmp_path))


# --------------------------------------------------------------------------- what was measured


def published() -> list[CertificateRow]:
    """The experiment as it is on the page.

    `test_the_pictures_in_the_docs_are_what_the_commands_draw` plays all of it again.
    """
    kinds = get_type_hints(CertificateRow)
    with (DOCS / "certificate.csv").open(newline="", encoding="utf-8") as file:
        return [
            CertificateRow(**{name: read(kinds[name], text) for name, text in line.items()})
            for line in csv.DictReader(file)
        ]


def read(kind: object, text: str) -> Any:
    if kind is str:
        return text
    if text == "":
        return None
    return int(text) if kind is int else float(text)


def of(part: str) -> list[CertificateRow]:
    return [row for row in published() if row.part == part]


def ratio_to_the_limit(name: str) -> float:
    """The geometric mean, over the random worlds, of the median rounds by the limit."""
    return math.exp(np.mean([math.log(getattr(row, name) / row.limit) for row in of(WORLD_PART)]))


MOST_ROUNDS = {  # of the median over 300 games
    "easy": 750,
    "hard": 1_500,
    "high rewards": 1_700,
    "high rewards, second": 1.3 * 1_968,
    "clicks, last action": 1.3 * 1_718,
    "hard, uniform": 1.3 * 56,
    "coin, a quarter": 1.3 * 3_768,
}


def test_decisions_come_soon() -> None:
    rows = {row.game: row for row in (*of(BETTER_PART), *of(WORSE_PART))}
    for game, most in MOST_ROUNDS.items():
        row = rows[game]
        assert row.games >= 200
        assert row.now is not None
        assert row.now <= most, game
        assert row.rules_1 is None or row.now < row.rules_1


def test_random_worlds_are_near_the_limit() -> None:
    assert len(of(WORLD_PART)) == 16
    assert ratio_to_the_limit("now") <= 1.9
    assert ratio_to_the_limit("now") < ratio_to_the_limit("rules_1") / 2


def test_the_best_policy_of_a_router_is_promoted() -> None:
    best, even = of(ROUTER_PART)
    assert best.games == even.games >= 100
    assert best.decided is not None
    assert even.decided is not None
    assert best.decided >= 0.75
    assert even.decided <= 0.05


def test_statements_are_wrong_in_no_more_games_than_promised() -> None:
    """Ever, after any round: at most 5 % and three standard errors, of every kind of game."""
    rows = of(VALIDITY_PART)
    assert len(rows) >= 12
    assert sum(row.games for row in rows) >= 4_000
    for row in rows:
        assert row.allowed == pytest.approx(0.05 + 3 * math.sqrt(0.05 * 0.95 / row.games))
        shares = [share for name in STATEMENTS if (share := getattr(row, name)) is not None]
        both = [] if row.lower is None or row.upper is None else [row.lower + row.upper]
        assert max([*shares, *both]) <= row.allowed, row.game
    assert len(rows) == len(KINDS) + len(QUESTIONS)


def test_no_policy_is_promoted_with_a_violated_guardrail_in_more_games_than_promised() -> None:
    rows = [row for row in of(VALIDITY_PART) if "guardrail" in row.game]
    assert len(rows) == 7
    for row in rows:
        assert row.promoted is not None
        assert row.promoted <= 0.05, row.game


def test_the_gain_over_an_action_is_nearly_all_certified() -> None:
    """With propensities of 1/3 and 64 000 rows; more than over the mixture of the arms."""
    rows = {row.game: row for row in of(BASELINE_PART)}
    shown = {name: row.certified or 0.0 for name, row in rows.items()}
    assert rows["over the third action"].rounds == 64_000
    assert shown["over the third action"] >= 0.85
    assert shown["over production"] >= 0.75
    assert 0.5 <= shown["over the third action, apart"] < shown["over the third action"]


def test_two_guardrails_cost_few_rounds() -> None:
    easy, halves = of(GUARDED_PART)
    goal = next(row for row in of(BETTER_PART) if row.game == "easy")
    assert easy.now is not None
    assert easy.alone is not None
    assert easy.alone == goal.now
    assert easy.now <= 1.6 * easy.alone
    assert halves.now is None or halves.now > easy.now


# ------------------------------------------------------------------------- tables on the page


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A Markdown table; after the first columns of words all hold numbers."""
    line = "---|" * words + "---:|" * (len(headings) - words)
    cells = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"| {' | '.join(headings)} |\n|{line}\n{cells}"


def rounds_text(row: CertificateRow, name: str) -> str:
    """The median, and in brackets the round by which nine games in ten have decided."""
    if name in MOVING and row.target == "Exp3-IX":
        return "–"
    median, most = getattr(row, name), getattr(row, f"{name}_90", None)
    if median is None:
        return "later"
    later = "" if name == "limit" else f" ({'later' if most is None else format(most, ',.0f')})"
    return f"{median:,.0f}{later}"


def decision_table(part: str) -> str:
    headings = ("game", "target", "limit", "now", "rules 1", "Bernstein", "hedged", "plug-in")
    rows = [
        [row.game, row.target, *(rounds_text(row, name) for name in SEQUENCES)] for row in of(part)
    ]
    return table(headings, rows, words=2)


def better_table() -> str:
    return decision_table(BETTER_PART)


def worse_table() -> str:
    return decision_table(WORSE_PART)


def router_table() -> str:
    rows = [
        [row.game, f"{row.games}", f"{100 * row.decided:.1f} %", f"{100 * row.decided_1:.1f} %"]
        for row in of(ROUTER_PART)
        if row.decided is not None and row.decided_1 is not None
    ]
    return table(("log", "logs", "promoted now", "promoted by rules 1"), rows, words=1)


def guarded_table() -> str:
    rows = [
        [row.game, rounds_text(row, "alone"), rounds_text(row, "now"), f"{100 * row.decided:.0f} %"]
        for row in of(GUARDED_PART)
        if row.decided is not None
    ]
    headings = ("game", "goal alone", "goal and guardrails", "promoted")
    return table(headings, rows, words=1)


def baseline_table() -> str:
    rows = [
        [
            row.game,
            f"{row.games} × {row.rounds:,}",
            f"{row.certified:.3f}",
            f"{row.certified_10:.3f}",
        ]
        for row in of(BASELINE_PART)
    ]
    headings = ("gain", "games × rounds", "certified share", "in nine games in ten")
    return table(headings, rows, words=1)


def worlds_table() -> str:
    ratios = [f"{ratio_to_the_limit(name):.2f}" for name in ("now", "rules_1", "bernstein")]
    headings = ("16 worlds", "now", "rules 1", "Bernstein")
    return table(headings, [["median rounds by the limit, geometric mean", *ratios]], words=1)


def validity_table() -> str:
    bounds = ["reward ≥", "reward ≤", "gain ≥", "gain ≤", "gain since some round ≥"]
    rows = [
        [
            row.game,
            row.target,
            f"{row.games} × {row.rounds:,}",
            *(share_text(getattr(row, name)) for name in STATEMENTS),
        ]
        for row in of(VALIDITY_PART)
    ]
    return table(("game", "target", "games × rounds", *bounds, "promote", "worse"), rows, words=2)


def share_text(share: float | None) -> str:
    """In %, or a dash where there is no such statement."""
    return "–" if share is None else f"{100 * share:.1f}"


TABLES = [better_table, worse_table, router_table, guarded_table, baseline_table]
TABLES += [worlds_table, validity_table]


@pytest.mark.parametrize("make", TABLES)
def test_tables_on_the_page_are_the_numbers_beside_it(make: Callable[[], str]) -> None:
    assert make() in (DOCS / "experiments.md").read_text(encoding="utf-8")
