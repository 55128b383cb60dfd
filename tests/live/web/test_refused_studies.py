"""Every learner in every kind of study, over HTTP: a refusal is one, and names no option."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.asgi import HttpError, Service, ask
from tests.support.live.learner_names import LEARNERS, PARAMETERS
from understudy.live.web.app import make_app

pytestmark = pytest.mark.plain

BEHAVIORS: list[Any] = ["logged", "estimated", {"a": 0.5, "b": 0.5}]
CONTEXTS: list[Any] = [None, {"size": "number"}]


def learners() -> Iterator[str]:
    yield from ("production", "ucb", "--learner", *LEARNERS)
    for name in LEARNERS:
        yield from (f"{name}:speed=1", f"{name}:speed")
        yield from (f"{name}:{parameter}=-1" for parameter in PARAMETERS[name])
    yield from ("ridge:features=99999999", "exp4:features=x")


def studies() -> Iterator[dict[str, Any]]:
    both = {"experts": {"one": "prod", "other": "ridge"}, "learner": "prod"}
    yield {"name": "new", "actions": ["a", "b"], **both}
    for learner, behavior, context in product(learners(), BEHAVIORS, CONTEXTS):
        fixed = {"name": "new", "actions": ["a", "b"], "behavior": behavior, "context": context}
        yield {**fixed, "learner": learner}
        yield {**fixed, "experts": {"safe": "production", "other": learner}}


def test_no_refusal_names_an_option_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who post JSON have none. (A valid study is refused too, so that there is no writer.)"""

    async def create(*_: object) -> None:
        raise HttpError(409, "valid", "this study could be created")

    monkeypatch.setattr(Service, "create", create)
    app = make_app(Service(str(tmp_path / "store.db")))
    found = Counter[int]()
    for study in studies():
        body = json.dumps(study).encode()
        answer = ask(app, "POST", "/v1/studies", {"content-type": "application/json"}, [body])
        found[answer.status] += 1
        said = answer.body.decode().replace("'--learner'", "").replace('"--learner"', "")
        assert "--" not in said, (study, said)
        assert answer.status == 409 or answer.json["fields"], study
    assert set(found) == {409, 422}
    assert min(found.values()) > 30
