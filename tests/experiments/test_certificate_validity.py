"""How often certificates are ever wrong, and how soon they promote: the experiment and its size."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import understudy as us
from tests.support.paths import DOCS
from understudy.errors import InvalidArgument
from understudy.experiments import ExperimentOptions, write
from understudy.experiments.certificate_validity import (
    CERTIFICATE,
    KINDS,
    CertificateRow,
    GameKind,
    GameRecord,
    ever_wrong,
    record_game,
)

SMALL = ExperimentOptions(runs=4, rounds=60)


def brute_force(record: GameRecord, confidence: float) -> tuple[bool, bool, bool]:
    """`ever_wrong`, by the bounds themselves after every round."""
    certificate = us.Certificate(behavior=record.behavior, confidence=confidence)
    found = np.zeros(3, dtype=bool)
    events = zip(record.log.events(), record.trace.probability, strict=True)
    earned, gained = np.cumsum(record.target_rewards), np.cumsum(record.gains)
    for t, (event, probability) in enumerate(events):
        certificate = certificate.observe(event, probability)
        assert certificate.gain is not None
        found |= [
            certificate.lower > earned[t] + 1e-9,
            certificate.upper < earned[t] - 1e-9,
            certificate.gain > gained[t] + 1e-9,
        ]
    lower, upper, gain = found.tolist()
    return lower, upper, gain


def test_a_bound_is_wrong_exactly_where_the_mixture_at_the_truth_is_too_large() -> None:
    """The vectorised test against the roots, at a confidence that makes some of each wrong."""
    judged = []
    for kind in KINDS[:5]:
        for run in range(8):
            record = record_game(kind, SMALL, run)
            found = brute_force(record, 0.02)
            assert found == ever_wrong(record, us.Certificate(record.behavior, confidence=0.02))
            judged.append(found)
    assert np.any(judged, axis=0).all()
    assert not np.all(judged, axis=0).any()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_the_log_shows_is_what_the_referee_saw(kind: GameKind) -> None:
    record = record_game(kind, SMALL, run=1)
    each = np.arange(len(record.log))
    assert record.log.rewards.tolist() == record.rewards[each, record.log.actions].tolist()
    assert set(np.unique(record.rewards)) <= {0.0, 1.0}  # realised, not means
    np.testing.assert_allclose(record.policies.sum(axis=1), 1.0)
    by_behavior = (record.behavior * record.rewards).sum(axis=1)
    np.testing.assert_allclose(record.gains, record.target_rewards - by_behavior, atol=1e-12)
    again = record_game(kind, SMALL, run=1)
    assert again.rewards.tobytes() == record.rewards.tobytes()
    assert again.policies.tobytes() == record.policies.tobytes()


def test_a_small_run_judges_every_kind() -> None:
    rows = CERTIFICATE.run(SMALL)
    assert [(row.kind, row.target) for row in rows] == [(k.name, k.target) for k in KINDS]
    assert [row.games for row in rows] == [4, 4, 4, 4, 4, 2, 2]
    assert [row.rounds for row in rows] == [60, 60, 15, 60, 60, 600, 600]
    for row in rows:
        assert 0.0 <= row.lower <= row.upper <= 1.0
        assert 0.0 <= row.truth <= 1.0
        assert all(column(row) is not None for column in CERTIFICATE.columns.values())
    assert "24 in all" in CERTIFICATE.notes(SMALL)[0]


def test_workers_do_not_change_the_rows() -> None:
    assert CERTIFICATE.run(replace(SMALL, jobs=2)) == CERTIFICATE.run(SMALL)


@pytest.mark.plain
def test_the_picture_shows_every_kind(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = CERTIFICATE.run(SMALL)
    figure = CERTIFICATE.draw(SMALL, rows)
    *panels, shares = figure.axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == [f"{i}. {k.name}" for i, k in enumerate(KINDS, start=1)]
    assert len(shares.get_lines()) == 4  # lower, upper, gain, and the limit
    paths = write(CERTIFICATE, SMALL, rows, tmp_path)
    assert [path.name for path in paths] == [
        f"certificate.{form}" for form in ("png", "svg", "csv")
    ]


@pytest.fixture(scope="module")
def rows() -> list[CertificateRow]:
    """The experiment as it is published, 2 500 games and 400 longer ones.

    `test_the_pictures_in_the_docs_are_what_the_commands_draw` plays all of it again.
    """
    kinds = get_type_hints(CertificateRow)
    with (DOCS / "certificate.csv").open(newline="", encoding="utf-8") as file:
        return [
            CertificateRow(**{name: read(kinds[name], text) for name, text in line.items()})
            for line in csv.DictReader(file)
        ]


def read(kind: object, text: str) -> Any:
    if text == "":
        return None
    return text if kind is str else int(text) if kind is int else float(text)


def test_certificates_are_wrong_in_no_more_games_than_promised(rows: list[CertificateRow]) -> None:
    """Ever, after any round: at most 5 % and three standard errors, of every kind of game."""
    assert sum(row.games for row in rows[:5]) >= 2_000
    for row in rows:
        assert max(row.lower_wrong, row.upper_wrong, row.gain_wrong) <= row.limit
        assert row.lower_wrong + row.upper_wrong <= row.limit  # they share one δ


def test_better_policies_are_promoted_soon(rows: list[CertificateRow]) -> None:
    better, settled = rows[5:]
    assert (better.rounds, better.games) == (settled.rounds, settled.games) == (20_000, 200)
    assert better.promotion is not None
    assert settled.promotion is not None
    assert better.promotion <= 1_500
    assert settled.promotion <= 4_200


def test_games_of_certificates_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="keep"):
        CERTIFICATE.run(ExperimentOptions(runs=1, rounds=10, keep=tmp_path))
