"""An LLM router with an understudy: it learns which model to use, from likes that may never come.

    python examples/llm_router.py                              # starts a service of its own
    python examples/llm_router.py --url http://127.0.0.1:8642  # uses a running service

The router sends every prompt to one of three models. The reward is the value of an answer that the
user likes, less its cost. It comes a while after the decision, or never. Production usually chooses
the large model, to be safe, and sometimes another model at random. So it knows the propensity of
each choice, which is all that its understudy needs. There is one study for each kind of prompt.
When the understudies are certainly better, they get a share of the prompts.
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
    """Chooses a model for each prompt and reports the decision. Copy this class.

    `chances` may change at any time: a decision carries the propensity at its time.
    """

    def __init__(
        self, feed: us.live.Background, chances: dict[str, float], rng: random.Random
    ) -> None:
        self.feed, self.chances, self.rng = feed, chances, rng

    def choose(self) -> tuple[str, str | None]:
        """Choose a model; return it with the ticket for its reward."""
        (model,) = self.rng.choices(list(self.chances), list(self.chances.values()))
        return model, self.feed.decide(model, propensity=self.chances[model])

    def reward(self, ticket: str | None, worth: float) -> None:
        """Report the reward of a decision; it may come late, or not at all."""
        if ticket is not None:  # None if the queue was full: see feed.delivery
            self.feed.reward(ticket, worth)


WORTH = {"small": 1.0, "medium": 0.8, "large": 0.4}  # of a liked answer, less its cost
LIKED = {  # the probability that the user likes the answer
    "chat": {"small": 0.85, "medium": 0.85, "large": 0.90},
    "code": {"small": 0.20, "medium": 0.80, "large": 0.90},
}
RULE = {"small": 0.1, "medium": 0.1, "large": 0.8}
BESIDE = 3_000  # prompts in shadow mode
CANARY, SHARE = 1_000, 0.5  # prompts of the canary, and the understudies' share of them
REFRESH = 100  # prompts between updates of the policies
SLOWEST_THUMB = 20  # prompts between an answer and its like, at most
REWARD_WAIT = 3.0  # seconds; then the default reward counts


def serve_prompts(routers: dict[str, Router], prompts: int, rng: random.Random) -> float:
    """Serve prompts and report the likes that come some prompts later; return the total reward."""
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
    """Open the study of this name; create it if there is none."""
    try:
        return client.create_study(name, list(WORTH), reward_wait=REWARD_WAIT, default_reward=0.0)
    except us.errors.Refused as refused:
        if refused.error != "exists":
            raise
        return client.open(name)


def report(client: us.live.Client, studies: dict[str, us.live.StudyClient]) -> None:
    """Print policies and verdicts after the service has processed all decisions."""
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
    """Serve prompts, a share of them by the understudies."""
    studies = {kind: open_study(client, f"router-{kind}") for kind in LIKED}
    total = 0.0
    with ExitStack() as feeds:  # its end sends all queued events
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
    """Start a service with its store in a folder; yield its URL."""
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
    parser.add_argument("--url", help="URL of a running service; default: start one")
    parser.add_argument("--token", help="token of the service, if it needs one")
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
