"""An LLM router and its understudy: it learns which model to use, from thumbs that may never come.

    python examples/llm_router.py                              # with a service of its own
    python examples/llm_router.py --url http://127.0.0.1:8642  # with one that runs

Every prompt goes to one of three models. An answer that the user likes is worth the less the more
it cost: that is the reward. It comes a while after the decision, or never. Production's rule of
thumb is the large model, to be safe, and now and then another one, at random: so it knows the
probability of what it does, which is all that its understudy needs. There is one study for each
kind of prompt. When the understudies are better for sure, they get a share of the prompts.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import understudy as us


class Router:
    """Chooses a model for each prompt, and tells the understudy: what you would paste.

    `chances` may change at any time: a decision carries the probability that it had.
    """

    def __init__(
        self, feed: us.live.Background, chances: dict[str, float], rng: random.Random
    ) -> None:
        self.feed, self.chances, self.rng = feed, chances, rng

    def choose(self) -> tuple[str, str | None]:
        """A model, and the ticket with which its reward is reported."""
        (model,) = self.rng.choices(list(self.chances), list(self.chances.values()))
        return model, self.feed.decide(model, propensity=self.chances[model])

    def reward(self, ticket: str | None, worth: float) -> None:
        """What came of a decision; it may come late, or not at all."""
        if ticket is not None:  # there was no room for the decision: see feed.delivery
            self.feed.reward(ticket, worth)


WORTH = {"small": 1.0, "medium": 0.8, "large": 0.4}  # of an answer that is liked, less its cost
LIKED = {  # how often that is
    "chat": {"small": 0.85, "medium": 0.85, "large": 0.90},
    "code": {"small": 0.20, "medium": 0.80, "large": 0.90},
}
RULE = {"small": 0.1, "medium": 0.1, "large": 0.8}
BESIDE, CANARY, SHARE = 3_000, 1_000, 0.5  # prompts, prompts, the understudies' share of these
REFRESH = 100  # prompts between looks at the policies
SLOWEST_THUMB = 20  # prompts later
REWARD_WAIT = 3.0  # seconds, and then it counts as never


def serve_prompts(routers: dict[str, Router], prompts: int, rng: random.Random) -> float:
    """Prompts, and the thumbs that go up some prompts later; what they are worth."""
    thumbs = defaultdict[int, list[tuple[Router, str | None, float]]](list)
    total = 0.0
    for now in range(prompts + SLOWEST_THUMB):
        if now < prompts:
            kind = rng.choice(list(LIKED))
            model, ticket = routers[kind].choose()
            if rng.random() < LIKED[kind][model]:
                later = now + rng.randrange(SLOWEST_THUMB)
                thumbs[later].append((routers[kind], ticket, WORTH[model]))
        for router, ticket, worth in thumbs.pop(now, ()):
            router.reward(ticket, worth)
            total += worth
    return total


def open_study(client: us.live.Client, name: str) -> us.live.StudyClient:
    """The study of this name, which is made if there is none."""
    try:
        return client.create_study(name, list(WORTH), reward_wait=REWARD_WAIT, default_reward=0.0)
    except us.errors.Refused as refused:
        if refused.error != "exists":
            raise
        return client.open(name)


def report(client: us.live.Client, studies: dict[str, us.live.StudyClient]) -> None:
    """What the understudies would do, and whether they should, when all decisions are folded."""
    for kind, study in studies.items():
        while (now := client.study(study.name))["folded"] < now["decisions"]:
            time.sleep(0.1)
        policy = ", ".join(f"{model} {p:.2f}" for model, p in study.policy().items())
        found = study.certificate()
        print(f"  {kind}: {policy}; after {found['learned']:,} decisions: {found['verdict']}")
        print(f"        {found['words']}")


def play(
    client: us.live.Client, prompts: int, share: float, rng: random.Random
) -> dict[str, us.live.StudyClient]:
    """Prompts, of which the understudies take a share."""
    studies = {kind: open_study(client, f"router-{kind}") for kind in LIKED}
    total = 0.0
    with ExitStack() as feeds:  # when it ends, all was sent
        routers = {
            kind: Router(feeds.enter_context(client.background(study.name)), RULE, rng)
            for kind, study in studies.items()
        }
        for _ in range(prompts // REFRESH):
            for kind, router in routers.items():
                router.chances = us.live.mixture(RULE, studies[kind].policy(), share)
            total += serve_prompts(routers, REFRESH, rng)
    print(f"{prompts:,} prompts, {share:.0%} by understudies: {total / prompts:.3f} a prompt")
    return studies


@contextmanager
def own_service(folder: Path) -> Iterator[str]:
    """The url of a service that keeps its things in a folder."""
    command = ["serve", "--store", str(folder / "understudy.db"), "--port", "0"]
    said = folder / "said.txt"
    with said.open("w") as errors:
        service = subprocess.Popen([sys.executable, "-m", "understudy", *command], stderr=errors)
    try:
        while not (found := re.search(r"listening on (http\S+)", said.read_text())):
            if service.poll() is not None:
                sys.exit(f"the service did not start: {said.read_text()}")
            time.sleep(0.05)
        yield found[1]
    finally:
        service.terminate()
        service.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="of a service that runs; left out: one is started")
    parser.add_argument("--token", help="that it wants, if it does")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = given.url or stack.enter_context(own_service(folder))
        client = stack.enter_context(us.live.Client(url, token=given.token))
        rng = random.Random(0)
        for prompts, share in ((BESIDE, 0.0), (CANARY, SHARE)):
            report(client, play(client, prompts, share, rng))


if __name__ == "__main__":
    main()
