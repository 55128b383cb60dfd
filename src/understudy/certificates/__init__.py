"""Certificates: betting confidence sequences for off-policy evaluation.

A certificate bounds the reward that a target policy would have earned, from the log of another
policy. Its bounds hold after every round at once. `certify` reads a whole log, `certify_by` does so
for each group of its rounds, `Certificate` reads a log that grows.
"""

from __future__ import annotations

from understudy.certificates.certificate import Certificate
from understudy.certificates.curves import Certified, certify, certify_by
from understudy.certificates.difference import AnyCertificate, DifferenceCertificate
from understudy.certificates.evidence import (
    CENTERS,
    BaselineRounds,
    Bets,
    Evidence,
    WeightedRounds,
    Window,
)
from understudy.certificates.guardrails import Guardrail
from understudy.certificates.joint import JointCertificate
from understudy.certificates.segments import SegmentCertificates, SegmentGain
from understudy.certificates.storage import load_certificate, save_certificate
from understudy.certificates.targets import FixedPolicy, largest_ratios
from understudy.certificates.uncentered import UncenteredEvidence

__all__ = [
    "CENTERS",
    "AnyCertificate",
    "BaselineRounds",
    "Bets",
    "Certificate",
    "Certified",
    "DifferenceCertificate",
    "Evidence",
    "FixedPolicy",
    "Guardrail",
    "JointCertificate",
    "SegmentCertificates",
    "SegmentGain",
    "UncenteredEvidence",
    "WeightedRounds",
    "Window",
    "certify",
    "certify_by",
    "largest_ratios",
    "load_certificate",
    "save_certificate",
]
