"""The sentences and single numbers of a report, the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from understudy.report.data import ActionRow, CertificateCurve, Report, VerdictKind
from understudy.report.wording import count, counted, number, percent, size

__all__ = ["MARKS", "Mark", "averaged", "beside", "bounds", "holds", "others", "set_aside"]


class Mark(NamedTuple):
    """How a verdict looks: told apart by sign and word, not by its color alone."""

    sign: str
    word: str
    style: str


MARKS: dict[VerdictKind, Mark] = {
    "promote": Mark("✓", "Promote", "good"),
    "not yet": Mark("…", "Not yet", "wait"),
    "cannot tell": Mark("?", "Cannot tell", "open"),
    "worse": Mark("✕", "Worse", "bad"),
    "coverage": Mark("i", "Coverage", "open"),
}


MOST = "would have earned at most"


def bounds(curve: CertificateCurve, kind: VerdictKind) -> dict[str, str]:
    """What a certificate says at its end, by name, as far as it matters to the verdict.

    >>> curve = CertificateCurve(rounds=[9], lower=[0.1], upper=[0.3], production=[0.2], gain=None,
    ...     promoted_at=None, confidence=0.95, estimate=0.25, self_normalised=0.2,
    ...     effective_sample_size=7.0)
    >>> for name, value in bounds(curve, "not yet").items():
    ...     print(name, "·", value)
    the understudy would have earned at least · 0.1
    production earned · 0.2
    gain over production, at least · not certified
    promotion justified after round · not certified
    """
    _, lower, upper, production, gain = curve.table[-1].tolist()
    certified = curve.gain is not None
    worse = kind == "worse"
    return {
        f"{curve.target} would have earned at least": number(lower),
        **({MOST: number(upper)} if worse else {}),
        f"production earned{' at most' if curve.at_most else ''}": number(production),
        "gain over production, at least": number(gain) if certified else "not certified",
        **({} if worse else {"promotion justified after round": _promotion(curve)}),
    }


def _promotion(curve: CertificateCurve) -> str:
    if curve.gain is None:
        return "not certified"
    if curve.promoted_at is not None:
        return count(curve.promoted_at)
    return "not known without an order" if curve.promoted else "not yet"


def beside(curve: CertificateCurve, kind: VerdictKind) -> dict[str, str]:
    """What stands beside it: the other bound, and estimates that bound nothing.

    >>> curve = CertificateCurve(rounds=[9], lower=[0.1], upper=[0.3], production=[0.2], gain=None,
    ...     promoted_at=None, confidence=0.95, estimate=0.25, self_normalised=0.2,
    ...     effective_sample_size=7.0)
    >>> list(beside(curve, "not yet").values())
    ['0.3', '0.25', '0.2', '7 of 9 rounds']
    """
    rounds, _, upper, *_ = curve.table[-1].tolist()
    worth = f"{size(curve.effective_sample_size)} of {counted(int(rounds), 'round')}"
    return {
        **({} if kind == "worse" else {MOST: number(upper)}),
        "inverse propensity score (IPS)": number(curve.estimate),
        "self-normalised IPS": number(curve.self_normalised),
        "effective sample size": worth,
    }


def holds(curve: CertificateCurve) -> str:
    """What the bounds promise.

    >>> curve = CertificateCurve(rounds=[9], lower=[0.1], upper=[0.3], production=[0.2], gain=[0.0],
    ...     promoted_at=None, confidence=0.95, estimate=0.25, self_normalised=0.2,
    ...     effective_sample_size=7.0)
    >>> print(holds(curve))
    Rewards are means a round. “At least” and “at most” hold together, after all rounds at once,
    with 95 % confidence; so does the gain, by itself.
    """
    gain = "" if curve.gain is None else "; so does the gain, by itself"
    return (
        "Rewards are means a round. “At least” and “at most” hold together, after all rounds at "
        f"once, with {percent(curve.confidence)} confidence{gain}."
    )


def averaged(report: Report) -> str:
    """What the policy's probabilities are, if it depends on the context; else nothing.

    >>> averaged(Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="", averaged_over=1000))
    'The policy depends on the context: its shares are means over the last 1,000 rows.'
    """
    if report.averaged_over is None:
        return ""
    rows = counted(report.averaged_over, "row")
    return f"The policy depends on the context: its shares are means over the last {rows}."


def others(actions: Sequence[ActionRow]) -> str:
    """What is left out of a picture of a policy, in a sentence; nothing if nothing is.

    >>> others([ActionRow("a", count=3, share=0.75, policy=0.2)])
    '1 more action has 20 % of the policy and 75 % of production.'
    """
    if not actions:
        return ""
    policy, share = sum(row.policy or 0.0 for row in actions), sum(row.share for row in actions)
    return (
        f"{counted(len(actions), 'more action')} {'has' if len(actions) == 1 else 'have'} "
        f"{percent(policy)} of the policy and {percent(share)} of production."
    )


def set_aside(report: Report) -> str:
    """How many rows were quarantined, of how many.

    >>> set_aside(Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at=""))
    'No row was set aside.'
    """
    if not report.quarantined:
        return "No row was set aside."
    verb = "was" if report.quarantined == 1 else "were"
    if not report.rows:
        return f"{counted(report.quarantined, 'row')} {verb} set aside."
    share = percent(report.quarantined / report.rows)
    return (
        f"{count(report.quarantined)} of {counted(report.rows, 'row')} ({share}) {verb} set aside."
    )
