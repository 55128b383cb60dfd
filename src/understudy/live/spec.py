"""The specification of a study, and the validation of its events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, Field, StringConstraints, TypeAdapter, ValidationError

from understudy.behaviors import Behavior, Logged
from understudy.certificates.evidence import FIRST_RULES, RULES
from understudy.constraints import HORIZON, SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidArgument, InvalidEvent
from understudy.live.models import (
    MOST_ACTIONS,
    MOST_CONTEXTS,
    STRICT,
    Action,
    Event,
    Number,
    Text,
)
from understudy.live.store.records import pack_doubles
from understudy.logs.action_files import behavior_vector
from understudy.logs.encoder import NumberColumn
from understudy.logs.features import LearnerFactory, Warmup
from understudy.logs.policy import Policy
from understudy.logs.schema import (
    ACTION,
    CONTEXT,
    ESTIMATED,
    GIVEN,
    LOGGED,
    PROPENSITY,
    REWARD,
    Actions,
    Label,
    PropensitySource,
    RewardScale,
    first_few,
    label_key,
)
from understudy.logs.settings import (
    LEARNERS,
    OWN,
    Wanted,
    choose,
    name_of_default,
    name_of_first_default,
    refuse_without_contexts,
)
from understudy.protocols import EventSpec
from understudy.types import Log

NEWEST = {"rules": RULES}
MOST_EXPERTS = 32  # a decision costs the sum of all of them
LONGEST_WAIT = 366 * 24 * 3600.0  # seconds: learning stops at a decision that waits
MOST_VALUES = 32_768  # in contexts that are read at a time: of 1,000 characters each, some 32 MB
PROPENSITIES_PER_VALUE = 125  # of 8 bytes each
MOST_UNIT_ROWS = 1_000  # of a unit, kept in memory while it waits
EXPORT_COLUMNS = ("id", "time", ACTION, REWARD, PROPENSITY, "rewarded")  # taken in exported logs
VECTOR, UNIT = "propensity_vector", "unit"  # taken too, where a study has them
SECOND = 1_000_000  # microseconds, the unit of all stored times
NAMING = r"^[a-z0-9][a-z0-9._-]{0,63}$"  # a name is a part of URLs, and needs no escaping
Name = Annotated[str, StringConstraints(pattern=NAMING)]
Experts = Annotated[dict[Text, Text], Field(min_length=2, max_length=MOST_EXPERTS)]


class StudySpec(BaseModel):
    """What production does, what it earns, and who learns from it."""

    model_config = STRICT
    name: Name
    actions: list[Action] = Field(min_length=2, max_length=MOST_ACTIONS)
    behavior: Literal["logged", "estimated"] | dict[Text, Number] = Field(
        "logged",
        description="where propensities come from: every event, counting, or fixed probabilities",
        max_length=MOST_ACTIONS,
    )
    learner: Text | None = Field(
        None,
        description=f"one of {', '.join(LEARNERS)}, with parameters such as exp3-ix:coverage=20; "
        "left out: the one that suits this behavior and its contexts",
    )
    experts: Experts | None = Field(
        None,
        description="learners by a name of yours, instead of `learner`: exp4 mixes them; "
        "the learner 'production' does as production does",
    )
    horizon: int | None = Field(None, ge=1, description="how many decisions will come, if known")
    reward_range: tuple[Number, Number] = Field((0.0, 1.0), strict=False)
    reward_wait: Number = Field(
        3600.0, gt=0.0, le=LONGEST_WAIT, description="seconds that a decision waits for its reward"
    )
    default_reward: Number | None = Field(
        None, description="of a decision whose reward does not come; left out: the lowest"
    )
    confidence: Number = Field(0.95, gt=0.0, lt=1.0)
    propensity_vectors: bool = Field(
        default=False,
        description="every decision carries the propensities of all actions; certificates are "
        "sharper then",
    )
    least_propensity: Number | None = Field(
        None,
        ge=SMALLEST_PROBABILITY,
        le=1.0,
        description="every action has at least this propensity in every decision; certificates are "
        "sharper then",
    )
    unit_rows: int | None = Field(
        None,
        ge=1,
        le=MOST_UNIT_ROWS,
        description="with units that keep an action, such as users: how many events of each unit "
        "count, from its first on; left out: every decision draws its own action",
    )
    no_unit: bool = Field(
        default=False,
        description="production draws an action for every decision, although one seems to be kept "
        "for each value of a context",
    )
    context: dict[Text, Literal["number", "text"]] | None = Field(
        None, min_length=1, max_length=MOST_CONTEXTS
    )
    warmup: int = Field(
        1000, ge=2, le=100_000, description="decisions that prepare the features of contexts"
    )
    rules: int = Field(
        FIRST_RULES,
        ge=FIRST_RULES,
        le=RULES,
        description="version of the rules of learners and certificates; new studies get the newest",
    )

    @staticmethod
    def of(found: Mapping[str, Any]) -> StudySpec:
        """Validate the fields of a new study, and that no two contradict each other."""
        spec = StudySpec.model_validate(found).as_new()
        spec.check()
        return spec

    def as_new(self) -> StudySpec:
        """Return the specification of a study that is created now: with the newest rules."""
        return self if "rules" in self.model_fields_set else self.model_copy(update=NEWEST)

    def check(self) -> None:
        """Raise `InvalidArgument` if two fields contradict each other."""
        if len({label_key(label) for label in self.actions}) < len(self.actions):
            reason = "a label is repeated: 1 and 1.0 are one label, as in logs"
            raise InvalidArgument("actions", self.actions, reason, "name each once")
        low, high = self.scale.low, self.scale.high
        if not low <= self.expired_reward <= high:
            raise InvalidArgument(
                "default_reward",
                self.expired_reward,
                f"it is out of the range of rewards, {low:g} to {high:g}",
                "pass a reward that a decision could have",
            )
        HORIZON.optional()("horizon", self.horizon)
        for name in ("propensity_vectors", "least_propensity"):
            if getattr(self, name) and self.propensity_source != LOGGED:
                reason = (
                    f"the behavior is {self.propensity_source}, and events have no propensities"
                )
                remedy = "leave it out, or pass the behavior 'logged'"
                raise InvalidArgument(name, getattr(self, name), reason, remedy)
        if self.unit_rows is not None and self.no_unit:
            reason = "it declares units, and no_unit says that there are none"
            raise InvalidArgument("unit_rows", self.unit_rows, reason, "leave one of them out")
        if self.unit_rows is not None and not low <= 0.0 <= high:
            raise InvalidArgument(
                "unit_rows",
                self.unit_rows,
                f"an event that a unit does not have counts 0, and rewards are {low:g} to {high:g}",
                "pass a reward_range that contains 0",
            )
        behavior = self.pi_b  # raises if it names other actions
        if self.learner is not None and self.experts is not None:
            reason = "experts are mixed by a learner of their own"
            raise InvalidArgument("learner", self.learner, reason, "pass experts, or a learner")
        factory = self.factory(None if self.context is None else self._example_warmup())
        choice = choose(self.wanted, factory)
        if self.context is None:
            return
        refuse_without_contexts(choice, behavior)
        taken = (*EXPORT_COLUMNS, *self.extra_columns)
        reserved = [name for name in self.context if name in taken]
        if reserved:
            raise InvalidArgument(
                "context", reserved[0], "an exported log has a column of this name", "rename it"
            )

    @cached_property
    def labels(self) -> Actions:
        """The actions, in the order of the learner's indices."""
        return Actions.from_labels(self.actions)

    @cached_property
    def action_index(self) -> dict[str, int]:
        """The index of each action by its text."""
        return {text: i for i, text in enumerate(self.labels.texts)}

    @cached_property
    def scale(self) -> RewardScale:
        """The units of rewards."""
        return RewardScale.from_range(self.reward_range)

    @property
    def expired_reward(self) -> float:
        """The reward of a decision whose own did not come in time."""
        return self.scale.low if self.default_reward is None else self.default_reward

    @cached_property
    def reward_wait_us(self) -> int:
        """How long a decision waits for its reward, in microseconds."""
        return round(self.reward_wait * SECOND)

    @property
    def extra_columns(self) -> list[str]:
        """The columns of exported logs that only some studies have."""
        has = {VECTOR: self.propensity_vectors, UNIT: self.unit_rows is not None}
        return [name for name, there in has.items() if there]

    def rows_at_a_time(self, most: int) -> int:
        """Return how many decisions, at most so many, may be read at a time with their contexts."""
        values = len(self.context or "-")
        if self.propensity_vectors:
            values += len(self.actions) // PROPENSITIES_PER_VALUE
        return max(1, min(most, MOST_VALUES // (values * (self.unit_rows or 1))))

    @property
    def propensity_source(self) -> PropensitySource:
        """Where propensities come from."""
        if isinstance(self.behavior, dict):
            return GIVEN
        return LOGGED if self.behavior == LOGGED else ESTIMATED

    @cached_property
    def pi_b(self) -> Behavior | None:
        """The behavior policy: probabilities, `Logged`, or None if propensities are estimated."""
        if isinstance(self.behavior, dict):
            return behavior_vector(self.behavior, self.labels)
        if self.behavior != LOGGED:
            return None
        return Logged(n_actions=len(self.labels), least_propensity=self.least_propensity)

    @property
    def wanted(self) -> Wanted:
        """The learner that the study wants: experts, or a name, chosen or by default."""
        default = name_of_default if self.rules > FIRST_RULES else name_of_first_default
        return self.experts or self.learner or default(self.pi_b, contexts=self.context is not None)

    def factory(self, warmup: Warmup | None = None) -> LearnerFactory:
        """The maker of this study's learner, from the warm-up of its contexts if it has any."""
        return LearnerFactory(
            self.pi_b, len(self.labels), self.horizon, warmup=warmup, rules=self.rules
        )

    def _example_warmup(self) -> Warmup:
        """Two contexts of this study's kinds: parameters of a learner are checked with them."""
        columns = {
            CONTEXT + name: ["a", "b"] if kind == "text" else [0.0, 1.0]
            for name, kind in (self.context or {}).items()
        }
        q = np.array([0.5, 0.5]) if self.propensity_source == LOGGED else None
        names = tuple(self.context or ())
        return Warmup.fit(pl.DataFrame(columns), np.array([0, 1]), q, names, rules=self.rules)

    def faults(self, event: Event) -> dict[str, str]:
        """Return the faults of an event of this study by field, in words; empty if it is valid."""
        found: dict[str, str] = {}
        if event.action is None:
            if event.reward is None:
                found["action"] = "it says nothing: send an action, a reward, or both"
            for field in ("propensity", VECTOR, UNIT, "context"):
                if getattr(event, field) is not None:
                    found[field] = (
                        "it belongs to a decision: send it with the action, or leave it out"
                    )
        else:
            found |= self._faults_of_decision(event, event.action)
        if event.reward is not None and not self.scale.low <= event.reward <= self.scale.high:
            low, high = self.scale.low, self.scale.high
            found["reward"] = f"{event.reward:g} is out of range: send one from {low:g} to {high:g}"
        return found

    def _faults_of_decision(self, event: Event, action: Label) -> dict[str, str]:
        found: dict[str, str] = {}
        index = self.action_index.get(str(action))
        if index is None:
            known = first_few(self.labels.labels)
            found["action"] = f"{str(action)[:40]!r} is unknown: send one of {known}"
        elif isinstance(self.pi_b, np.ndarray) and not self.pi_b[index] > 0.0:
            found["action"] = "the behavior of this study never plays it"
        if self.propensity_source != LOGGED and event.propensity is not None:
            found["propensity"] = (
                f"the behavior of this study is {self.propensity_source}: leave it out, or create "
                "a study whose behavior is 'logged'"
            )
        if self.unit_rows is None:
            found |= self.missing_of_decision(event)
            if event.unit is not None:
                found[UNIT] = "this study has no units: leave it out, or create one with unit_rows"
        elif event.unit is None:
            found[UNIT] = "it is missing: send the unit of the decision, such as the id of a user"
        if event.propensity_vector is not None and not self.propensity_vectors:
            found[VECTOR] = (
                "this study has none: leave it out, or create one with propensity_vectors, in "
                "which every decision has one, whatever its action"
            )
        elif event.propensity_vector is not None and index is not None and not found:
            found |= self._faults_of_vector(event.propensity_vector, index, event.propensity)
        if event.context is not None or self.unit_rows is None:
            wrong = self.fault_of_context(event.context)
            found |= {} if wrong is None else {"context": wrong}
        return found

    def missing_of_decision(self, event: Event) -> dict[str, str]:
        """Return what an event does not say, and a decision must: of a unit, its first event."""
        found: dict[str, str] = {}
        if self.propensity_vectors:
            if event.propensity_vector is None:
                found[VECTOR] = (
                    "it is missing: send the propensities of all actions with every decision"
                )
        elif self.propensity_source == LOGGED and event.propensity is None:
            found["propensity"] = (
                "it is missing: send the probability with which production chose the action"
            )
        if self.unit_rows is not None and (wrong := self.fault_of_context(event.context)):
            found["context"] = wrong
        return found

    def _faults_of_vector(
        self, given: Mapping[str, float], index: int, propensity: float | None
    ) -> dict[str, str]:
        """Return why these are no propensities of all actions.

        A vector that contradicts the declared least propensity is no fault: such a decision is
        stored and counts, because the events that are left without it are chosen by their action.
        """
        unknown = [label for label in given if label not in self.action_index]
        if unknown:
            known = first_few(self.labels.labels)
            return {VECTOR: f"{unknown[0][:40]!r} is unknown: send propensities of {known}"}
        vector = self._vector(given)
        q = float(vector[index]) if propensity is None else propensity
        if q < SMALLEST_PROBABILITY:
            return {VECTOR: f"it gives the action that was taken {q:g}: send what it had then"}
        one = Log._of(np.array([index]), np.zeros(1), np.array([q]), None, None, vector[np.newaxis])
        try:
            self._vector_spec.check(one)
        except InvalidEvent as error:
            return {VECTOR: f"{error.reason}; {error.remedy}"}
        return {}

    @cached_property
    def _vector_spec(self) -> EventSpec:
        """The spec of a vector's form, made once: every event is checked with it."""
        return EventSpec.for_behavior(Logged(n_actions=len(self.labels)))

    def _vector(self, given: Mapping[str, float]) -> Array:
        vector = np.zeros(len(self.labels))
        for label, probability in given.items():
            vector[self.action_index[label]] = probability
        return vector

    def propensities(self, event: Event) -> tuple[float | None, bytes | None]:
        """Return the propensity of a decision, and those of all actions as they are stored.

        Of two that differ in the last digits, the vector's entry counts, as in a log.
        """
        given = event.propensity_vector
        if given is None or event.action is None:
            return event.propensity, None
        vector = self._vector(given)
        return float(vector[self.action_index[str(event.action)]]), pack_doubles(vector)

    def fault_of_context(self, context: Mapping[str, object] | None) -> str | None:
        """Return the fault of a context, in words, or None if it is valid."""
        wanted = self.context or {}
        if not wanted:
            return None if context is None else "this study has no contexts: leave it out"
        if context is None or set(context) != set(wanted):
            example = ", ".join(f'"{name}": …' for name in wanted)
            return f"send {{{example}}}, with null for what is missing"
        for name, kind in wanted.items():
            value = context[name]
            fits = isinstance(value, str) if kind == "text" else isinstance(value, float | int)
            if value is not None and not fits:
                return f"{name} is {'a text' if kind == 'text' else 'a number'}, or null"
        return None

    def context_text(self, context: Mapping[str, Any] | None) -> str | None:
        """Encode a context as it is stored: equal contexts give equal texts."""
        if context is None or self.context is None:
            return None
        ordered = {
            name: context[name] if kind == "text" or context[name] is None else float(context[name])
            for name, kind in self.context.items()
        }
        return json.dumps(ordered, ensure_ascii=False, allow_nan=False)

    @staticmethod
    def from_policy(
        name: str,
        policy: Policy,
        *,
        reward_wait: float | None,
        default_reward: float | None,
        propensity_vectors: bool = False,
    ) -> StudySpec:
        """Return the specification of a study that continues from a policy.json."""
        settings, study = policy.settings, policy.study
        refuse_units(policy)
        reason = "a study is about the gain over production, and it was learned with this question"
        policy.question.refuse(reason, "learn a policy without it")
        if settings.columns.experts:
            reason = "events have no probabilities of experts, which this policy mixes"
            remedy = "learn a policy without columns of experts"
            name = "policy.settings.columns.experts"
            raise InvalidArgument(name, settings.columns.experts, reason, remedy)
        behavior: object = settings.behavior
        if isinstance(study.behavior, np.ndarray):
            behavior = dict(zip(policy.actions.texts, study.behavior.tolist(), strict=True))
        context = None
        if policy.contextual is not None:  # constant columns are left out
            context = {
                column.name: "number" if isinstance(column, NumberColumn) else "text"
                for column in policy.contextual.encoder.columns
            }
        options = {"reward_wait": reward_wait, "default_reward": default_reward}
        experts = settings.experts or {}
        named = OWN not in experts.values() and _can_name(experts)
        return StudySpec.of(
            {
                "name": name,
                "actions": list(policy.actions.labels),
                "behavior": behavior,
                "learner": None if experts or settings.learner == OWN else settings.learner,
                "experts": experts if named else None,
                "horizon": settings.horizon,
                "reward_range": settings.reward_range,
                "confidence": 0.95 if study.certificate is None else study.certificate.confidence,
                "context": context,
                "propensity_vectors": propensity_vectors,
                "least_propensity": (
                    study.behavior.least_propensity if isinstance(study.behavior, Logged) else None
                ),
                "no_unit": settings.no_unit,
                "rules": settings.rules,
                **{key: value for key, value in options.items() if value is not None},
            }
        )


def refuse_units(policy: Policy) -> None:
    """Raise `InvalidArgument` if a policy was learned from units, which may be used once.

    Its file does not name them, so a study could use one again without noticing.
    """
    if (unit := policy.settings.columns.unit) is not None:
        reason = "it was learned from units, which may be used once, and does not name them"
        remedy = "create a new study with unit_rows, or go on with the study that learned it"
        raise InvalidArgument("policy.settings.columns.unit", unit, reason, remedy)


def _can_name(experts: Mapping[str, str]) -> bool:
    """Whether a new study can have these experts: neither too many, nor with too long names."""
    try:
        TypeAdapter(Experts, config=STRICT).validate_python(experts)
    except ValidationError:
        return False
    return True
