"""What is left to chance: nothing where a change has to pass, and as much as possible in `make torture`.

Property tests say here how many examples they try. The profile `fixed` draws the same ones in every run, whatever the
machine, the order of the tests and the modules that are loaded; `torture` draws new ones, and ten times as many.
"""

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import HealthCheck, core, settings
from hypothesis.internal.conjecture import engine, providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.vendor import pretty

FIXED: Final = "fixed"
TORTURE: Final = "torture"
EXAMPLES: Final = 100
"""Of a property that does not say how many; those that do mean the profile `fixed`."""
TIMES: Final = 10
"""So many more examples has torture."""

# How long an example takes, or is drawn, is the machine's affair: a hang is found by the time-out of the test.
_UNHURRIED: Final[dict[str, Any]] = {"deadline": None, "database": None, "print_blob": True}

settings.register_profile(
    FIXED,
    settings.get_profile("default"),
    **_UNHURRIED,
    max_examples=EXAMPLES,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    TORTURE,
    settings.get_profile("default"),
    **_UNHURRIED,
    max_examples=EXAMPLES * TIMES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def examples(number: int = EXAMPLES, *, allow: Sequence[HealthCheck] = ()) -> settings:
    """So many examples of a property, in torture more; what Hypothesis would take for a fault may be meant here."""
    loaded = settings()
    return settings(
        max_examples=number * loaded.max_examples // EXAMPLES,
        suppress_health_check=[*loaded.suppress_health_check, *allow],
    )


_constants_of_loaded_modules = providers._get_local_constants


def _constants() -> Constants:
    """Numbers and texts of our own code, which Hypothesis tries as examples.

    Which of it is loaded depends on what ran before, and every change to the code changes them: without them where
    examples have to stay the same.
    """
    return Constants() if settings().derandomize else _constants_of_loaded_modules()


providers._get_local_constants = _constants

# The plugin of Schemathesis, where it is loaded, has every property test print nothing of what failed, and draw more.
core.RepresentationPrinter = pretty.RepresentationPrinter  # type: ignore[attr-defined]
engine.BUFFER_SIZE = 8 * 1024
