"""Whether statements are ever wrong: the referee's test against the bounds themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.formulas import centered_wealths, lower_root
from understudy.certificates import Evidence
from understudy.experiments.certificate_games import KINDS, GameKind, GameRecord
from understudy.experiments.certificate_validity import STATEMENTS, ever_wrong, gain_wrong, wealths
from understudy.experiments.question_games import QUESTIONS

GAIN = 2  # the part of a certificate
SHORT = 64
LOW = 0.02  # a confidence at which some of all statements are wrong


# Those among the questions that one certificate answers.
ONE = (
    *KINDS,
    *(one for one in QUESTIONS if isinstance(one.record(8, 0, 0), GameRecord)),
)


def columns_of(record: GameRecord, part: slice) -> tuple[Any, ...]:
    """The arguments of `Certificate.advance`."""
    other = record.baseline_rounds
    own = record.log[part], record.probabilities[part], record.ratios[part]
    return *own, None if other is None else other.part(part)


def brute_force(record: GameRecord, confidence: float) -> dict[str, bool]:
    """`ever_wrong`, by the bounds themselves after every round."""
    certificate = record.certificate(confidence)
    bets, found = certificate.bets, dict.fromkeys(STATEMENTS, False)
    earned, gains = np.cumsum(record.target_rewards), record.gains
    for t in range(len(record.log)):
        part = slice(t, t + 1)
        certificate = certificate.advance(*columns_of(record, part))
        evidence, total = certificate.evidence, gains[: t + 1].sum()
        assert isinstance(evidence, Evidence)
        assert certificate.gain is not None
        assert certificate.gain_upper is not None
        bounds = [(certificate.gain, total)]
        for j in range(1, len(evidence.windows) + 1):
            rounds, threshold = t + 2 - 2**j, -np.log(bets.window_delta(j))
            S = evidence.window_part(bets, j)
            root = lower_root(S, bets.gains, rounds, threshold, -1.0)
            bounds.append((rounds * root, gains[2**j - 1 : t + 1].sum()))
        now = {
            "lower": certificate.lower > earned[t] + 1e-9,
            "upper": certificate.upper < earned[t] - 1e-9,
            "gain": bounds[0][0] > total + 1e-9,
            "gain_upper": certificate.gain_upper < total - 1e-9,
            "windows": any(bound > truth + 1e-9 for bound, truth in bounds),
            "promoted": any(bound > 0.0 and truth <= 1e-9 for bound, truth in bounds),
            "worse": certificate.gain_upper < 0.0 and total >= -1e-9,
        }
        found = {name: found[name] or bool(now[name]) for name in found}
    return found


def test_a_bound_is_wrong_exactly_where_the_mixture_at_the_truth_is_too_large() -> None:
    """The test by mixtures against the roots, at a confidence that makes some of each wrong."""
    judged = []
    for kind in ONE:
        for run in range(4):
            record = replace(kind, length=1.0).record(SHORT, 0, run)
            found = brute_force(record, LOW)
            assert found == ever_wrong(record, LOW), (kind.name, run)
            judged.append(list(found.values()))
    assert np.any(judged, axis=0).all()
    assert not np.all(judged, axis=0).any()


def test_each_window_is_compared_with_its_own_truth() -> None:
    """At a threshold that windows reach in short games, by roots after every round."""
    threshold, judged = 1.1, []
    for kind in (*KINDS[:12], *ONE[len(KINDS) :]):
        if kind.name.endswith("order-free"):
            continue
        record = replace(kind, length=1.0).record(SHORT, 2, 0)
        certificate, S = record.certificate(), wealths(record)
        bets, found = certificate.bets, np.zeros((6, 2), dtype=bool)
        for t in range(SHORT):
            part = slice(t, t + 1)
            certificate = certificate.advance(*columns_of(record, part))
            for j in range(len(certificate.evidence.windows)):
                assert isinstance(certificate.evidence, Evidence)
                start, sums = 2 ** (j + 1), certificate.evidence.window_part(bets, j + 1)
                rounds, log = t + 2 - start, float(np.log(threshold))
                bound = lower_root(sums, bets.gains, rounds, log, -1.0)
                mean = record.gains[start - 1 : t + 1].mean()
                found[j] |= [bound > mean + 1e-9, mean <= 1e-12 and bound > 0.0]
        for j, wanted in enumerate(found.tolist()):
            own = S[:, bets.place(GAIN)], record.gains
            start = 2 ** (j + 1)
            assert list(gain_wrong(bets, GAIN, *own, start=start, threshold=threshold)) == wanted
            judged.append(wanted)
    assert np.mean(judged, axis=0).min() > 0.1
    assert np.mean(judged, axis=0).max() < 0.9


@pytest.mark.parametrize("kind", ONE, ids=lambda kind: kind.name)
def test_the_wealth_after_every_round_is_the_formula(kind: GameKind) -> None:
    """Also of rows that cannot be used, in NumPy, bet by bet."""
    record = replace(kind, length=1.0).record(40, 1, 0)
    bets, known = record.certificate().bets, record.known
    q = known[record.log.actions] if isinstance(known, np.ndarray) else record.log.propensities
    assert q is not None
    columns = record.probabilities / q, record.log.rewards, record.ratios
    other = record.baseline_rounds
    S = centered_wealths(
        *(*columns, bets.values, bets.gains),
        centers=bets.centers,
        baseline=None if other is None else other.probabilities / q,
        most=bets.most,
    )
    np.testing.assert_allclose(wealths(record), S, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ONE, ids=lambda kind: kind.name)
def test_the_wealth_of_the_last_round_is_the_certificates(kind: GameKind) -> None:
    record = kind.record(300, 0, 0)
    evidence = record.certificate().advance(*columns_of(record, slice(None)))
    assert wealths(record)[-1].tolist() == evidence.evidence.log_wealths().tolist()
    bets, windows = record.certificate().bets, evidence.evidence.windows
    for j in range(1, len(windows) + 1):
        own = wealths(record)[2**j - 2][bets.place(GAIN)]
        np.testing.assert_allclose(windows[j - 1], own, rtol=1e-12)


@pytest.mark.large
def test_certificates_that_are_too_eager_are_caught() -> None:
    """With a tenfold δ, statements are wrong more often than 5 % and three standard errors."""
    by_name = {kind.name: kind for kind in KINDS}
    found = [ever_wrong(by_name["no gain"].record(1_000, 0, run), 0.5) for run in range(60)]
    assert np.mean([one["promoted"] for one in found]) > 0.14
    assert np.mean([one["gain_upper"] for one in found]) > 0.14
