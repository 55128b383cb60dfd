"""Reports to look at and to test with: one for each verdict, with the troubles of real logs."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from understudy.formatting import count, named, number, percent, plain, size
from understudy.logs.evaluation.outcomes import GainBounds, VerdictOutcome
from understudy.logs.policy import FileRead
from understudy.report import (
    ActionRow,
    CandidateRow,
    CertificateCurve,
    ContextRow,
    ExpertRow,
    QuarantineCount,
    QuarantinedRow,
    Report,
)
from understudy.report.render import render_page

# What reports are made of, what draws them, and how they write values, for tests that compare.
__all__ = [
    "HOSTILE",
    "SAMPLES",
    "FileRead",
    "action_rows",
    "certificate",
    "context_rows",
    "count",
    "expert_rows",
    "named",
    "number",
    "percent",
    "plain",
    "render_page",
    "sample",
    "size",
    "value",
]

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{ 7 * 7 }}",
    "[bold red]not markup[/]",
    "\x1b[31mred\x1b[0m",
    "right to left \u202e txet",
    "nul \x00 and a lone surrogate \ud800",
    "two\nlines\tand a tab",
    "x" * 10_000,
    "長い名前の商品" * 20,
    "&amp; ampersand",
    "",
)


def certificate(
    rounds: int,
    *,
    mean: float,
    production: float,
    spread: float,
    start: float = 0.0,
    gain: bool = True,
    confidence: float = 0.95,
) -> CertificateCurve:
    """Bounds that close in on a mean like those of a log, and a production that stays."""
    grid = np.unique(np.geomspace(1, rounds, 1_500).astype(np.int64))
    width = spread * np.sqrt((math.log(40) + np.log(2 + np.log(grid))) / grid)
    learned = mean + (start - mean) / np.sqrt(1 + grid / 2_000)
    noise = 0.15 * width * np.sin(3 * np.log(grid))
    lower = np.clip(learned + noise - width, 0.0, 1.0)
    upper = np.clip(learned + noise + width, 0.0, 1.0)
    played = production * (1 + 0.05 * np.sin(3 * np.log(grid)) / np.sqrt(grid / 100 + 1))
    bound = np.clip(learned - production + 0.7 * noise - 0.8 * width, -1.0, 1.0)
    positive = grid[bound > 0]
    return CertificateCurve(
        rounds=grid,
        lower=lower,
        upper=upper,
        production=played,
        gain=bound if gain else None,
        promoted_at=int(positive[0]) if gain and len(positive) else None,
        confidence=confidence,
        estimate=float(learned[-1] + noise[-1]),
        self_normalised=float(learned[-1] + 0.9 * noise[-1]),
        effective_sample_size=0.31 * rounds,
    )


def action_rows(
    labels: list[object], rows: int, *, unseen: int = 0, policy: bool = True, seed: int = 0
) -> list[ActionRow]:
    """A behavior with a long tail, a policy that prefers a few, and some actions never seen."""
    rng = np.random.default_rng(seed)
    seen = len(labels) - unseen
    share = np.concatenate([rng.permutation(1.0 / np.arange(2, seen + 2)), np.zeros(unseen)])
    share /= share.sum()
    weight = rng.random(len(labels)) ** 12 + 1e-6
    weight /= weight.sum()
    counts = np.floor(share * rows).astype(int)
    return [
        ActionRow(
            label=label,
            count=int(counts[i]),
            share=float(counts[i] / rows),
            policy=float(weight[i]) if policy else None,
            mean_reward=float(rng.random()) if counts[i] else None,
            lowest=float(0.6 * share[i]) if counts[i] else None,
            highest=float(min(1.4 * share[i], 1.0)) if counts[i] else None,
            coverage=float(1.2 / share[i]) if counts[i] else math.inf,
            effective_sample_size=float(0.7 * counts[i]) if counts[i] else 0.0,
        )
        for i, label in enumerate(labels)
    ]


def context_rows(
    column: str, names: list[str], labels: list[object], seed: int
) -> list[ContextRow]:
    """Groups of contexts in the order of their estimates, the last of them never seen of late."""
    rng = np.random.default_rng(seed)
    estimates = sorted(rng.normal(0.0, 0.1, len(names)), reverse=True)
    rows = rng.integers(5, 5_000, len(names)).tolist()
    shares = rng.dirichlet(np.full(len(labels), 0.3), size=(len(names), 2)).tolist()
    keys = list(map(str, labels))
    return [
        ContextRow(
            columns=(column,),
            name=name,
            rows=rows[i],
            share=rows[i] / sum(rows),
            production=dict(zip(keys, shares[i][0], strict=True)),
            policy=dict(zip(keys, shares[i][1], strict=True)) if i < len(names) - 1 else None,
            estimate=float(estimates[i]),
            lower=float(estimates[i]) - 0.1,
            upper=float(estimates[i]) + 0.2,
        )
        for i, name in enumerate(names)
    ]


def expert_rows(names: list[str], rounds: int, seed: int) -> list[ExpertRow]:
    """Experts whose weights change over the rounds, the heaviest first."""
    rng = np.random.default_rng(seed)
    grid = [*np.unique(np.geomspace(1, rounds, 100).astype(int)).tolist(), rounds + 1]
    weights = np.cumsum(rng.normal(0.0, 0.3, (len(grid), len(names))), axis=0)
    weights = np.exp(weights) / np.exp(weights).sum(axis=1, keepdims=True)
    order = np.argsort(-weights[-1])
    return [
        ExpertRow(
            name=names[m],
            weight=float(weights[-1, m]),
            reward=float(rng.random()),
            gain=float(rng.normal(0.0, 0.1)),
            reward_error=0.0123,
            gain_error=0.00456,
            history=tuple(zip(grid, weights[:, m].tolist(), strict=True)),
        )
        for m in order
    ]


def _file(name: str, rows: int, quarantined: int = 0) -> FileRead:
    return FileRead(name, f"{hash(rows) % 16**8:08x}" * 8, rows, quarantined)


made = partial(Report, generated_by="understudy 0.4.0", generated_at="2026-11-15 19:04 UTC")


def promoted() -> Report:
    """A million rows, a hundred actions, and a policy that is better."""
    curve = certificate(1_000_000, mean=0.36, production=0.249, spread=2.4, start=0.18)
    return made(
        title="Learned from clicks-2026-*.parquet",
        subtitle="1,000,000 rows of 100 actions in 4 files",
        verdict="With 95 % confidence the understudy would have earned at least "
        "0.3453 a round while learning, where production earned 0.2489.",
        verdict_kind="promote",
        outcome=VerdictOutcome.PROMOTE,
        step="Next: let the policy make 1 % of the decisions, and log them.",
        code="policy = us.logs.Policy.load('policy.json')",
        gain=GainBounds(0.11, 0.09, 0.13),
        facts=[
            ("learner", "Exp3-IX, no horizon"),
            ("theorem", "Theorem 1, with the anytime rate: regret O(√(C n log K)) in expectation"),
            ("behavior", "logged propensities"),
            ("reward range", "0 … 1"),
            ("rows learned from", "1,000,000"),
            ("confidence", "95 %"),
        ],
        certificate=curve,
        actions=action_rows([f"banner-{i:03d}" for i in range(100)], 1_000_000),
        coverage=[
            "All 100 actions were seen; the rarest of them 1,846 times.",
            "Logged propensities agree with the observed frequencies.",
            "Production does not drift over the log.",
        ],
        candidates=[
            CandidateRow("the learned policy", "Better than production.", 3.21, 311_000.0, 0.3605),
            CandidateRow("uniform", "Worse than production.", 5.9, 169_400.0, 0.2042),
            CandidateRow(
                "always banner-017",
                "This log cannot tell: about 2,400,000 rows would show a gain of 0.01.",
                61.4,
                16_280.0,
                0.2603,
            ),
        ],
        files=[_file(f"clicks-2026-0{month}.parquet", 250_000 + month) for month in range(1, 5)],
    )


def waiting() -> Report:
    """Too few rows to say so yet."""
    return made(
        title="Learned from shadow.csv",
        subtitle="8,000 rows of 12 actions",
        verdict="The understudy looks better than production, but 8,000 rows do not "
        "show it with 95 % confidence.",
        verdict_kind="not yet",
        outcome=VerdictOutcome.NOT_ENOUGH_DATA,
        gain=GainBounds(0.005, -0.026, 0.041),
        facts=[("learner", "coverage-adaptive, grid form"), ("behavior", "logged propensities")],
        certificate=certificate(8_000, mean=0.052, production=0.047, spread=0.9, start=0.045),
        actions=action_rows([f"route {i}" for i in range(12)], 8_000, seed=3),
        coverage=["About 31,000 rows would show a gain of 0.005 a round."],
        files=[_file("shadow.csv", 8_000)],
    )


def undecided() -> Report:
    """Clicks are rare, propensities vary, and half of the actions were never shown."""
    return made(
        title="Learned from women.csv",
        subtitle="10,000 rows of 34 actions, 18 of them never seen",
        verdict="63 % of what the policy plays are actions that the log never shows.",
        verdict_kind="cannot tell",
        outcome=VerdictOutcome.IMPOSSIBLE,
        facts=[("learner", "Exp3-IX"), ("behavior", "estimated")],
        assumptions=[
            "The propensity of action 7 varies by a factor of 61: production is not fixed, so "
            "a behavior that is counted from the log is not the one that was played."
        ],
        warnings=["The lower bound is 0: it says nothing."],
        certificate=certificate(10_000, mean=0.006, production=0.0046, spread=3.0, gain=False),
        actions=action_rows(list(range(34)), 10_000, unseen=18, seed=5),
        coverage=[
            "18 actions were never seen: 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, "
            "30, 31, 32, 33.",
            "Logged propensities do not agree with the observed frequencies: action 3 was played "
            "2.1× as often as they say.",
        ],
        candidates=[
            CandidateRow("uniform", "This log cannot tell.", math.inf, 2.0, 0.0031),
            CandidateRow("always 4", "This log cannot tell.", 812.0, 12.3, None),
        ],
        files=[_file("women.csv", 10_000)],
    )


def contextual() -> Report:
    """A policy that depends on the context, and that is worse."""
    return made(
        title="Learned from routes.ndjson",
        subtitle="600,000 rows of 6 actions with contexts length, language, hour",
        verdict="With 95 % confidence the understudy would have earned at most 0.428 a "
        "round, where production earned 0.61.",
        verdict_kind="worse",
        outcome=VerdictOutcome.WORSE,
        gain=GainBounds(-0.19, -0.22, -0.15),
        facts=[
            ("learner", "LinProd in constant memory, disjoint features"),
            ("features", "length (scaled), language (one-hot, 9 of them), hour (scaled)"),
            ("warm-up", "60,000 rows, neither learned from nor certified"),
        ],
        certificate=certificate(540_000, mean=0.415, production=0.61, spread=2.0, start=0.5),
        actions=action_rows(["small", "medium", "large", "tools", "search", "human"], 600_000),
        averaged_over=10_000,
        contexts=[
            *context_rows("language", [f"language = {i}" for i in range(9)], list("abcdef"), 1),
            *context_rows("hour", ["hour ≤ 6", "6 < hour ≤ 12", "hour > 12"], list("abcdef"), 2),
        ],
        context_confidence=0.95,
        columns_left_out=3,
        experts=expert_rows(["production", "tables", "ridge, τ = 0.02"], 540_000, 3),
        coverage=["All 6 actions were seen.", "Production drifts; its propensities say so."],
        files=[_file("routes.ndjson", 600_000)],
    )


def dirty() -> Report:
    """Many rows that cannot be used, labels and names that try to break what shows them."""
    reasons = ["propensity is out of range", "reward is not finite", "action is unknown"]
    names = [f"/data/exports/2026/11/{'deep/' * 30}part-{i:05d}.csv.gz" for i in range(3)]
    files = [*names, '<img src="https://example.org/x.png">.csv']
    return made(
        title="Learned from <script>alert('title')</script>.csv",
        subtitle="A dirty log",
        verdict=f"{HOSTILE[0]} and {HOSTILE[5]} are names of actions.",
        verdict_kind="not yet",
        outcome=VerdictOutcome.NOT_ENOUGH_DATA,
        gain=GainBounds(0.005, -0.026, 0.041),
        facts=[("learner", HOSTILE[1])],
        assumptions=[HOSTILE[2]],
        warnings=["41 % of the rows were set aside: look at the reasons before anything else."],
        certificate=certificate(59_000, mean=0.4, production=0.39, spread=2.0, start=0.4),
        actions=action_rows([*HOSTILE, *(f"a{i}" for i in range(30))], 59_000, seed=9),
        contexts=context_rows(HOSTILE[1], list(HOSTILE), list(HOSTILE), 4),
        context_confidence=0.9,
        experts=expert_rows(list(HOSTILE), 59_000, 5),
        candidates=[CandidateRow(HOSTILE[1], HOSTILE[4])],
        quarantine=[
            QuarantineCount(file, reason, 1_234 * (i + 1) * (j + 1))
            for i, file in enumerate(files)
            for j, reason in enumerate(reasons)
        ],
        examples=[
            QuarantinedRow(files[i % 4], 17 * i + 3, reasons[i % 3], {"action": label, "q": -0.5})
            for i, label in enumerate(HOSTILE)
        ],
        files=[_file(name, 25_000 + i, 7_404 * (i + 1)) for i, name in enumerate(files)],
    )


SAMPLES = {
    "promoted": promoted,
    "waiting": waiting,
    "undecided": undecided,
    "contextual": contextual,
    "dirty": dirty,
}


def sample(name: str) -> Report:
    """One of the samples."""
    return SAMPLES[name]()


def value(text: str) -> float:
    """The number that a text stands for, read by rules of its own."""
    text = text.replace(",", "").replace("−", "-").removesuffix(" %")
    superscripts = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    if "·10" in text:
        digits, power = text.split("·10")
        return float(digits) * 10.0 ** int(power.translate(superscripts))
    return math.inf if text == "∞" else float(text)
