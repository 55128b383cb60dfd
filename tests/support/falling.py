"""A world in which the mean reward so far stays above the rewards, and the truth about gains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from understudy.certificates import AnyCertificate

Array = NDArray[np.float64]


def falling(n: int = 3_000) -> Array:
    """Rewards of 1 in the first rounds, and of 0 later: the mean so far stays above the rewards."""
    return (np.arange(n) < n // 10).astype(float)


def never_wrong(certificate: AnyCertificate, gains: Array) -> bool:
    """Whether no lower bound on the gain is above the truth, since round 1 and in the window."""
    assert certificate.gain is not None
    assert certificate.window is not None
    start, gain = certificate.window
    total, mean = float(gains.sum()), float(gains[start - 1 :].mean())
    return certificate.gain <= total + 1e-6 and gain <= mean + 1e-6
