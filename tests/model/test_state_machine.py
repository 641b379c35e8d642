"""After any steps in any order, a space agrees with the model, and all views agree with the space."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.model.machine import ACTIONS, World
from tests.support.hypothesis_settings import examples


class Histories(RuleBasedStateMachine):
    """Each action of the world is a rule; the world checks its invariants after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()


def as_rule(name: str, options: dict[str, tuple[Any, ...]]) -> Any:
    def happens(self: Histories, **arguments: Any) -> None:
        self.world.do(name, **arguments)

    happens.__name__ = name
    strategies: dict[str, Any] = {argument: st.sampled_from(choices) for argument, choices in options.items()}
    make_a_rule: Any = rule(**strategies)
    return make_a_rule(happens)


for action_name, action in ACTIONS.items():
    setattr(Histories, action_name, as_rule(action_name, action.options))


@pytest.mark.hypothesis
def test_every_history_is_as_the_model_tells_it() -> None:
    run_state_machine_as_test(Histories, settings=settings(examples(60), stateful_step_count=40))


def test_an_invitation_after_a_removal_lifts_the_pause_permanently() -> None:
    world = World()
    world.do("pause", who="ada", via="socket", whom="cleo", seconds=None)
    world.do("kick", who="ada", via="socket", kicked="cleo")
    world.do("invite", who="ada", via="socket", invited="cleo", initial=["stream/*"])
    world.do("join", who="cleo")
    world.do("request", who="cleo", via="socket", readers=None, policy=None, formats=None)
    assert [stream["owner"] for stream in world.model.streams.values()].count("cleo") == 1
