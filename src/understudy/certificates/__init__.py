"""Certificates: betting confidence sequences for off-policy evaluation.

A certificate bounds the reward that a target policy would have earned, from the log of another
policy. Its bounds hold after every round at once. `certify` reads a whole log, `certify_by` does so
for each group of its rounds, `Certificate` reads a log that grows.
"""

from __future__ import annotations

from understudy.certificates.certificate import (
    Certificate,
    Window,
    load_certificate,
    save_certificate,
)
from understudy.certificates.curves import Certified, certify, certify_by
from understudy.certificates.evidence import CENTERS, Bets, Evidence, WeightedRounds
from understudy.certificates.targets import FixedPolicy, largest_ratios
from understudy.certificates.uncentered import UncenteredEvidence

__all__ = [
    "CENTERS",
    "Bets",
    "Certificate",
    "Certified",
    "Evidence",
    "FixedPolicy",
    "UncenteredEvidence",
    "WeightedRounds",
    "Window",
    "certify",
    "certify_by",
    "largest_ratios",
    "load_certificate",
    "save_certificate",
]
