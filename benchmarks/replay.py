"""Learning from ten million logged events, beside river, Vowpal Wabbit and NumPy.

river's Exp3 has no replay: its loop calls pull, which computes the probabilities, and update with
the logged action. Vowpal Wabbit reads its own text format with its own reader (`--cb`). Both are
timed on a part of the log; rates are compared. NumPy's bincount only sums the rewards.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

import understudy as us
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing
from understudy.constraints import Array
from understudy.types import Integers

__all__ = ["REPLAY", "installed", "replay_in_vowpal", "skipped", "write_for_vowpal"]

K = 100
OURS = "Understudy, Exp3-IX with trace, one core"
UNKNOWN = "Understudy, Exp3-IX, behavior unknown"
BINCOUNT = "NumPy bincount"
RIVER = "river, Exp3"
VOWPAL = "Vowpal Wabbit, --cb 100 --cb_type ips"
UNIT = "M events/s"


def contenders(quick: bool) -> Iterator[Contender]:
    events = 10_000 if quick else 10_000_000
    pi_b = us.behaviors.interpolated(n_actions=K, alpha=0.9)
    rng = np.random.default_rng(0)
    actions = us.behaviors.choose(pi_b, rng.random(events))
    rewards = (rng.random(events) < 0.5).astype(np.float64)  # noqa: PLR2004 - a fair coin
    log = us.Log(actions, rewards)
    known = us.exp3_ix(pi_b, horizon=events)
    unknown = us.exp3_ix_unknown(K, horizon=events)
    for learner in (known, unknown):
        learner.replay(learner.init(), log[:10])  # compiled, or loaded, before the clock runs
    yield Contender(OURS, partial(known.replay, known.init(), log), events, UNIT)
    yield Contender(UNKNOWN, partial(unknown.replay, unknown.init(), log), events, UNIT)
    yield Contender(
        BINCOUNT, lambda: np.bincount(log.actions, weights=log.rewards, minlength=K), events, UNIT
    )
    part = slice(min(events, 1_000 if quick else 20_000))
    if installed("river"):
        some = len(actions[part])
        yield Contender(RIVER, lambda: replay_in_river(actions[part], rewards[part]), some, UNIT)
    if installed("vowpalwabbit"):
        some = len(actions[part])
        file = write_for_vowpal(actions[part], rewards[part], pi_b[actions[part]])
        yield Contender(VOWPAL, lambda: replay_in_vowpal(file.name), some, UNIT, repeats=3)


def installed(package: str) -> bool:
    """Whether a package is installed.

    >>> installed("numpy"), installed("no_such_peer")
    (True, False)
    """
    return importlib.util.find_spec(package) is not None


def replay_in_river(actions: Integers, rewards: Array) -> None:
    """Run river's loop, with γ so small that its weights, which are no logarithms, stay finite."""
    from river import bandit  # noqa: PLC0415 - a peer, and optional

    policy = bandit.Exp3(gamma=0.01, seed=0)
    arms = list(range(K))
    for action, reward in zip(actions.tolist(), rewards.tolist(), strict=True):
        policy.pull(arms)
        policy.update(action, reward)


def write_for_vowpal(
    actions: Integers, rewards: Array, propensities: Array
) -> tempfile._TemporaryFileWrapper[str]:
    """Write the log as `action:cost:probability |` into a file that is deleted when closed."""
    file = tempfile.NamedTemporaryFile("w", suffix=".vw")  # noqa: SIM115 - it must outlive this call
    events = zip(actions.tolist(), rewards.tolist(), propensities.tolist(), strict=True)
    for action, reward, propensity in events:
        file.write(f"{action + 1}:{-reward:g}:{propensity:.9g} |\n")
    file.flush()
    return file


def replay_in_vowpal(path: str) -> None:
    import vowpalwabbit  # noqa: PLC0415 - a peer, and optional

    arguments = f"--cb {K} --cb_type ips --data {Path(path)} --quiet --no_stdin"
    vowpalwabbit.Workspace(arguments).finish()


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    ours = timings[OURS].value
    wanted = {RIVER: 600.0, VOWPAL: None, BINCOUNT: None}
    return [
        Ratio(f"{OURS} / {peer}", ours / timings[peer].value, at_least=bound)
        for peer, bound in wanted.items()
        if peer in timings
    ]


def skipped() -> list[str]:
    """The peers that are not installed, and the command that installs them.

    >>> all("pip install" in words for words in skipped())
    True
    """
    return [
        f"{package} is not installed (pip install 'understudy[bench]')"
        for package in ("river", "vowpalwabbit")
        if not installed(package)
    ]


REPLAY = Benchmark(
    "replay", "Replay of 10 000 000 logged events, K = 100", contenders, ratios, skipped
)
