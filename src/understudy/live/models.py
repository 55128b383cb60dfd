"""The bodies of requests and responses, which the service and its client share.

Importing them needs pydantic alone, so a client does not load what the service computes with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from understudy.constraints import SMALLEST_PROBABILITY

MOST_CONTEXTS = 64  # columns: the state of a learner grows with the square of their features
MOST_ACTIONS = 10_000  # a policy of so many is some 500 kB of JSON, sent with every GET policy
MOST_EVENTS = 1_000  # in a batch: some 100 kB of JSON, a tenth of the largest body
LARGEST_WHOLE = (1 << 63) - 1  # the largest BIGINT of SQL
LONGEST_ID = 128  # characters: ids are indexed, and a UUID needs 36

STORABLE = r"^[^\x00]*$"  # JSON can express a NUL, and PostgreSQL stores none
Text = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=STORABLE),
    Field(examples=["small"]),
]
Id = Annotated[
    str,
    StringConstraints(min_length=1, max_length=LONGEST_ID, pattern=STORABLE),
    Field(examples=["d-1"]),
]
Whole = Annotated[int, Field(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE)]
Action = Text | Whole
Number = Annotated[float, Field(allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Value = Annotated[str, StringConstraints(max_length=1_000, pattern=STORABLE)]
Context = dict[Text, Number | bool | Value | None]
# Of what users send: unknown fields are errors, and "1" is no number.
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)
# Of what the service answers: a client of this version reads the fields that a later one adds.
ANSWER = ConfigDict(frozen=True)


class Event(BaseModel):
    """What is known of one decision: that it was made, its reward, or both at once.

    With an action it is a decision of production; with a reward too, it is in one piece. Without
    an action it is the reward of a decision that was sent before. The same facts may be sent again
    and again: they count once.
    """

    model_config = STRICT
    id: Id = Field(description="names the decision; the same in all that is sent about it")
    action: Action | None = Field(None, description="the action that production took")
    propensity: float | None = Field(
        None,
        ge=SMALLEST_PROBABILITY,
        le=1.0,
        allow_inf_nan=False,
        description="the probability with which production took it, at that moment",
    )
    propensity_vector: dict[Text, Probability] | None = Field(
        None,
        max_length=MOST_ACTIONS,
        description="the propensities of all actions at that moment, by action; those left out are "
        "0. Every decision has one if the study declares `propensity_vectors`, and none otherwise",
    )
    unit: Id | Whole | None = Field(
        None,
        description="whom the decision is about, such as a user, in a study with units; 1 and "
        '"1" are the same unit',
    )
    context: Context | None = Field(None, max_length=MOST_CONTEXTS)
    reward: Number | None = Field(None, description="the reward that production got for it")


class Batch(BaseModel):
    """Several events. If one of them is malformed, none is taken."""

    model_config = STRICT
    events: list[Event] = Field(min_length=1, max_length=MOST_EVENTS)


class Draw(BaseModel):
    """The context that an action is drawn for, and production's probabilities there."""

    model_config = STRICT
    context: Context | None = Field(None, description="needed where the study has contexts")
    production: dict[Text, Number] | None = Field(
        None,
        description="the probabilities of production by action, needed where the policy does as "
        "production does with a share that matters",
    )


class StudyOptions(TypedDict, total=False):
    """The body of a request for a new study, without its name and actions; all have defaults.

    Args:
        learner: a learner by name, as for `understudy learn --learner`.
        experts: learners by names of yours, instead of one learner: `exp4` mixes them.
        behavior: "logged" (each decision carries its propensity, the default), "estimated", or
            production's fixed probabilities by action.
        horizon: for how many decisions the learner is tuned; without one it needs none.
        reward_range: the least and the largest reward; (0, 1) if left out.
        reward_wait: for how many seconds a decision waits for its reward; an hour if left out.
        default_reward: the reward of a decision whose wait is over; the lowest if left out.
        confidence: that of the certificate; 0.95 if left out.
        propensity_vectors: whether every decision carries the propensities of all actions, which
            makes certificates sharper.
        least_propensity: a propensity that no action of any decision is below; makes certificates
            sharper too.
        unit_rows: with units, such as users who keep an action: how many events of each count.
        no_unit: whether every decision draws its action, although contexts look like such units.
        context: the kind of each part of a context, "number" or "text", by name.
        warmup: how many decisions at first only teach what contexts look like.
    """

    learner: str | None
    experts: Mapping[str, str] | None
    behavior: str | Mapping[str, float] | Mapping[int, float]
    horizon: int | None
    reward_range: tuple[float, float]
    reward_wait: float | None
    default_reward: float | None
    confidence: float
    propensity_vectors: bool
    least_propensity: float | None
    unit_rows: int | None
    no_unit: bool
    context: Mapping[str, Literal["number", "text"]] | None
    warmup: int | None


class Taken(BaseModel):
    """An event that is on disk: "accepted", or "known" if it was there before."""

    model_config = ANSWER
    id: Id
    status: Literal["accepted", "known"]


class RefusedEvent(BaseModel):
    """An event of a batch that was not taken, by its place among all that were sent, and why."""

    model_config = ANSWER
    index: int
    id: Id
    error: str
    message: str


class BatchTaken(BaseModel):
    """How many events were accepted, how many known before, and which were refused.

    >>> BatchTaken(accepted=3) + BatchTaken(accepted=1, known=1)
    BatchTaken(accepted=4, known=1, refused=())
    """

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)
    accepted: int = 0
    known: int = 0
    refused: tuple[RefusedEvent, ...] = ()

    def __add__(self, other: BatchTaken) -> BatchTaken:
        return BatchTaken(
            accepted=self.accepted + other.accepted,
            known=self.known + other.known,
            refused=self.refused + other.refused,
        )


class ActionProbability(BaseModel):
    """An action and its probability."""

    model_config = ANSWER
    action: Action
    probability: float


WARMUP_LEFT: Any = Field(
    0, description="decisions that the warm-up of contexts still needs; none is learned from before"
)


class PolicyNow(BaseModel):
    """The probabilities with which the understudy would act now."""

    model_config = ANSWER
    study: str
    decisions: int
    learned: int
    warmup_left: int = WARMUP_LEFT
    policy: list[ActionProbability]


class Drawn(BaseModel):
    """An action that was drawn from the policy after `learned` decisions, with its probability."""

    model_config = ANSWER
    action: Action
    probability: float
    learned: int
    warmup_left: int = WARMUP_LEFT


class Curve(BaseModel):
    """Means per round, after each of some rounds."""

    model_config = ANSWER
    rounds: list[int]
    lower: list[float]
    upper: list[float]
    production: list[float]
    gain: list[float] | None


class CertificateNow(BaseModel):
    """The verdict on the understudy against production, and the bounds behind it."""

    model_config = ANSWER
    study: str
    learned: int
    verdict: str
    outcome: str | None = Field(
        None, description="what the verdict comes to; null before the first"
    )
    reason: str | None = Field(None, description="the finding behind the outcome")
    gain: dict[str, Any] | None = Field(
        None, description="the estimated gain per decision with its bounds `low` and `high`"
    )
    standard_error: float | None = Field(None, description="that of the estimated gain")
    visible_gain: float | None = Field(
        None, description="the gain that so many decisions show more often than not"
    )
    next_step: dict[str, Any] | None = Field(
        None, description="`step`, its numbers, and the same in `words`"
    )
    words: str
    promoted_since: str | None
    certificate: dict[str, Any] | None
    curve: Curve | None


class CoverageNow(BaseModel):
    """How well the log of a study covers each action, and candidate policies."""

    model_config = ANSWER
    study: str
    learned: int
    findings: list[str]
    actions: list[dict[str, Any]]
    candidates: list[dict[str, Any]]


class WrongField(BaseModel):
    """One wrong field."""

    model_config = ANSWER
    field: str = Field(description="Where it is: `events.3.reward` is in the fourth event.")
    message: str = Field(description="Why it is wrong, and what to send instead.")


class Refusal(BaseModel):
    """The reason for which a request was refused."""

    model_config = ANSWER
    error: str = Field(description="A short name that programs can compare.")
    message: str = Field(description="One sentence for people.")
    fields: list[WrongField] = Field(default=[], description="The wrong fields, at most 100.")
