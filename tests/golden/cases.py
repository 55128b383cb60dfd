"""The commands about logs whose results are kept: every learner, behavior, format and option.

Each case names its learner, since defaults may change.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEARN", "PAPER", "QUESTIONS", "REFUSED", "Learn"]

GIVEN = ("--actions", "actions.txt")
TIMED = ("--time", "when")
CONTEXT = ("--context", "age,city,visits")
LINEAR = ("--learner", "lin-prod-compact")
ALL_ROLES = ("--time", "time", "--eligible", "eligible")


@dataclass(frozen=True)
class Learn:
    """`understudy learn` on `first` with `options`, then `--resume` with `second`, if there is one.

    `summed` marks aggregates in no order, which are promised to 1e-9, not to the bit.
    """

    first: tuple[str, ...]
    options: tuple[str, ...]
    second: tuple[str, ...] = ()
    summed: bool = False


def _halves(name: str, *options: str) -> Learn:
    return Learn((name.format(1),), options, (name.format(2),))


LEARN: dict[str, Learn] = {
    "adaptive": _halves("plain-{}.csv", "--learner", "coverage-adaptive", *GIVEN),
    "adaptive-horizon": _halves(
        "drifting-{}.ndjson", "--learner", "coverage-adaptive", "--horizon", "200", *GIVEN
    ),
    "adaptive-given": _halves(
        "plain-{}.parquet", "--learner", "coverage-adaptive", "--behavior", "behavior.json"
    ),
    "adaptive-given-horizon": _halves(
        "plain-{}.csv",
        *("--learner", "coverage-adaptive", "--behavior", "behavior.csv", "--horizon", "300"),
        *("--actions", "actions.json", "--confidence", "0.9"),
    ),
    "exp3-ix": _halves("drifting-{}.ndjson", "--learner", "exp3-ix", *GIVEN),
    "exp3-ix-horizon": _halves(
        "plain-{}.parquet", "--learner", "exp3-ix", "--horizon", "240", *GIVEN
    ),
    "exp3-ix-given": _halves(
        "plain-{}.csv", "--learner", "exp3-ix", "--behavior", "behavior.csv", *GIVEN
    ),
    "prod-scaled": _halves(
        "scaled-{}.arrow",
        *("--learner", "prod", "--reward-range", "-1", "2", "--actions", "numbers.txt"),
    ),
    "prod-horizon": _halves(
        "obd-{}.tsv", "--learner", "prod", "--horizon", "99", "--preset", "obd"
    ),
    "exp3": _halves("plain-{}.parquet", "--learner", "exp3", *GIVEN),
    "exp3-horizon": _halves(
        "scaled-{}.arrow", "--learner", "exp3", "--horizon", "180", "--reward-range", "-1", "2"
    ),
    "unknown": _halves(
        "bare-{}.csv", "--learner", "exp3-ix-unknown", "--behavior", "estimated", *GIVEN
    ),
    "unknown-horizon": _halves("bare-{}.csv", "--learner", "exp3-ix-unknown", "--horizon", "300"),
    "contexts": _halves("contexts-{}.csv", *LINEAR, *CONTEXT, "--warmup", "0.2"),
    "contexts-horizon": _halves(
        "contexts-{}.ndjson", *LINEAR, *CONTEXT, "--warmup", "30", "--horizon", "250"
    ),
    "contexts-given": _halves(
        "contexts-{}.csv", *LINEAR, "--context", "age", "--behavior", "three.json"
    ),
    "contexts-estimated": _halves(
        "contexts-{}.csv", *LINEAR, "--context", "city", "--behavior", "estimated"
    ),
    "vw-lines": _halves(
        "lines-{}.vw",
        *("--learner", "coverage-adaptive", "--reward-range", "-1", "0", "--eligible", "eligible"),
        *("--actions", "numbers.txt"),
    ),
    "vw-lines-contexts": _halves(
        "lines-{}.vw", *LINEAR, "--reward-range", "-1", "0", "--context", "age,new,item^price"
    ),
    "vw-events": _halves("events-{}.vw", "--learner", "exp3-ix", "--reward-range", "-1", "0"),
    "dsjson": _halves(
        "ranked-{}.dsjson",
        *("--learner", "prod", "--time", "Timestamp", "--eligible", "a"),
    ),
    "dsjson-contexts": _halves(
        "ranked-{}.dsjson", *LINEAR, "--context", "User.age,User.city", "--warmup", "20"
    ),
    "time-shuffled": _halves("shuffled-{}.csv.gz", "--learner", "prod", *TIMED, *GIVEN),
    "time-ordered": _halves("ordered-{}.ndjson", "--learner", "exp3-ix", *TIMED, *GIVEN),
    "time-two-files": Learn(
        ("shuffled-2.csv.gz", "shuffled-1.csv.gz"), ("--learner", "exp3-ix", *TIMED)
    ),
    "eligible-text": _halves("eligible-{}.csv", "--learner", "prod", "--eligible", "could", *GIVEN),
    "eligible-lists": _halves(
        "eligible-{}.ndjson", "--learner", "exp3-ix", "--eligible", "could", *GIVEN
    ),
    "folder": Learn(("days",), ("--learner", "exp3-ix")),
    "glob": Learn(("plain-*.csv",), ("--learner", "prod", *GIVEN)),
    "undeclared": _halves("plain-{}.csv", "--learner", "exp3-ix"),
    "format-named": Learn(("late.csv",), ("--learner", "exp3", "--format", "csv", *GIVEN)),
    "promoted": Learn(
        ("clear.csv",),
        ("--learner", "coverage-adaptive", "--actions", "ab.txt"),
        ("clear-later.csv",),
    ),
    "dirty": Learn(("dirty.csv",), ("--learner", "exp3", *ALL_ROLES, *GIVEN), ("late.csv",)),
    "dirty-undeclared": Learn(("dirty.csv",), ("--learner", "exp3-ix", *ALL_ROLES)),
    "dirty-given": Learn(
        ("dirty.csv",), ("--learner", "exp3-ix", "--behavior", "never_pen.json"), ("late.csv",)
    ),
    "dirty-estimated": Learn(
        ("dirty.csv",), ("--learner", "exp3-ix-unknown", "--behavior", "estimated", *GIVEN)
    ),
    "dirty-numbers": Learn(("dirty.ndjson",), ("--learner", "prod", *GIVEN)),
    **{
        f"summed-{engine}-{learner}": Learn(
            (log,),
            ("--learner", learner, "--horizon", "300", "--engine", engine, *options),
            summed=True,
        )
        for engine in ("polars", "duckdb", "dask")
        for learner, log, options in (
            ("exp3-ix", "plain-*.csv", GIVEN),
            ("prod", "plain-*.parquet", ("--behavior", "behavior.json")),
            ("exp3", "dirty.csv", GIVEN),
        )
        if (engine, learner) != ("dask", "exp3")  # it takes seconds
    },
}

# `coverage` and `certify`: `@name` is the policy.json that the case `name` of LEARN gave first.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "coverage": ("coverage", "plain-1.csv"),
    "coverage-declared": ("coverage", "drifting-*.ndjson", *GIVEN, "--confidence", "0.9"),
    "coverage-policies": (
        *("coverage", "plain-2.csv", "--policy", "@adaptive", "--policy", "policy.csv"),
        *("--policy", "@exp3-ix-given"),
    ),
    "coverage-given": ("coverage", "plain-1.parquet", "--behavior", "behavior.csv", *GIVEN),
    "coverage-estimated": ("coverage", "bare-1.csv", "--behavior", "estimated"),
    "coverage-scaled": ("coverage", "scaled-1.arrow", "--reward-range", "-1", "2"),
    "coverage-vw": ("coverage", "lines-1.vw", "--reward-range", "-1", "0"),
    "coverage-vw-events": ("coverage", "events-1.vw", "--reward-range", "-1", "0"),
    "coverage-dsjson": ("coverage", "ranked-1.dsjson", "--eligible", "a"),
    "coverage-time": ("coverage", "shuffled-1.csv.gz", *TIMED),
    "coverage-clear": ("coverage", "clear.csv", "--actions", "ab.txt"),
    "coverage-eligible": ("coverage", "eligible-1.csv", "--eligible", "could"),
    "coverage-dirty": ("coverage", "dirty.csv", *ALL_ROLES, *GIVEN),
    "coverage-dirty-given": ("coverage", "dirty.csv", "--behavior", "never_pen.json"),
    "coverage-obd": ("coverage", "obd-1.tsv", "--preset", "obd"),
    "certify-uniform": ("certify", "plain-1.csv", "--policy", "uniform"),
    "certify-uniform-declared": ("certify", "plain-1.csv", "--policy", "uniform", *GIVEN),
    "certify-fixed": ("certify", "plain-1.parquet", "--policy", "policy.csv", *GIVEN),
    "certify-better": ("certify", "clear.csv", "--policy", "always_b.json", "--actions", "ab.txt"),
    "certify-worse": (
        *("certify", "clear.csv", "clear-later.csv", "--policy", "always_a.json"),
        *("--actions", "ab.txt", "--confidence", "0.8"),
    ),
    "certify-learned": ("certify", "plain-2.csv", "--policy", "@adaptive"),
    "certify-learned-best": ("certify", "plain-2.csv", "--policy", "@adaptive", "--best-action"),
    "certify-learned-later": ("certify", "clear-later.csv", "--policy", "@promoted"),
    "certify-learned-scaled": (
        *("certify", "scaled-2.arrow", "--policy", "@prod-scaled", "--reward-range", "-1", "2"),
    ),
    "certify-contexts": ("certify", "contexts-2.csv", "--policy", "@contexts"),
    "certify-contexts-best": (
        *("certify", "contexts-2.csv", "--policy", "@contexts", "--best-action"),
    ),
    "certify-given": (
        *("certify", "plain-1.csv", "--policy", "policy.csv", "--behavior", "behavior.json"),
    ),
    "certify-estimated": (
        *("certify", "bare-1.csv", "--policy", "policy.csv", "--behavior", "estimated", *GIVEN),
    ),
    "certify-column": ("certify", "plain-1.csv", "--target-probability", "mine"),
    "certify-column-dirty": (
        *("certify", "dirty.csv", "--target-probability", "target", *ALL_ROLES, *GIVEN),
    ),
    "certify-dirty": ("certify", "dirty.csv", "--policy", "policy.csv", *ALL_ROLES, *GIVEN),
    "certify-time": ("certify", "shuffled-1.csv.gz", "--policy", "policy.csv", *TIMED),
    "certify-vw": ("certify", "lines-2.vw", "--policy", "@vw-lines", "--reward-range", "-1", "0"),
    "certify-dsjson": ("certify", "ranked-2.dsjson", "--policy", "@dsjson", "--time", "Timestamp"),
    "polars-coverage": ("coverage", "plain-*.csv", "--policy", "policy.csv", "--engine", "polars"),
    "polars-coverage-dirty": ("coverage", "dirty.csv", *GIVEN, "--engine", "polars"),
    "polars-certify-dirty": (
        *("certify", "dirty.csv", "--policy", "policy.csv", *GIVEN, "--engine", "polars"),
    ),
    "duckdb-coverage": ("coverage", "plain-*.parquet", *GIVEN, "--engine", "duckdb"),
    "duckdb-coverage-dirty": (
        *("coverage", "dirty.csv", "--behavior", "estimated", *GIVEN, "--engine", "duckdb"),
    ),
    "dask-coverage": ("coverage", "bare-*.csv", "--behavior", "estimated", "--engine", "dask"),
    **{
        f"{engine}-{name}": (*arguments, "--engine", engine)
        for engine in ("polars", "duckdb", "dask")
        for name, arguments in {
            "certify": ("certify", "plain-2.parquet", "--policy", "@adaptive", *GIVEN),
            "certify-given": (
                *("certify", "drifting-1.ndjson", "--policy", "policy.csv"),
                *("--behavior", "behavior.json"),
            ),
            "certify-column": (
                "certify",
                "plain-1.parquet",
                "--target-probability",
                "mine",
                *GIVEN,
            ),
        }.items()
        if engine != "dask" or name == "certify"  # Dask takes seconds to plan each of them
    },
}

# What 0.5.0 refuses with one line and exit code 2; OUT holds the policy of the case "adaptive".
REFUSED: dict[str, tuple[str, ...]] = {
    "strict": ("learn", "dirty.csv", "--out", "NEW", "--strict"),
    "no such learner": ("learn", "plain-1.csv", "--out", "NEW", "--learner", "ucb"),
    "no such option": ("learn", "plain-1.csv", "--out", "NEW", "--speed", "9"),
    "no such file": ("coverage", "nowhere.csv"),
    "no such column": ("coverage", "plain-1.csv", "--reward", "clicks"),
    "no out": ("learn", "plain-1.csv"),
    "a policy is there": ("learn", "plain-2.csv", "--out", "OUT"),
    "nothing to resume": ("learn", "plain-2.csv", "--out", "NEW", "--resume"),
    "the same log again": ("learn", "plain-1.csv", "--out", "OUT", "--resume"),
    "another learner": ("learn", "plain-2.csv", "--out", "OUT", "--resume", "--learner", "prod"),
    "its own log": ("certify", "plain-1.csv", "--policy", "OUT/policy.json"),
    "an engine without a horizon": ("learn", "plain-1.csv", "--out", "NEW", "--engine", "polars"),
    "an engine in order": (
        *("learn", "shuffled-1.csv.gz", "--out", "NEW", "--engine", "polars", "--horizon", "9"),
        *TIMED,
    ),
    "rewards out of range": ("learn", "scaled-1.arrow", "--out", "NEW", "--reward-range", "5", "6"),
    "a warm-up without contexts": ("learn", "plain-1.csv", "--out", "NEW", "--warmup", "9"),
    "a learner that needs propensities": (
        *("learn", "bare-1.csv", "--out", "NEW", "--learner", "exp3-ix"),
    ),
    "nothing to certify": ("certify", "plain-1.csv"),
    "an experiment without that size": ("paper", "rates", "--alphas", "3"),
    "no store": ("audit", "--store", "NEW/understudy.db"),
}

_SMALL = ("--runs", "3", "--rounds", "60")
_ACTIONS, _ALPHAS = ("--actions", "4"), ("--alphas", "2")
PAPER: dict[str, tuple[str, ...]] = {
    "figure1": (*_SMALL, *_ACTIONS, *_ALPHAS),
    "unknown": (*_SMALL, *_ACTIONS, *_ALPHAS),
    "linear": (*_SMALL, *_ACTIONS, *_ALPHAS),
    "adaptive": (*_SMALL, *_ACTIONS, *_ALPHAS),
    "rates": (*_SMALL, *_ACTIONS),
    "probability": (*_SMALL, *_ACTIONS),
}
