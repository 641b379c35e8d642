"""Random histories for long tests: the same seed gives the same steps. `World` does the checks."""

import random
from typing import Any

from tests.model.machine import ACTIONS, World

Step = tuple[str, dict[str, Any]]


def history(seed: int, steps: int) -> list[Step]:
    """The steps of a seed."""
    chance = random.Random(seed)
    names = list(ACTIONS)
    chosen = chance.choices(names, [ACTIONS[name].weight for name in names], k=steps)
    return [(name, {key: chance.choice(options) for key, options in ACTIONS[name].options.items()}) for name in chosen]


def live(steps: list[Step]) -> Exception | None:
    """Run a history, and return the first exception, if any."""
    world = World()
    for name, arguments in steps:
        try:
            world.do(name, **arguments)
        except Exception as error:
            return error
    return None


def shortest(steps: list[Step]) -> list[Step]:
    """A failing history without the steps that the failure does not need."""
    shrunk = True
    while shrunk:
        shrunk = False
        for index in reversed(range(len(steps))):
            fewer = steps[:index] + steps[index + 1 :]
            if live(fewer) is not None:
                steps, shrunk = fewer, True
    return steps
