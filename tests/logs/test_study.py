"""The study of `understudy.logs.runs`: a fold over rows, whose curve is that of `us.certify`."""

from __future__ import annotations

import numpy as np

import understudy as us
from understudy import Certified
from understudy.logs.runs.study import Study


def test_a_study_is_a_fold_and_its_curve_is_that_of_certify() -> None:
    rng = np.random.default_rng(0)
    n, K = 700, 4
    q = np.full(n, 0.25)
    log = us.Log(rng.integers(K, size=n), rng.integers(2, size=n).astype(float), q)
    learner = us.exp3_ix(us.Logged(n_actions=K))
    begin = Study.begin(learner, us.Logged(n_actions=K), 0.95)
    study = begin
    for part in log.stretches(37):
        study = study.after(part)
    state, trace = learner.replay(learner.init(), log)
    certified = us.certify(log, trace, behavior=us.Logged(n_actions=K))
    assert study.certificate is not None
    found = Certified.of(study.certificate, study.curve)
    assert np.array_equal(learner.policy(study.state), learner.policy(state))
    for name in ("rounds", "lower_curve", "upper_curve", "production_curve", "gain_curve"):
        assert np.array_equal(getattr(found, name), getattr(certified, name)), name
    assert study.sums.rows == study.rounds == n
