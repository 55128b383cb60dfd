"""Understudy: online learning from off-policy feedback, with guarantees.

A learner that never sees its own rewards, only those of the behavior policy, and that still
has bounds on its regret: the algorithms, the game and the theory of "Online Learning with
Off-Policy Feedback" (Gabbianelli, Papini, Neu).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from understudy import behaviors, contexts, errors, estimators, learners, theory
from understudy.behaviors import Logged
from understudy.certificates import (
    Certificate,
    Certified,
    DifferenceCertificate,
    FixedPolicy,
    Guardrail,
    JointCertificate,
    SegmentCertificates,
    certify,
    certify_by,
    load_certificate,
    save_certificate,
)
from understudy.conformance import check_learner
from understudy.learners import (
    coverage_adaptive,
    exp3,
    exp3_ix,
    exp3_ix_unknown,
    exp4,
    lin_prod,
    lin_prod_compact,
    lin_prod_unknown,
    per_context,
    prod,
    prod_grid,
    ridge,
)
from understudy.snapshots import Understudy, load
from understudy.theory import coverage, feature_coverage
from understudy.types import Feedback, Log, Round, Trace, saved

if TYPE_CHECKING:
    from understudy import live, logs
    from understudy.simulation import (
        Game,
        Plan,
        PlannedGuardrail,
        Results,
        Sweep,
        adversaries,
        plan,
        play,
    )
    from understudy.simulation.simulate import Simulation, simulate

__version__ = "0.5.0"

__all__ = [
    "Certificate",
    "Certified",
    "DifferenceCertificate",
    "Feedback",
    "FixedPolicy",
    "Game",
    "Guardrail",
    "JointCertificate",
    "Log",
    "Logged",
    "Plan",
    "PlannedGuardrail",
    "Results",
    "Round",
    "SegmentCertificates",
    "Simulation",
    "Sweep",
    "Trace",
    "Understudy",
    "adversaries",
    "behaviors",
    "certify",
    "certify_by",
    "check_learner",
    "contexts",
    "coverage",
    "coverage_adaptive",
    "errors",
    "estimators",
    "exp3",
    "exp3_ix",
    "exp3_ix_unknown",
    "exp4",
    "feature_coverage",
    "learners",
    "lin_prod",
    "lin_prod_compact",
    "lin_prod_unknown",
    "live",
    "load",
    "load_certificate",
    "logs",
    "per_context",
    "plan",
    "play",
    "prod",
    "prod_grid",
    "ridge",
    "save_certificate",
    "saved",
    "simulate",
    "theory",
]


EXTRAS = {"live": "talking to a live service", "logs": "reading logs"}
SIMULATION = {
    *("Game", "Plan", "PlannedGuardrail", "Results", "Simulation", "Sweep"),
    *("adversaries", "plan", "play", "simulate"),
}


def __getattr__(name: str) -> Any:
    """Import a part when it is first used: the extras, and the simulations that no log needs."""
    if name in SIMULATION:
        return getattr(importlib.import_module("understudy.simulation"), name)
    if name not in EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with errors.require_extra(name, EXTRAS[name]):
        return importlib.import_module(f"understudy.{name}")
