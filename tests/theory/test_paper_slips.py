"""docs/paper.md: the arithmetic behind every slip it records, and its links.

Each test evaluates both sides of a slip and checks that the page prints these very numbers.
"""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from tests.support.paths import DOCS
from tests.support.strategies import Array
from understudy import theory
from understudy.errors import InadmissibleRate, InvalidArgument

PAGE = DOCS / "paper.md"
K, N = 100, 10_000  # Figure 1
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)
UNSAFE = re.compile(r"\\[{},;!|\\]|\*|[^\w\\\s]_\w|\s_")  # what GitHub's Markdown would eat


@cache
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def slip(number: int) -> str:
    """The entry of one slip, with its line breaks taken out."""
    found = re.search(rf"^### {number}\. .*?(?=^##)", page(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"the page has no slip {number}"
    return " ".join(found.group().split())


def assert_prints(text: str, *numbers: str) -> None:
    """The numbers stand in the text, each as a number of its own."""
    for number in numbers:
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d|\.\d)", text), number


def figure1_behavior(alpha: float) -> Array:
    return us.behaviors.interpolated(n_actions=K, alpha=alpha)


def figure1_means(rounds: int) -> Array:
    return us.adversaries.switching(n_actions=K, rounds=rounds).between(0, rounds)


def widths(n_actions: int, rounds: int) -> float:
    """Σ_t ε_t of Theorem 2's proof."""
    past = np.arange(1, rounds, dtype=np.float64)
    return 1 + float(np.sqrt(np.log(n_actions * past**2) / (2 * past)).sum())


def test_slip_1_the_printed_rate_does_not_give_the_printed_bound() -> None:
    """Theorem 1: √(log K/(C n)) gives 1.5 √(C n log K); √(2 log K/(C n)) gives √(2 C n log K)."""
    coverage = us.coverage(0, figure1_behavior(1.0))

    def bound(eta: float) -> float:
        return math.log(K) / eta + eta * coverage * N / 2

    printed = bound(math.sqrt(math.log(K) / (coverage * N)))
    ours = bound(theory.exp3_ix_rate(K, N, coverage))
    assert printed == pytest.approx(1.5 * math.sqrt(coverage * N * math.log(K)))
    assert ours == pytest.approx(math.sqrt(2 * coverage * N * math.log(K)))
    assert ours == pytest.approx(theory.theorem1_tuned_bound(K, N, coverage))
    assert printed > ours
    assert_prints(
        slip(1), f"{coverage:g}", f"{printed:.1f}", f"{ours:.1f}", f"{printed / ours:.3f}"
    )


def test_slip_2_the_right_side_of_theorem_1_is_random() -> None:
    """Theorem 1: with r_t random, only the expectation of the right side is a bound."""
    eta, q, lucky = 10.0, 0.5, 0.5
    regret = lucky * (1 - 0.5)  # round 1 is played uniformly, against action 0

    def right_side(reward: float) -> float:
        return math.log(2) / eta + eta / 2 * reward / (q + eta / 2)

    expected = lucky * right_side(1.0) + (1 - lucky) * right_side(0.0)
    assert right_side(0.0) < regret <= expected
    ours = theory.theorem1_bound(0, [q, q], horizon=1, eta=eta, total_rewards=[lucky, 0.0])
    assert ours == pytest.approx(expected)
    assert_prints(slip(2), f"{regret:g}", f"{right_side(0.0):.4f}", f"{expected:.4f}")


def test_slip_3_the_experiment_breaks_the_condition_of_exp3() -> None:
    """Exp3's bound needs η ≤ min q: Figure 1 has 0.0215 against 0.000198 at its extremes."""
    eta = theory.exp3_ix_rate(K, N)
    for alpha in np.linspace(0, 1, 20):
        behavior = figure1_behavior(float(alpha))
        assert behavior.min() <= 1 / K < eta
        assert not theory.exp3_condition(eta, behavior)
    smallest = float(figure1_behavior(1.0).min())
    x = eta / smallest
    assert math.exp(x) > 1 + x + x**2
    with pytest.raises(InadmissibleRate):
        theory.exp3_bound(figure1_behavior(1.0), horizon=N, eta=eta)
    vacuous = math.log(K) / eta + eta * N / smallest
    best = theory.exp3_worst_case_bound(figure1_behavior(1.0), horizon=N)
    needed = math.log(K) / smallest
    assert vacuous > best > N
    assert theory.exp3_worst_case_rate(figure1_behavior(1.0), horizon=N) > smallest
    enough = theory.exp3_worst_case_rate(figure1_behavior(1.0), horizon=math.ceil(needed))
    assert enough <= smallest
    numbers = f"{eta:.4f}", f"{smallest:.6f}", f"{x:.1f}", f"{1 + x + x**2:.0f}", f"{1 / K:g}"
    assert_prints(slip(3), *numbers, f"{vacuous:.0f}", f"{best:.0f}", f"{needed:.0f}")
    assert_prints(slip(3), f"{len(f'{math.exp(x):.0f}')} digits")


def test_slip_3_without_its_condition_the_step_of_exp3s_proof_is_false() -> None:
    """E log⟨π, e^{ηr̂}⟩/η ≤ Σ π(r + η/q) fails when η is far above q."""
    policy, q, rewards, eta = np.array([0.01, 0.99]), np.array([0.001, 0.999]), np.eye(2)[0], 0.02
    seen = np.exp(eta * np.diag(rewards / q))  # row b: e^{ηr̂} if the behavior plays b
    growth = float(q @ np.log(seen @ policy)) / eta
    claimed = float(policy @ (rewards + eta / q))
    assert growth > claimed
    assert_prints(slip(3), f"{growth:.3f}", f"{claimed:.3f}")


def test_slip_4_prod_is_eta_equal_to_two_gamma() -> None:
    """(1 + 2γr̂)^{η/2γ} is Prod's 1 + ηr̂ for η = 2γ and not for η = γ."""
    eta, r_hat = 0.5, 2.0

    def factor(gamma: float) -> float:
        return math.exp(eta / (2 * gamma) * math.log(1 + 2 * gamma * r_hat))

    assert factor(eta / 2) == pytest.approx(1 + eta * r_hat)
    assert factor(eta) == pytest.approx(math.sqrt(1 + 2 * eta * r_hat))
    learner = us.prod([0.5, 0.5], eta=eta)  # reward 1 at q = ½: r̂ = 2
    policy = learner.policy(learner.update(learner.init(), us.Feedback(action=0, reward=1.0)))
    assert policy[0] / policy[1] == pytest.approx(factor(eta / 2))
    assert_prints(slip(4), f"{factor(eta):.3f}", f"{factor(eta / 2):g}")


def test_slip_5_the_condition_of_theorem_3_can_be_weaker() -> None:
    """ηκ ≤ ½ with κ = sup φᵀV⁻¹φ suffices, and κ ≤ sup‖φ‖²/λ_min."""
    features = np.array([[[1.0, 0.0], [0.0, 0.3]]])
    V = theory.feature_covariance([[0.9, 0.1]], features)
    kappa = theory.largest_leverage(features, V)
    crude = theory.kappa_from_feature_bound(V, 1.0)
    assert kappa < crude
    products = features[0] @ np.linalg.inv(V) @ features[0].T
    assert np.abs(products).max() <= kappa * (1 + 1e-12)
    rates = [theory.largest_lin_prod_rate(bound) for bound in (kappa, crude)]
    assert_prints(slip(5), f"{kappa:.0f}", f"{crude:.1f}", *(f"{rate:.4g}" for rate in rates))


def test_slip_6_an_unknown_covariance_biases_estimates_both_ways() -> None:
    """(V + βI)⁻¹Vθ overestimates some rewards and underestimates others: no pessimism."""
    features, rewards, beta = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([1.0, 0.0]), 0.1
    V = theory.feature_covariance([[0.5, 0.5]], features[np.newaxis])
    theta = np.linalg.solve(features, rewards)
    estimates = features @ np.linalg.solve(V + beta * np.eye(2), V @ theta)
    assert estimates[0] < rewards[0]
    assert estimates[1] > rewards[1]
    assert_prints(slip(6), f"{estimates[0]:.3f}", f"{estimates[1]:.3f}")
    with pytest.raises(InvalidArgument, match="singular"):
        us.lin_prod(np.diag([1.0, 0.0]), n_actions=2, eta=0.1, kappa=2.0)


def test_slip_7_two_sided_hoeffding_fails_with_twice_delta() -> None:
    """2K deviations of probability δ_t/K each: 2δ_t in all, which is what the code counts."""
    n_actions, t = 10, 50
    delta = (t - 1) ** -2.0
    epsilon = math.sqrt(math.log(n_actions / delta) / (2 * (t - 1)))
    one_side = math.exp(-2 * (t - 1) * epsilon**2)
    assert one_side == pytest.approx(delta / n_actions)
    assert 2 * n_actions * one_side == pytest.approx(2 * delta)

    def failures(horizon: int) -> float:  # what the bound, linear in C, has at C = 0 beyond log K/η
        one, two = (
            theory.theorem2_bound(n_actions, horizon=horizon, eta=1.0, coverage=coverage)
            for coverage in (1.0, 2.0)
        )
        return 2 * one - two

    step = failures(t) - failures(t - 1)
    assert step == pytest.approx((1 + 2 / 1.0) * 2 * delta, rel=1e-6)


def test_slip_8_the_sum_of_the_failure_probabilities_is_below_its_limit() -> None:
    """δ_1 = 0 and δ_2 = 1 are not in (0, 1); Σδ_t < π²/6 for every n."""
    delta = np.concatenate([[0.0], np.arange(1, 11, dtype=np.float64) ** -2])  # n = 11
    assert delta[:2].tolist() == [0.0, 1.0]
    assert delta.sum() < math.pi**2 / 6 < 2
    assert_prints(slip(8), f"{math.pi**2 / 6:.4f}", f"{delta.sum():.4f}", str(len(delta)))


def test_slip_9_the_last_display_of_theorem_2_is_too_small() -> None:
    """2Σε_t exceeds 2√(n log(Kn)); 4√(n log(Kn)) is right, and the 16 could be 6.58."""
    n_actions, rounds = 100, 10**6
    needed = 2 * widths(n_actions, rounds)
    display = 2 * math.sqrt(rounds * math.log(n_actions * rounds))
    assert display < needed <= 2 * display
    constant = 2 * math.pi**2 / 3
    assert constant < 16
    numbers = (needed, display, 2 * display)
    assert_prints(slip(9), *(f"{number:.0f}" for number in numbers), f"{constant:.2f}")


@pytest.mark.parametrize("n_actions", [2, 3, 10, 100, 10**6])
@pytest.mark.parametrize("rounds", [1, 2, 3, 10, 1000, 100_000])
def test_slip_9_our_closed_form_is_above_the_sums(n_actions: int, rounds: int) -> None:
    """Σε_t ≤ 2√(n log(Kn)), and the simplified bound of Theorem 2 is never below the full one."""
    assert widths(n_actions, rounds) <= 2 * math.sqrt(rounds * math.log(n_actions * rounds))
    eta = theory.exp3_ix_rate(n_actions, rounds)
    for coverage in (1.0, float(n_actions)):
        full = theory.theorem2_bound(n_actions, horizon=rounds, eta=eta, coverage=coverage)
        assert full <= theory.theorem2_simplified_bound(n_actions, rounds, coverage)


def test_slip_10_the_ghost_context_inequality_fails_on_a_path() -> None:
    """Eq. (regret_X0) has the mean of r̂² on the right; on one path r̂² itself is needed."""
    q, eta, rounds = 0.01, 0.005, 20
    V = np.diag([q, 1 - q])
    learner = us.lin_prod(V, n_actions=2, eta=eta, kappa=1 / q)
    log = us.Log(
        np.zeros(rounds, np.int64), np.ones(rounds), features=np.array([np.eye(2)] * rounds)
    )
    _, policies = learner.policies(learner.init(), log)
    r_hat = 1 / q  # of action 0, in every round; that of action 1 is 0
    estimated_regret = float(((1 - policies[:, 0]) * r_hat).sum())
    as_printed = math.log(2) / eta + eta * rounds / q
    lemma = math.log(2) / eta + eta * rounds * r_hat**2
    assert as_printed < estimated_regret <= lemma
    numbers = (estimated_regret, as_printed, lemma)
    assert_prints(slip(10), f"{eta:g}", str(rounds), *(f"{number:.1f}" for number in numbers))


def test_slip_11_the_sum_of_the_traces_has_n_terms() -> None:
    """Theorem 3's proof: Σ_t Tr(V⁻¹V*) is n C_φ, not C_φ."""
    n_actions, coverage = 10, 5.0
    eta = theory.lin_prod_rate(n_actions, N, coverage)
    theorem = theory.lin_prod_bound(n_actions, horizon=N, eta=eta, coverage=coverage)
    assert theorem == pytest.approx(theory.lin_prod_tuned_bound(n_actions, N, coverage))
    without = 2 * math.sqrt(coverage * math.log(n_actions))  # min over η of log K/η + ηC
    assert theorem == pytest.approx(without * math.sqrt(N))
    assert_prints(slip(11), f"{theorem:.1f}", f"{without:.1f}")


def test_slip_12_the_sign_in_the_prod_lemma() -> None:
    """ηr̂ ≥ −½ keeps 1 + ηr̂ positive, and log(1+z) ≥ z − z²; 1 − ηr̂ may be negative."""
    z = np.linspace(-0.5, 10, 100_001)
    assert (1 + z > 0).all()
    assert (np.log1p(z) >= z - z**2).all()
    assert (1 - z).min() < 0
    edge, allowed = -0.5, 3.0
    assert_prints(slip(12), f"{1 + edge:g}", f"{allowed:g}", f"-{abs(1 - allowed):g}")


def test_slip_13_the_potential_display_mixes_two_actions() -> None:
    """log(w(ā)/K)/η is G(ā) − log K/η; with another action's G it is something else."""
    eta, gains = 1.0, np.array([3.0, 1.0])
    left = np.log(np.exp(eta * gains) / len(gains)) / eta
    right = gains - math.log(len(gains)) / eta
    assert left == pytest.approx(right)
    assert left[1] != pytest.approx(right[0])
    potential = math.log(np.exp(eta * gains).mean()) / eta
    assert (right <= potential).all()
    assert_prints(slip(13), f"{left[1]:.3f}", f"{right[0]:.3f}")


def test_slip_14_the_indicator_is_the_behaviors() -> None:
    """With 1{A_t = a} the estimate has mean r π_t/q; and c → 0 gives r̂, c = 0 divides by 0."""
    policy, q, reward = 0.9, 0.3, 0.5
    wrong, right = reward / q * policy, reward / q * q
    assert right == pytest.approx(reward)
    assert wrong != pytest.approx(reward)
    r_hat, c = reward / q, 1e-9
    assert math.log1p(2 * c * r_hat) / (2 * c) == pytest.approx(r_hat)
    assert_prints(slip(14), f"{policy:g}", f"{q:g}", f"{reward:g}", f"{wrong:g}")


def test_slip_15_the_behavior_family_starts_at_one() -> None:
    """Over i = 1..K the weights sum to (K+1)/2; i = 0 would be one action too many."""
    for alpha in (0.0, 0.3, 1.0):
        i = np.arange(0, K + 1)
        weights = (1 - alpha) * i / K + alpha * (1 - (i - 1) / K)
        assert weights[1:].sum() == pytest.approx((K + 1) / 2)
        assert weights[1:] / weights[1:].sum() == pytest.approx(figure1_behavior(alpha))
    stolen = weights[0] / weights.sum()  # at α = 1
    assert_prints(slip(15), f"{stolen:.4f}", f"{1 - stolen:.4f}", str(len(weights)), str(K))


def test_slip_16_a_thousand_steps_cannot_give_the_figure() -> None:
    """Regret against action 0 is at most (n/2)·½: 250 in 1000 rounds, 2500 in 10 000."""

    def ceiling(rounds: int) -> float:
        means = figure1_means(rounds)
        return float((means[:, 0] - means.min(axis=1)).sum())

    assert ceiling(N) == pytest.approx(N / 2 * 0.5)
    assert_prints(slip(16), f"{ceiling(N):.0f}", f"{ceiling(1000):.0f}", str(N))
    for alpha in (0.0, 1.0):
        behavior = figure1_behavior(alpha)
        game = us.Game(us.adversaries.switching(n_actions=K, rounds=N), behavior, N)
        learners = {
            "Exp3": us.exp3(behavior, horizon=N),
            "Exp3-IX": us.exp3_ix(behavior, horizon=N),
        }
        result = us.simulate(game, learners, runs=10, comparators=[0])
        for name in learners:
            regret = result.regret[name][:, 0]
            assert ceiling(1000) < regret.mean()
            assert regret.max() <= ceiling(N)


def test_slip_17_the_comparator_of_figure_1_is_always_covered() -> None:
    """min q is 1/5050 at the extremes, not 0; Theorem 1's bound is above the ceiling anyway."""
    worst, best = figure1_behavior(0.0), figure1_behavior(1.0)
    assert worst.min() == pytest.approx(2 / (K * (K + 1)))
    assert worst[0] == worst.min()
    coverages = [us.coverage(0, behavior) for behavior in (worst, best)]
    eta, totals = theory.exp3_ix_rate(K, N), figure1_means(N).sum(axis=0)
    bounds = [
        theory.theorem1_bound(0, behavior, horizon=N, eta=eta, total_rewards=totals)
        for behavior in (worst, best)
    ]
    assert min(bounds) > N / 2 * 0.5
    assert_prints(slip(17), *(f"{coverage:g}" for coverage in coverages))
    assert_prints(slip(17), f"{N * worst[0]:.2f}", f"{N / 2 * worst[0]:.2f}")
    assert_prints(slip(17), *(f"{bound:.1f}" for bound in bounds))


def test_slip_18_good_coverage_is_what_there_is_to_profit_from() -> None:
    """Theorem 1's bound grows with C: a well-covered comparator is the favorable case."""
    bounds = [theory.theorem1_uniform_bound(K, N, coverage) for coverage in (50.5, 5050.0)]
    assert bounds[0] < bounds[1]
    assert_prints(slip(18), *(f"{bound:.0f}" for bound in bounds))


def test_slip_19_matching_policies_have_coverage_k_and_it_is_not_the_least() -> None:
    """C(q; q) = K and C_φ(q; q) = d exactly; the behavior's favorite action has 1/max q ≤ K."""
    q = [0.7, 0.2, 0.1]
    own, favorite = us.coverage(q, q), us.coverage(0, q)
    assert own == pytest.approx(3)
    assert favorite == pytest.approx(1 / max(q))
    assert favorite < own
    features = np.array([[[1.0, 0.2], [0.3, 0.9], [0.5, 0.5]]])
    V = theory.feature_covariance([q], features)
    assert us.feature_coverage(V, V) == pytest.approx(2)
    one_hot = [
        theory.feature_covariance([policy], np.eye(3)[np.newaxis]) for policy in ([*q[::-1]], q)
    ]
    assert us.feature_coverage(*one_hot) == pytest.approx(us.coverage(q[::-1], q))
    assert_prints(slip(19), f"{own:.0f}", f"{favorite:.2f}")


def test_slip_20_the_star_has_a_self_loop_at_its_center() -> None:
    """If A_t = A^B_t the learner sees its own reward, with probability Σ π_t q: 1/K in round 1."""
    for alpha in (0.0, 0.4, 1.0):
        behavior = figure1_behavior(alpha)
        start = us.exp3_ix(behavior, horizon=N)
        assert float(start.policy(start.init()) @ behavior) == pytest.approx(1 / K)
    assert_prints(slip(20), f"{1 / K:g}")


def test_choice_any_gamma_of_at_least_half_eta_keeps_the_inequality_behind_ix() -> None:
    """R/(q+γ) ≤ log(1+ηr̂)/η for γ ≥ η/2; for γ = 0 it fails."""
    eta, R = 0.3, np.linspace(0, 1, 11)[:, np.newaxis]
    q = np.linspace(0.01, 1, 100)
    logarithmic = np.log1p(eta * R / q) / eta
    for gamma in (eta / 2, eta, 10.0):
        assert (R / (q + gamma) <= logarithmic * (1 + 1e-12)).all()
    assert (R / q > logarithmic)[R[:, 0] > 0].all()


def test_choice_an_unseen_action_has_a_finite_bound() -> None:
    """q(a) = 0: the bias is all of r, so Theorem 1 in full is log K/η + Σ_t r_t."""
    bound = theory.theorem1_bound(1, [1.0, 0.0], horizon=50, eta=0.1)
    assert bound == pytest.approx(math.log(2) / 0.1 + 50)
    learner = us.exp3_ix([1.0, 0.0], eta=0.1)
    with pytest.raises(InvalidArgument, match="probability 0"):
        learner.update(learner.init(), us.Feedback(action=1, reward=1.0))


def test_choice_losses_make_ix_optimistic() -> None:
    """E r̃ = r q/(q+γ) is above r when r < 0, which is why such rewards are refused."""
    q, gamma, reward = 0.2, 0.1, -1.0
    mean = reward * q / (q + gamma)
    assert mean > reward
    with pytest.raises(InvalidArgument, match="more must stay better"):
        us.Feedback(action=0, reward=reward)
    assert_prints(page(), f"-{abs(mean):.3f}")


def test_every_slip_has_a_test() -> None:
    listed = {int(number) for number in re.findall(r"^### (\d+)\. ", page(), re.MULTILINE)}
    tested = {
        int(number) for number in re.findall(r"def test_slip_(\d+)_", Path(__file__).read_text())
    }
    assert listed == tested == set(range(1, len(listed) + 1))
    mentioned = {int(number) for number in re.findall(r"slips? (\d+)", page())}
    assert mentioned <= listed


def test_links_lead_somewhere() -> None:
    """Files exist, anchors are headings, and a linked name is defined in the linked file."""
    headings = re.findall(r"^#+ (.+)$", page(), re.MULTILINE)
    anchors = {
        "#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
    links = LINK.findall(page())
    assert len(links) > 50
    for text, target in links:
        if target.startswith("#"):
            assert target in anchors, target
            continue
        path = (PAGE.parent / target).resolve()
        assert path.is_file(), target
        code = CODE.fullmatch(text)
        assert code is not None, f"{text!r} is not a code name"
        name = code.group(1)
        if IDENTIFIER.fullmatch(name):
            defined = re.compile(rf"^(?:def|class) {name}\b|^{name}\b.*=", re.MULTILINE)
            assert defined.search(path.read_text(encoding="utf-8")), f"{name} is not in {target}"
        else:
            assert target.endswith(name), f"{name} is not {target}"


def test_formulas_survive_markdown() -> None:
    """No formula has what GitHub's Markdown takes for an escape or for emphasis."""
    formulas = [display or inline for display, inline in MATH.findall(page())]
    assert len(formulas) > 100
    assert not [formula for formula in formulas if UNSAFE.search(formula)]
