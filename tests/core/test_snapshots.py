"""`understudy.snapshots`: bit for bit there and back, only `InvalidSnapshot` for damaged ones."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.support.example_learners import example_learners, example_log
from tests.support.strategies import Integers
from understudy.errors import BrokenLaw, InvalidArgument, InvalidSnapshot, NotSaveable
from understudy.learners import Estimates, Learner, LinProd, Scores
from understudy.snapshots import (
    VERSION,
    as_data,
    from_data,
    from_json,
    indented,
    to_json,
    write_atomically,
)

PI = [0.4, 0.3, 0.2, 0.1]
BLOCKS = np.array([[[0.3, 0.1], [0.1, 0.3]], [[0.2, 0.0], [0.0, 0.4]], np.eye(2) * 0.3])
HELD_OUT = 30

ANOTHER_RATE: Any = us.exp3_ix_unknown(4, eta=0.3)
WIDTH_OF_ANOTHER_RATE = ANOTHER_RATE.estimator.gamma
LEARNERS: dict[str, Learner[Any]] = {
    **dict(example_learners()),
    "logged exp3": us.exp3(us.Logged(n_actions=5), horizon=10),
    "logged exp3_ix": us.exp3_ix(us.Logged(n_actions=5), horizon=10),
    "logged prod": us.prod(us.Logged(n_actions=5), eta=1 / 3),
    "tabulated gamma": us.exp3_ix(PI, eta=0.1, gamma=1 / np.arange(1, 200)),
    "tabulated, unknown": us.exp3_ix_unknown(3, eta=0.1, gamma=1 / np.arange(1, 200)),
    "unknown, kl": us.exp3_ix_unknown(3, horizon=50, width="kl"),
    "unknown, kl, without a horizon": us.exp3_ix_unknown(3, width="kl"),
    "Hoeffding width, another rate": us.exp3_ix_unknown(4, eta=0.1, gamma=WIDTH_OF_ANOTHER_RATE),
    "unseen action": us.exp3_ix([0.5, 0.0, 0.5], horizon=20),
    "disjoint": us.lin_prod(BLOCKS, n_actions=3, horizon=100, feature_bound=2.0),
    "disjoint, compact": us.lin_prod_compact(BLOCKS, n_actions=3, eta=0.01, feature_bound=2.0),
    "no horizon, compact": us.lin_prod_compact(BLOCKS, n_actions=3, kappa=20.0),
    "disjoint, unknown": us.lin_prod_unknown(
        n_actions=3, dimension=2, feature_bound=2.0, eta=0.1, beta=3.0, disjoint=True
    ),
    "capped": us.lin_prod(BLOCKS, n_actions=3, horizon=1, kappa=7.0),
}
DAMAGED = [
    "exp3_ix",
    "exp3_ix_unknown",
    "tabulated gamma",
    "logged prod",
    "lin_prod",
    "disjoint",
    "no horizon, compact",
    "lin_prod_unknown",
    "prod_grid",
    "ridge",
    "per_context",
    "exp4",
]


def trained(learner: Learner[Any], rounds: int = 20) -> Any:
    """The learner's state after an example log."""
    return learner.replay(learner.init(), example_log(learner, rounds, seed=3))[0]


def snapshot(name: str) -> dict[str, Any]:
    """A good snapshot as data that a test may damage."""
    learner = LEARNERS[name]
    data: dict[str, Any] = json.loads(to_json(learner, trained(learner, rounds=3)))
    return data


def bits(values: Any) -> list[bytes]:
    """The numbers as their eight bytes: -0.0 is not 0.0, and no number is nearly another."""
    return [struct.pack("<d", value) for value in values]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_snapshot_survives_the_round_trip(name: str) -> None:
    learner = LEARNERS[name]
    state = trained(learner)
    text = to_json(learner, state)
    again, loaded = from_json(text)
    assert to_json(again, loaded) == text
    assert type(again) is type(learner)
    assert type(loaded) is type(state)
    assert again.spec.features == learner.spec.features
    assert again.rounds(loaded) == 20
    assert again.past_horizon(loaded) == learner.past_horizon(state)


@pytest.mark.parametrize("name", LEARNERS)
def test_going_on_after_loading_is_going_on(name: str, tmp_path: Path) -> None:
    """State, trace and later snapshots of an understudy do not show that it was ever loaded."""
    learner = LEARNERS[name]
    log = example_log(learner, rounds=60, seed=5)
    direct = us.Understudy(learner)
    direct.replay(log[:HELD_OUT])
    direct.save(tmp_path / "half.json")
    loaded = us.load(tmp_path / "half.json")
    traces = [understudy.replay(log[HELD_OUT:]) for understudy in (direct, loaded)]
    assert bits(traces[0].probability) == bits(traces[1].probability)
    assert traces[0].past_horizon == traces[1].past_horizon
    assert to_json(direct.learner, direct.state) == to_json(loaded.learner, loaded.state)


def test_a_loaded_state_is_read_only() -> None:
    learner = LEARNERS["exp3"]
    _, state = from_json(to_json(learner, trained(learner)))
    with pytest.raises(ValueError, match="read-only"):
        state.scores[0] = 1.0


NUMBERS = st.one_of(
    st.floats(-1e300, 1e300, allow_nan=False),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1e300, 0.1 + 0.2, 2.0**53 + 1, 1e-310]),
)


def consistent(
    learner: us.learners.ExponentialWeights, scores: list[float], rounds: int, memory: Integers
) -> Scores:
    """A state with any scores, whose sum of weights is theirs."""
    G = np.array(scores)
    with np.errstate(over="ignore"):
        total = float(np.exp(learner.eta * (G - G.max())).sum())
    return Scores(G, np.zeros(len(G)), rounds, memory, float(G.max()), total)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    scores=st.lists(NUMBERS, min_size=4, max_size=4),
    rounds=st.integers(0, 2**53),
    eta=st.floats(1e-300, 1e100),
)
def test_every_bit_of_scores_and_rates_survives(
    scores: list[float], rounds: int, eta: float
) -> None:
    learner = us.exp3(PI, eta=eta)
    state = consistent(learner, scores, rounds, np.zeros(0, dtype=np.int64))
    again, loaded = from_json(to_json(learner, state))
    assert isinstance(again, us.learners.ExponentialWeights)
    assert bits([again.eta, *loaded.scores]) == bits([eta, *scores])
    assert loaded.rounds == rounds


@settings(deadline=None, derandomize=True, max_examples=50)
@given(counts=st.lists(st.integers(0, 2**50), min_size=4, max_size=4))
def test_counts_survive_however_large(counts: list[int]) -> None:
    learner = us.exp3_ix_unknown(4, horizon=10)
    state = consistent(learner, [0.0] * 4, sum(counts), np.array(counts, dtype=np.int64))
    assert from_json(to_json(learner, state))[1].memory.tolist() == counts


@settings(deadline=None, derandomize=True, max_examples=50)
@given(thetas=st.lists(st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=3), max_size=5))
def test_every_bit_of_theta_survives(thetas: list[list[float]]) -> None:
    learner = LEARNERS["lin_prod"]
    table = np.array(thetas, dtype=np.float64).reshape(-1, 3)
    state = Estimates(table, np.zeros(len(table), dtype=np.int64))
    _, loaded = from_json(to_json(learner, state))
    assert loaded.thetas.shape == table.shape
    assert bits(loaded.thetas.ravel()) == bits(table.ravel())


def test_a_function_cannot_be_saved_and_the_message_says_what_can(tmp_path: Path) -> None:
    understudy = us.Understudy(us.exp3_ix(PI, eta=0.1, gamma=lambda t: 1 / t))
    understudy.observe(action=0, reward=1.0)
    with pytest.raises(NotSaveable) as caught:
        understudy.save(tmp_path / "no.json")
    message = str(caught.value)
    assert "learner.estimator.gamma is a FunctionOfTime" in message
    assert "pass numbers or an array in its place" in message
    assert "@" not in message  # a function is no dataclass to mark
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value", [1j, {1}, [1, 2], (1, b"x"), b"x", np.zeros(2, np.float32), object()]
)
def test_only_what_comes_back_the_same_is_saved(value: object) -> None:
    with pytest.raises(NotSaveable, match=r"here.*cannot hold"):
        as_data(value, "here")


def test_a_class_of_the_same_name_is_not_ours() -> None:
    impostor = type("Scores", (), {})()
    with pytest.raises(NotSaveable):
        as_data(impostor)


def test_a_renamed_class_keeps_its_tag() -> None:
    @us.saved(tag="NameOfLastYear")
    @dataclass(frozen=True)
    class NameOfThisYear:
        size: int

    class Unmarked(NameOfThisYear):
        pass

    data = as_data(NameOfThisYear(3))
    assert data == {"kind": "NameOfLastYear", "size": 3}
    assert from_data(data, "value") == NameOfThisYear(3)
    with pytest.raises(NotSaveable):  # a subclass may hold more than the tagged class
        as_data(Unmarked(3))
    with pytest.raises(InvalidArgument, match="another name"):
        us.saved(tag="Scores")(NameOfThisYear)


def test_a_snapshot_is_readable_and_versioned() -> None:
    data = snapshot("exp3_ix")
    assert list(data) == ["format", "version", "learner", "state"]
    assert data["version"] == VERSION
    assert data["learner"]["estimator"]["behavior"]["values"] == PI
    assert data["state"]["rounds"] == 3


# Damage: places in a snapshot, and what may happen to them.

Place = tuple[Any, ...]


def places(data: Any, where: Place = ()) -> Iterator[Place]:
    """Every field of a snapshot, at any depth."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield (*where, name)
            yield from places(value, (*where, name))


def damage(data: dict[str, Any], place: Place, change: Callable[[Any, Any], None]) -> str:
    """The snapshot as text after `change(holder, name)`."""
    damaged = copy.deepcopy(data)
    holder: Any = damaged
    for name in place[:-1]:
        holder = holder[name]
    change(holder, place[-1])
    return json.dumps(damaged)


def put(value: Any) -> Callable[[Any, Any], None]:
    return lambda holder, name: holder.__setitem__(name, value)


def delete(holder: Any, name: Any) -> None:
    del holder[name]


def rename(holder: Any, name: Any) -> None:
    holder[f"{name}_"] = holder.pop(name)


def array(values: list[Any], dtype: str = "float64", shape: list[int] | None = None) -> Any:
    return {"array": dtype, "shape": [len(values)] if shape is None else shape, "values": values}


def square(diagonal: list[float]) -> Any:
    """A diagonal matrix."""
    return array(np.diag(diagonal).ravel().tolist(), shape=[len(diagonal)] * 2)


NEVER_RIGHT: dict[str, Any] = {
    "text": "text",
    "a list": [1],
    "a list of text": ["a"],
    "an empty record": {},
    "an unknown kind": {"kind": "Nope"},
    "an unhashable kind": {"kind": ["Scores"]},
    "a kind that is no record": {"kind": "os.system", "command": "true"},
    "a state": {
        "kind": "Scores",
        "scores": array([0.0]),
        "rounds": 0,
        "memory": array([], "int64"),
    },
    "an unknown dtype": array([0.0], "float32"),
    "objects": array([0.0], "object"),
    "an unhashable dtype": {"array": ["float64"], "shape": [1], "values": [0.0]},
    "values that are text": {"array": "float64", "shape": [1], "values": "0"},
    "five dimensions": array([0.0], shape=[1, 1, 1, 1, 1]),
    "booleans": array([True, False, True, False], "int64"),
    "a negative number": -1,
    "a number too large": 10**5,
    "nothing": {"array": "float64"},
}
EITHER_WAY: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "a number": 0.5,
    "a large number": 10**400,
    "logged": {"kind": "Logged", "n_actions": 4},
    "a constant": {"kind": "Constant", "gamma": 0.1},
    "an estimator": {"kind": "ImportanceWeighting", "behavior": array(PI)},
    "a width": {"kind": "HoeffdingWidth", "eta": 0.1, "n_actions": 4},
    "no numbers": array([]),
    "four numbers": array([0.25] * 4),
    "four counts": array([0] * 4, "int64"),
    "an identity": array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], shape=[3, 3]),
}
MAY_BE_ABSENT = {"curvature"}  # as in files of 0.5, where it is 1
LARGE_IS_FINE = {
    "horizon",
    "eta",
    "kappa",
    "feature_bound",
    "n_actions",
    "gamma",
    "scale",
    "rounds",
}


def never_right_at(what: str, place: Place) -> bool:
    """Whether the damage makes a wrong snapshot of this place: a large rate, say, is no damage."""
    if what == "a list" and place[-2:-1] in {("temperatures",), ("betas",)}:
        return False  # another temperature
    if what == "a number too large":
        return place[-1] not in LARGE_IS_FINE
    return not (what == "a state" and place == ("state",)) and not (
        what == "a negative number" and place[-1] == "shape"
    )


def refuse(text: str) -> InvalidSnapshot:
    """The one error that damage may lead to, in one line."""
    with pytest.raises(InvalidSnapshot) as caught:
        from_json(text)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert caught.value.remedy in message
    assert len(message) < 500
    return caught.value


@pytest.mark.parametrize("name", DAMAGED)
def test_a_cut_snapshot_is_refused(name: str) -> None:
    """Cut anywhere, also where what is left happens to be nearly complete."""
    text = json.dumps(snapshot(name))
    for end in {*range(0, len(text), 7), *range(len(text) - 20, len(text))}:
        refuse(text[:end])
        refuse(text[end + 1 :])


@pytest.mark.parametrize("change", [delete, rename])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_missing_or_renamed_field_is_refused(
    name: str, change: Callable[[Any, Any], None]
) -> None:
    data = snapshot(name)
    for place in places(data):
        if change is rename or place[-1] not in MAY_BE_ABSENT:
            refuse(damage(data, place, change))


@pytest.mark.parametrize("what", NEVER_RIGHT)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_field_of_the_wrong_type_is_refused(name: str, what: str) -> None:
    data = snapshot(name)
    for place in places(data):
        text = damage(data, place, put(NEVER_RIGHT[what]))
        if never_right_at(what, place) and text != json.dumps(data):  # a shape may be [1]
            refuse(text)


@pytest.mark.parametrize("what", EITHER_WAY)
@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_not_refused_works(name: str, what: str) -> None:
    """A field may be changed into another right one; then the learner that loads is sound."""
    data = snapshot(name)
    for place in places(data):
        text = damage(data, place, put(EITHER_WAY[what]))
        try:
            learner, state = from_json(text)
        except InvalidSnapshot:
            continue
        assert_sound(learner, state)


def assert_sound(learner: Learner[Any], state: Any) -> None:
    """It plays probabilities, saves to what it was loaded from, and learns or says why not."""
    assert to_json(*from_json(to_json(learner, state))) == to_json(learner, state)
    shape = learner.spec.features
    K = learner.spec.n_actions
    known: Any = {"production": np.full(K, 1 / K)} if learner.spec.outside else {}
    policy = learner.policy(state, None if shape is None else np.zeros(shape), **known)
    assert policy.shape == (learner.spec.n_actions,)
    assert abs(policy.sum() - 1) < 1e-9
    assert (policy >= 0).all()
    with contextlib.suppress(InvalidArgument, BrokenLaw):  # of an array of γ that ends here
        after, _ = learner.replay(state, example_log(learner, rounds=1, seed=0))
        assert learner.rounds(after) == learner.rounds(state) + 1


NUMBERS_THAT_ARE_NONE = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"]


@pytest.mark.parametrize("number", NUMBERS_THAT_ARE_NONE)
@pytest.mark.parametrize("name", DAMAGED)
def test_numbers_that_are_not_finite_are_refused(name: str, number: str) -> None:
    """In any field, and as any entry of any array."""
    data = snapshot(name)
    for place in places(data):
        refuse(damage(data, place, put("@")).replace('"@"', number))
        for i in range(2 if place[-1] == "values" else 0):
            text = damage(data, place, spoil_entry(i, "@"))
            if '"@"' in text:
                refuse(text.replace('"@"', number))


def spoil_entry(i: int, value: Any) -> Callable[[Any, Any], None]:
    """Replace the i-th entry of a list, if it has one."""

    def change(holder: Any, name: Any) -> None:
        if i < len(holder[name]):
            holder[name][i] = value

    return change


@pytest.mark.parametrize("entry", [10**30, True, None, "1", [1.0], {}, 1.5])
def test_entries_of_arrays_are_checked_one_by_one(entry: Any) -> None:
    """A count of 10³⁰ fits no int64; 1.5 is no count; True is no number."""
    data = snapshot("exp3_ix_unknown")
    refuse(damage(data, ("state", "memory", "values"), spoil_entry(0, entry)))


def with_state(name: str, **changed: Any) -> str:
    data = snapshot(name)
    data["state"].update(changed)
    return json.dumps(data)


def nested(depth: int) -> str:
    """Learners within learners."""
    opening = '{"kind":"ExponentialWeights","eta":0.1,"horizon":null,"estimator":'
    learner = opening * depth + "null" + "}" * depth
    return f'{{"format":"understudy","version":1,"learner":{learner},"state":null}}'


WHOLE: dict[str, str] = {
    "nothing": "",
    "white space": " \n ",
    "a byte order mark": "\ufeff{}",
    "a null byte": "\0",
    "null": "null",
    "a number": "3",
    "a list": "[]",
    "an empty record": "{}",
    "two snapshots": json.dumps(snapshot("exp3")) * 2,
    "single quotes": str(snapshot("exp3")),
    "another format": '{"format": "overstudy", "version": 1}',
    "an older version": damage(snapshot("exp3"), ("version",), put(0)),
    "a newer version": damage(snapshot("exp3"), ("version",), put(VERSION + 1)),
    "a version that is text": damage(snapshot("exp3"), ("version",), put("1")),
    "a version that is true": damage(snapshot("exp3"), ("version",), put(True)),
    "more digits than Python reads": '{"format":"understudy","version":' + "9" * 5000 + "}",
    "brackets without end": "[" * 100_000,
    "learners within learners, 5": nested(5),
    "learners within learners, 400": nested(400),
    "learners within learners, 900": nested(900),
    "learners within learners, 50 000": nested(50_000),
    "a state of three actions": with_state("exp3", scores=array([0.0] * 3)),
    "scores in two dimensions": with_state("exp3", scores=array([0.0] * 4, shape=[2, 2])),
    "scores that are whole numbers": with_state("exp3", scores=array([0.5] * 4, "int64")),
    "shape and values that disagree": with_state("exp3", scores=array([0.0] * 4, shape=[5])),
    "a negative shape": with_state("exp3", scores=array([0.0] * 4, shape=[-4])),
    "a huge shape": with_state("exp3", scores=array([0.0] * 4, shape=[10**30])),
    "a shape of text": with_state("exp3", scores={**array([0.0] * 4), "shape": "four"}),
    "negative rounds": with_state("exp3", rounds=-1),
    "rounds that are no whole number": with_state("exp3", rounds=3.0),
    "rounds that are true": with_state("exp3", rounds=True),
    "more rounds than a game has": with_state("exp3", rounds=10**400),
    "negative counts": with_state("exp3_ix_unknown", memory=array([-1, 2, 1, 1], "int64")),
    "counts of other rounds": with_state("exp3_ix_unknown", memory=array([1, 2, 3, 4], "int64")),
    "counts that were lost": with_state("exp3_ix_unknown", memory=array([0] * 4, "int64")),
    "counts that overflow": with_state("exp3_ix_unknown", memory=array([2**62] * 4, "int64")),
    "counts of three actions": with_state("exp3_ix_unknown", memory=array([1, 1, 1], "int64")),
    "counts where there are none": with_state("exp3", memory=array([3, 0, 0, 0], "int64")),
    "fewer actions than thetas": with_state("lin_prod", actions=array([0, 1], "int64")),
    "an action out of range": with_state("lin_prod", actions=array([0, 1, 4], "int64")),
    "a negative action": with_state("lin_prod", actions=array([0, 1, -1], "int64")),
    "thetas of two features": with_state("lin_prod", thetas=array([0.0] * 6, shape=[3, 2])),
    "thetas that no event gives": with_state("lin_prod", thetas=array([-1e9] * 9, shape=[3, 3])),
    "a sum that no rounds give": with_state("lin_prod_compact", theta=array([1e3] * 3)),
    "squares that no rounds give": with_state("lin_prod_compact", squares=square([1e3] * 3)),
    "squares that are negative": with_state("lin_prod_compact", squares=square([0.0, -1.0, 0.0])),
    "squares that lean": with_state(
        "lin_prod_compact", squares=array([0, 0.1, 0, 0, 0, 0, 0, 0, 0], shape=[3, 3])
    ),
    "a sum of other features": with_state("lin_prod_compact", theta=array([0.0] * 2)),
    "fewer rounds than the sums": with_state("lin_prod_compact", rounds=0),
    "an inverse that is not safe": with_state("lin_prod_unknown", inverse=square([1e3] * 3)),
    "an inverse of other features": with_state("lin_prod_unknown", inverse=array([0.0] * 3)),
    "more seen than was shown": with_state("lin_prod_unknown", seen=square([13.0] * 3)),
    "a beta that is too small": damage(snapshot("lin_prod_unknown"), ("learner", "beta"), put(0.1)),
    "a field more": with_state("exp3", more=1),
    "a field with a line break": with_state("exp3", **{"a\nb": 1}),
    "a field with a long name": with_state("exp3", **{"a" * 10_000: 1}),
    "too small a curvature": damage(
        snapshot("lin_prod_compact"), ("learner", "curvature"), put(0.7725)
    ),
    "an inadmissible rate": damage(snapshot("lin_prod"), ("learner", "eta"), put(99.0)),
    "a behavior that does not sum to one": damage(
        snapshot("exp3"), ("learner", "estimator", "behavior", "values"), put([0.4, 0.3, 0.2, 0.2])
    ),
    "a singular V": damage(
        snapshot("lin_prod"), ("learner", "features", "V", "values"), put([1.0] * 9)
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_damaged_snapshot_is_refused(name: str) -> None:
    refuse(WHOLE[name])


def test_another_version_has_another_remedy() -> None:
    error = refuse(WHOLE["a newer version"])
    assert error.argument == "version"
    assert "the release of Understudy that wrote it" in error.remedy


@pytest.mark.parametrize("name", ["learner", "state", "estimator"])
def test_a_learner_and_a_state_belong_together(name: str) -> None:
    """Learner, state or estimator of one snapshot in the place of another's."""
    mine, other = snapshot("exp3"), snapshot("lin_prod")
    place: Place = ("learner", "estimator") if name == "estimator" else (name,)
    refuse(damage(mine, place, put(other["learner" if name == "estimator" else name])))


def test_damage_on_disk_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    for content in (b"", b"\xff\xfe\x00\x01", os.urandom(500), b'{"format": "understudy"}'):
        path.write_bytes(content)
        with pytest.raises(InvalidSnapshot):
            us.load(path)
        assert path.read_bytes() == content


def test_a_file_that_is_not_there_is_what_python_says_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        us.load(tmp_path / "missing.json")


class FileLike(os.PathLike[str]):
    """A path of somebody else's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.mark.parametrize("spell", [str, Path, FileLike])
def test_paths_may_be_text_or_paths(tmp_path: Path, spell: Callable[[Path], Any]) -> None:
    path = tmp_path / "an understudy é.json"
    understudy = us.Understudy(LEARNERS["exp3_ix"], trained(LEARNERS["exp3_ix"]))
    understudy.save(spell(path))
    again = us.load(spell(path))
    assert to_json(again.learner, again.state) == to_json(understudy.learner, understudy.state)
    assert again.rounds == understudy.rounds == 20
    assert list(tmp_path.iterdir()) == [path]


def fail(*_: object) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "saved.json"
    understudy = us.Understudy(LEARNERS["exp3"])
    understudy.save(path)
    old = path.read_bytes()
    understudy.observe(action=0, reward=1.0)
    with monkeypatch.context() as patched:
        patched.setattr(os if broken == "fsync" else Path, broken, fail)
        with pytest.raises(OSError, match="the disk is full"):
            understudy.save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]
    understudy.save(path)
    assert us.load(path).rounds == 1


def test_an_interrupted_write_cleans_up_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == []


def test_the_whole_content_is_on_the_disk_before_the_file_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the moment of fsync: everything is written, and the old file is still the one in place."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    seen: list[tuple[int, bytes]] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: seen.append((os.fstat(number).st_size, path.read_bytes()))
    )
    write_atomically(path, b"new content")
    assert seen == [(len(b"new content"), b"old")]
    assert path.read_bytes() == b"new content"


def test_the_tuned_learner_says_after_loading_that_its_rate_was_capped() -> None:
    again, _ = from_json(to_json(LEARNERS["capped"], LEARNERS["capped"].init()))
    assert isinstance(again, LinProd)
    assert again.capped is True


def test_games_are_data_too() -> None:
    """What a sweep is recognized by: every adversary comes back from its data as it was."""
    adversaries: list[us.adversaries.Adversary] = [
        us.adversaries.switching(n_actions=2, rounds=4),
        us.adversaries.drifting([0.1, 0.2], [0.3, 0.4], rounds=4),
        us.adversaries.table([[0.1, 0.2]] * 4),
        us.adversaries.hiding(n_actions=2),
        us.adversaries.retaliating(n_actions=2),
    ]
    for adversary in adversaries:
        game = us.Game(adversary, [0.5, 0.5], rounds=4)
        again = from_data(as_data(game), "game")
        assert as_data(again) == as_data(game)
        assert type(again.adversary) is type(adversary)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5)
    | st.lists(inner, max_size=5).map(tuple)
    | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)  # fmt: skip


@given(JSON, st.integers(1, 4))
def test_indented_text_is_that_of_json(content: Any, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("understudy.snapshots.PIECE", piece)
        found = indented(content)
    assert found == json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1)


def test_indented_text_has_no_nan() -> None:
    for content in (np.nan, [1.0, np.inf], {"a": {"b": [np.nan]}}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            indented(content)


def test_other_threads_may_run_while_a_long_text_is_made() -> None:
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1

    numbers = np.random.default_rng(0).random(50_000).tolist()
    text = indented({"a": numbers, "b": [{"c": number} for number in numbers]}, pause)
    assert pauses >= len(text) // (1 << 16)
