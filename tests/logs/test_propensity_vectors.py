"""`understudy.logs.readers.propensity_vectors`: in files and frames, as certificates use them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.command_line import Place, place
from tests.support.falling import falling, never_wrong
from tests.support.logs.rules import VECTOR_FAULTS, Actions, RejectReason
from tests.support.saved_values import saved_text
from understudy.certificates import largest_ratios
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.readers.propensity_vectors import check_vectors, read_entries

__all__ = ["place"]

pytestmark = pytest.mark.plain

N = 1_500
DECLARED = ["3", "1", "2"]  # not in the order of their numbers
POLICY: dict[int | str, float] = {"1": 0.7, "2": 0.2, "3": 0.1}
rng = np.random.default_rng(0)
V = 0.9 * rng.dirichlet(np.full(3, 3.0), N) + 0.1 / 3  # columns in the order 1, 2, 3
V /= V.sum(axis=1, keepdims=True)
ACTIONS = us.behaviors.choose(V, rng.random(N))
REWARDS = (rng.random(N) < np.array([0.95, 0.85, 0.9])[ACTIONS]).astype(float)
Q = V[np.arange(N), ACTIONS]
LOG = us.Log(ACTIONS, REWARDS, Q, propensity_vectors=V)
LISTED = V[:, [2, 0, 1]].tolist()
MAPPED = [dict(zip("123", row, strict=True)) for row in V.tolist()]
FORMS: dict[str, list[Any]] = {
    "list": LISTED,
    "struct": MAPPED,
    "text of a list": [json.dumps(row) for row in LISTED],
    "text of a mapping": [json.dumps(row, indent=1) for row in MAPPED],
}
ROWS = pl.DataFrame({"action": (ACTIONS + 1).astype(str), "reward": REWARDS, "propensity": Q})
FILES = ("parquet", "arrow", "ndjson", "csv")
CASES = [(f, k) for f in FORMS for k in FILES if k != "csv" or f.startswith("text")]


def rows_with(form: str, rows: pl.DataFrame = ROWS) -> pl.DataFrame:
    return rows.with_columns(pl.Series("chances", FORMS[form][: len(rows)]))


def write(path: Path, rows: pl.DataFrame) -> Path:
    kinds = {"arrow": "ipc"}
    getattr(rows, f"write_{kinds.get(path.suffix[1:], path.suffix[1:])}")(path)
    return path


def dsjson(path: Path, changes: dict[int, dict[str, Any]] | None = None, *, rows: int = N) -> Path:
    """The log as a decision service writes it: the chosen action first."""
    with path.open("w", encoding="utf-8") as file:
        for t in range(rows):
            order = [int(ACTIONS[t]), *(a for a in range(3) if a != ACTIONS[t])]
            event = {
                "_label_cost": -REWARDS[t],
                "_label_probability": Q[t],
                "_label_Action": order[0] + 1,
                "a": [a + 1 for a in order],
                "p": [float(V[t, a]) for a in order],
                **(changes or {}).get(t, {}),
            }
            kept = {key: value for key, value in event.items() if value is not None}
            file.write(json.dumps(kept) + "\n")
    return path


def certificate_text(found: Any) -> str:
    return saved_text(found.certified.certificate)


WANTED = us.certify(
    LOG, us.FixedPolicy(list(POLICY.values())), behavior=us.Logged(n_actions=3)
).certificate
OPTIONS: dict[str, Any] = {"actions": DECLARED, "propensity_vector": "chances"}


@pytest.mark.parametrize(("form", "kind"), CASES)
@pytest.mark.parametrize("column", [True, False])
def test_every_form_gives_the_certificate_of_arrays(
    form: str, kind: str, column: bool, tmp_path: Path
) -> None:
    """Bit for bit; without a column of propensities, a vector holds that of the action."""
    rows = rows_with(form)
    path = write(tmp_path / f"log.{kind}", rows if column else rows.drop("propensity"))
    found = us.logs.certify(path, POLICY, **OPTIONS)
    assert certificate_text(found) == saved_text(WANTED)
    assert WANTED.centered_rounds == N
    assert found.intake.refused == {}


@pytest.mark.parametrize("form", FORMS)
def test_frames_and_learning(form: str) -> None:
    learned = us.logs.learn(rows_with(form), **OPTIONS)
    learner, state = learned.policy.study.learner, None
    state, trace = learner.replay(learner.init(), us.Log(ACTIONS, REWARDS, Q))
    wanted = us.certify(LOG, trace, behavior=us.Logged(n_actions=3)).certificate
    assert certificate_text(learned) == saved_text(wanted)
    assert learner.rounds(state) == wanted.centered_rounds == N
    plain = us.logs.learn(ROWS, actions=DECLARED)
    assert learned.policy.average.tolist() == plain.policy.average.tolist()  # it sees none
    assert certificate_text(plain) != certificate_text(learned)


def test_dsjson_has_them_without_an_option(tmp_path: Path) -> None:
    path = dsjson(tmp_path / "log.dsjson")
    found = us.logs.certify(path, POLICY)
    assert certificate_text(found) == saved_text(WANTED)
    without = us.logs.certify(path, POLICY, propensity_vector="none")
    assert without.certified.certificate.centered_rounds == 0
    learned = us.logs.learn(path, actions=DECLARED, out=tmp_path / "out")
    assert learned.certified is not None
    assert learned.certified.certificate.centered_rounds == N
    # Logs of other formats have no such column, so the policy does not name it.
    settings = json.loads((tmp_path / "out" / "policy.json").read_text())["settings"]
    assert "propensity_vector" not in settings["columns"]
    assert us.logs.certify(ROWS.head(700), learned).intake.refused == {}


@pytest.mark.parametrize(
    "change", [{"p": None}, {"a": None}, {"a": None, "p": None}, {"p": [0.5]}, {"p": 0.5}]
)
def test_dsjson_without_them_is_read_as_before(change: dict[str, Any], tmp_path: Path) -> None:
    path = dsjson(tmp_path / "log.dsjson", dict.fromkeys(range(N), change))
    found = us.logs.certify(path, POLICY)
    assert (found.intake.refused, found.certified.certificate.centered_rounds) == ({}, 0)


def test_files_of_two_formats_have_them_only_if_they_are_named(tmp_path: Path) -> None:
    paths = [
        dsjson(tmp_path / "a.dsjson", rows=700),
        write(tmp_path / "b.parquet", rows_with("struct").tail(800)),
    ]
    found = us.logs.certify(paths, POLICY)
    assert (found.intake.refused, found.certified.certificate.centered_rounds) == ({}, 0)


# ---------------------------------------------------------------------------------- bad vectors

BAD = {
    "[0.5, 0.5, 0.1]": RejectReason.VECTOR_WRONG_SUM,
    "[0.5, 0.5]": RejectReason.VECTOR_WRONG_LENGTH,
    "[]": RejectReason.VECTOR_WRONG_LENGTH,
    "[0.5, 0.6, -0.1]": RejectReason.VECTOR_NO_PROBABILITIES,
    "[0.5, 0.5, null]": RejectReason.VECTOR_NO_PROBABILITIES,
    "[0.5, 0.5, NaN]": RejectReason.VECTOR_NO_PROBABILITIES,
    "[50, 25, 25]": RejectReason.VECTOR_NO_PROBABILITIES,
    "[0.5, 0.25, 0.25]": RejectReason.VECTOR_CONTRADICTS,
    "[0.5, 0.0, 0.5]": RejectReason.VECTOR_WITHOUT_ACTION,
    '{"1": 0.25, "2": 0.25, "4": 0.5}': RejectReason.VECTOR_UNKNOWN_ACTION,
    '{"2": 0.5, "3": 0.5}': RejectReason.VECTOR_WITHOUT_ACTION,
    "{}": RejectReason.VECTOR_WRONG_SUM,
    '{"": 1}': RejectReason.VECTOR_UNREADABLE,
    "0.5": RejectReason.VECTOR_UNREADABLE,
    "1, 2": RejectReason.VECTOR_UNREADABLE,
    '{"1": "x"}': RejectReason.VECTOR_UNREADABLE,
    "[[0.5, 0.5]]": RejectReason.VECTOR_UNREADABLE,
    "": RejectReason.VECTOR_MISSING,
    None: RejectReason.VECTOR_MISSING,
}
GOOD = '{"1": 0.2, "3": 0.8}'  # 2 could not be played


@pytest.mark.parametrize(("text", "reason"), BAD.items())
def test_a_bad_vector_is_quarantined_with_its_reason(
    text: str | None, reason: RejectReason, tmp_path: Path
) -> None:
    vectors = [GOOD, text, GOOD, " [ 0.8 , 0.2 , 0 ] ", '{"1": 0.2, "2": null, "3.0": "0.8"}']
    rows = pl.DataFrame({"action": "1", "reward": 1.0, "propensity": 0.2, "chances": vectors})
    found = us.logs.certify(rows, POLICY, out=tmp_path / "out", **OPTIONS)
    assert found.intake.refused == {reason.value: 1}
    assert pl.read_parquet(tmp_path / "out" / "quarantine.parquet")["row"].to_list() == [2]
    assert found.certified.certificate.rounds == 5  # nothing is lost
    best = us.logs.certify(rows.head(1), POLICY, **OPTIONS).certified.gain
    assert found.certified.gain is not None
    assert best is not None
    assert found.certified.gain < best
    [line] = [line for line in found.warnings if reason.value in line]
    assert reason.remedy in line
    with pytest.raises(InvalidLog, match="row 2: propensity vector"):
        us.logs.certify(rows, POLICY, strict=True, **OPTIONS)


def test_every_reason_is_tested() -> None:
    later = {RejectReason.VECTOR_WITHOUT_ORDER, RejectReason.PROPENSITY_CONTRADICTS}
    assert {*BAD.values()} | later == {*VECTOR_FAULTS}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"p": None}, RejectReason.VECTOR_MISSING),
        ({"a": None}, RejectReason.VECTOR_MISSING),
        ({"p": [0.5, 0.5]}, RejectReason.VECTOR_WRONG_LENGTH),
        ({"p": [0.5, None, 0.5]}, RejectReason.VECTOR_NO_PROBABILITIES),
        ({"p": ["x", 0.5, 0.5]}, RejectReason.VECTOR_NO_PROBABILITIES),
        ({"p": []}, RejectReason.VECTOR_WRONG_LENGTH),
        ({"p": 1}, RejectReason.VECTOR_WRONG_LENGTH),
        ({"p": [0.5, 0.5, 0.5]}, RejectReason.VECTOR_WRONG_SUM),
        ({"a": [7, 8, 9]}, RejectReason.VECTOR_WITHOUT_ACTION),
        ({"a": [[1], [2], [3]]}, RejectReason.VECTOR_WITHOUT_ACTION),
        ({"a": [1, 2, 3], "p": [0.2, 0.3, 0.5]}, RejectReason.VECTOR_CONTRADICTS),
    ],
)
def test_a_bad_event_of_dsjson(
    change: dict[str, Any], reason: RejectReason, tmp_path: Path
) -> None:
    found = us.logs.certify(dsjson(tmp_path / "log.dsjson", {5: change}), POLICY)
    assert found.intake.refused == {reason.value: 1}
    assert found.certified.certificate.rounds == N


def test_a_list_needs_an_order() -> None:
    """The order of `actions`; a set has none, and neither has a log without them."""
    rows, remedy = rows_with("list"), r"declare the actions in the order of the list with --actions"
    for actions in (None, set(DECLARED)):
        with pytest.raises(InvalidLog, match=remedy):
            us.logs.certify(rows, POLICY, propensity_vector="chances", actions=actions)
    found = us.logs.certify(rows_with("struct"), POLICY, propensity_vector="chances")
    assert found.intake.refused == {}


def test_the_order_of_a_file_of_actions(tmp_path: Path) -> None:
    path = tmp_path / "actions.txt"
    path.write_text("\n".join(DECLARED), encoding="utf-8")
    options: dict[str, Any] = {**OPTIONS, "actions": path}
    found = us.logs.certify(rows_with("list"), POLICY, **options)
    assert certificate_text(found) == saved_text(WANTED)


@pytest.mark.parametrize("column", [ROWS["action"] == "1", pl.Series([[["a"]]] * N)])
def test_a_column_of_another_type_is_refused(column: pl.Series) -> None:
    rows = ROWS.with_columns(chances=column)
    with pytest.raises(InvalidLog, match="not vectors of propensities; name another column with"):
        us.logs.certify(rows, POLICY, **OPTIONS)


def test_a_rounded_propensity_gives_way_to_the_vector() -> None:
    """So that W is no smaller than the weight of the action that was played."""
    rows = rows_with("list")
    rounded = rows.with_columns(propensity=pl.col("propensity").round(6))
    found = us.logs.certify(rounded, POLICY, **OPTIONS)
    assert certificate_text(found) == saved_text(WANTED)
    rounded = rows.with_columns(propensity=pl.col("propensity").round(5))
    found = us.logs.certify(rounded, POLICY, **OPTIONS)
    assert set(found.intake.refused) == {RejectReason.VECTOR_CONTRADICTS.value}


def test_a_vector_may_contradict_the_declared_least_propensity() -> None:
    lowest = float(np.sort(V.min(axis=1))[2])
    found = us.logs.certify(rows_with("struct"), POLICY, least_propensity=lowest, **OPTIONS)
    assert found.intake.refused == {RejectReason.PROPENSITY_CONTRADICTS.value: 2}
    assert found.certified.certificate.centered_rounds == N - 2


def test_guard_vectors_that_are_missing_for_one_action() -> None:
    """A center of 0 where a vector is missing would depend on the action, so that w has no mean 1.

    Such rows are quarantined, and count as the worst that they may have been.
    """
    R = falling()
    n = len(R)
    b = np.random.default_rng(0).integers(2, size=n)
    rows = {"action": np.array(["x", "y"])[b], "reward": R, "propensity": 0.5}
    vectors = [None if action else {"x": 0.5, "y": 0.5} for action in b]
    frame = pl.DataFrame(rows).with_columns(chances=pl.Series(vectors))
    found = us.logs.certify(frame, {"x": 0.1, "y": 0.9}, propensity_vector="chances")
    certificate = found.certified.certificate
    assert found.intake.refused == {RejectReason.VECTOR_MISSING.value: int(b.sum())}
    assert certificate.rounds == n
    assert never_wrong(certificate, np.zeros(n))
    wrong = us.Certificate(behavior=us.Logged(n_actions=2)).advance(
        us.Log(b, R, np.full(n, 0.5)), np.where(b, 0.9, 0.1), np.where(b, math.inf, 1.8)
    )
    assert not never_wrong(wrong, np.zeros(n))


# ------------------------------------------------------------------- actions that are not declared


def test_actions_of_the_log_alone_change_no_weight() -> None:
    """W must not depend on rows to come: only actions of the policy count, known beforehand."""
    rows = [{"x": 0.5, "y": 0.4, "z": 0.1}] * 400
    frame = pl.DataFrame({"action": ["x", "y"] * 200, "reward": 1.0, "chances": rows})
    later = pl.DataFrame({"action": ["z"], "reward": 1.0, "chances": rows[:1]})
    target: dict[int | str, float] = {"x": 0.5, "y": 0.5}
    for log in (frame, pl.concat([frame, later])):
        found = us.logs.certify(log, target, propensity_vector="chances")
        assert (found.intake.refused, found.certified.certificate.centered_rounds) == ({}, len(log))
    either: tuple[dict[str, Any], ...] = ({}, {"actions": ["x", "y", "z"]})
    for options in either:
        model = frame.with_columns(mine=0.5)
        given: dict[str, Any] = {"target_probability": "mine", "propensity_vector": "chances"}
        judged = us.logs.certify(model, **given, **options).certified.certificate
        assert judged.centered_rounds == (len(frame) if options else 0)  # it may play others


def test_the_table_has_the_actions_that_are_known_beforehand() -> None:
    entries = read_entries("log", pl.Series([{"a": 0.25, "b": 0.5, "c": 0.25}]))
    played, actions = pl.Series(["b"]), Actions(("a", "b", "c"))
    known = frozenset({"a", "b"})
    found = check_vectors(entries, played, None, actions, closed=False, known=known, least=0.0)
    assert found.table is not None
    assert found.table.tolist() == [[0.25, 0.5, 1.0]]
    log = us.Log([1], [1.0], [0.5])
    object.__setattr__(log, "propensity_vectors", found.table)
    W = largest_ratios(us.Trace(np.array([0.5]), 0, 3), log, us.Logged(n_actions=3))
    assert W.tolist() == [4.0]


# ------------------------------------------------------------------------------------- batches


def test_a_wide_table_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.logs.readers.propensity_vectors.LARGEST_TABLE", 30)
    found = us.logs.certify(rows_with("list"), POLICY, **OPTIONS)
    assert certificate_text(found) == saved_text(WANTED)


@pytest.mark.parametrize("form", ["list", "struct", "text of a mapping"])
def test_rows_may_be_sorted_and_have_ids(form: str, tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(N)
    rows = rows_with(form).with_row_index("time")[order]
    rows = pl.concat([rows, rows.tail(100)]).with_columns(request="time")
    path = write(tmp_path / "log.parquet", rows)
    found = us.logs.certify(path, POLICY, time="time", id="request", **OPTIONS)
    assert certificate_text(found) == saved_text(WANTED)
    assert found.intake.refused == {RejectReason.ID_REPEATED.value: 100}


@pytest.mark.parametrize("rules", [1, 2])
def test_a_run_by_rules_1_goes_on_without_vectors(rules: int, tmp_path: Path) -> None:
    """Release 0.5 read none, and so rejected no row for its vector."""
    path = dsjson(tmp_path / "log.dsjson", {5: {"p": [0.5, 0.5, 0.5]}})
    policy = us.logs.learn(ROWS, actions=DECLARED).policy
    (curve,) = policy.study.curves
    assert curve is not None
    certificate = us.Certificate(us.Logged(n_actions=3), rules=rules)
    study = replace(policy.study, curves=(replace(curve, certificate=certificate, points=()),))
    more = us.logs.learn(path, resume=replace(policy, study=study))
    wrong = {RejectReason.VECTOR_WRONG_SUM.value: 1}
    assert more.policy.refused == ({} if rules == 1 else wrong)


# ------------------------------------------------------------------------- settings and commands


def test_a_policy_remembers_the_column(tmp_path: Path) -> None:
    """`--resume` and `certify` take it; "none" reads none; older files have none."""
    first, rest = rows_with("struct").head(700), rows_with("struct").tail(N - 700)
    for rows in (first, rest):
        rows.drop_in_place("propensity")
    options = {**OPTIONS, "learner": "prod-grid"}
    halves = us.logs.learn(first, out=tmp_path, **options)
    saved = us.logs.Policy.load(tmp_path / "policy.json")
    assert saved.settings.columns.propensity_vector == "chances"
    assert saved.settings.columns.propensity is None
    whole = us.logs.learn(rows_with("struct").drop("propensity"), **options)
    again = us.logs.learn(rest, resume=tmp_path / "policy.json")
    assert certificate_text(again) == certificate_text(whole)
    judged = us.logs.certify(rest, saved)
    assert judged.certified.certificate.centered_rounds == len(rest)
    plain = ROWS.tail(N - 700)
    judged = us.logs.certify(plain, saved, propensity_vector="none")
    assert (judged.certified.certificate.centered_rounds, judged.intake.refused) == (0, {})
    more = us.logs.learn(plain, resume=halves, propensity_vector="none")
    assert more.policy.settings.columns.propensity_vector is None
    with pytest.raises(InvalidLog, match="or pass --propensity-vector none if there is none"):
        us.logs.certify(plain, saved)
    columns = us.logs.learn(ROWS, actions=DECLARED).policy.settings.as_data()["columns"]
    assert "propensity_vector" not in columns


@pytest.mark.parametrize("behavior", ["estimated", {"1": 0.5, "2": 0.25, "3": 0.25}])
def test_vectors_are_of_logged_propensities(behavior: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^propensity_vector = 'chances': propensities are"):
        us.logs.learn(rows_with("struct"), behavior=behavior, propensity_vector="chances")


def test_sums_in_no_order_have_one_bound() -> None:
    with pytest.raises(InvalidArgument, match=r"--propensity-vector none, and --least-propensity"):
        us.logs.certify(rows_with("struct"), POLICY, engine="polars", **OPTIONS)
    found = us.logs.certify(
        rows_with("struct"), POLICY, engine="polars", least_propensity=0.03, actions=DECLARED
    )
    assert found.report.weight_bound == "least propensity"


def test_vowpal_wabbits_text_has_none(tmp_path: Path) -> None:
    path = tmp_path / "log.vw"
    path.write_text("1:-1:0.5 | a\n2:0:0.5 | a\n", encoding="utf-8")
    with pytest.raises(InvalidLog, match="has the propensity of one action only"):
        us.logs.coverage(path, propensity_vector="p")
    with pytest.raises(InvalidLog, match="pass --propensity-vector p, or none"):
        us.logs.coverage(dsjson(tmp_path / "log.dsjson"), propensity_vector="q")


BOUNDS: dict[str, tuple[dict[str, Any], int]] = {
    "behavior": ({"behavior": dict(zip("123", V.mean(axis=0).tolist(), strict=True))}, N),
    "propensity vectors": ({"propensity_vector": "chances", "least_propensity": 0.01}, N),
    "least propensity": ({"least_propensity": 0.01}, N),
    "unknown": ({}, 0),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_result_says_what_bounds_the_weights(bound: str) -> None:
    options, centered = BOUNDS[bound]
    rows = rows_with("struct")
    results = [
        us.logs.learn(rows, actions=DECLARED, **options),
        us.logs.certify(rows, POLICY, **options),
        us.logs.coverage(rows, actions=DECLARED, **options),
    ]
    for result in results:
        assert result.report.weight_bound == bound
    for result in results[:2]:
        curve = result.report.certificate
        assert curve is not None
        assert (curve.weight_bound, curve.centered) == (bound, centered)
    assert us.logs.learn(rows, behavior="estimated").report.weight_bound is None


def test_the_commands_say_it_once(place: Place) -> None:
    log = write(place.root / "logs" / "log.parquet", rows_with("struct"))
    actions = place.write("actions.txt", "3\n1\n2\n")
    for command, more in (
        ("learn", ["--out", place.out]),
        ("coverage", []),
        ("certify", ["--policy", "uniform"]),
    ):
        given = [log, "--actions", actions, *more]
        plain = " ".join(place.run(command, *given).out.split())
        assert plain.count("Declare --least-propensity F if every action") == 1
        more_options = ["--propensity-vector", "chances"] + (
            ["--overwrite"] if more[:1] == ["--out"] else []
        )
        said = " ".join(place.run(command, *given, *more_options).out.split())
        assert "--least-propensity" not in said
        assert said.count("the logged propensities of all actions") == 1
        if command == "learn":
            continue
        found = json.loads(
            place.run(command, *given, "--propensity-vector", "chances", "--json").out
        )
        assert found["weight_bound"] == "propensity vectors"
        if found["certificate"]:
            assert found["certificate"]["weight_bound"] == "propensity vectors"
            assert found["certificate"]["centered_rounds"] == N


def test_a_log_without_declared_actions_says_that_bets_are_not_centered() -> None:
    learned = us.logs.learn(rows_with("struct"), propensity_vector="chances")
    curve = learned.report.certificate
    assert curve is not None
    assert (curve.weight_bound, curve.centered) == ("propensity vectors", 0)
