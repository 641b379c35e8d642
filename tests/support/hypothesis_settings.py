"""Profiles of Hypothesis: no randomness in `make test`, new examples in `make torture`.

`examples(...)` sets the number of examples of a property test. The profile `fixed` draws the same examples in every
run, on any machine, in any order of tests and with any loaded modules. `torture` draws ten times as many new ones.
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
"""The number of examples in the profile `fixed`, for a property without its own number."""
TIMES: Final = 10
"""The factor for the number of examples in `torture`."""

# No deadline for an example: its time depends on the machine, and the timeout of the test finds a hang.
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
    """Settings with this number of examples, in `torture` ten times as many; `allow` switches off health checks."""
    loaded = settings()
    return settings(
        max_examples=number * loaded.max_examples // EXAMPLES,
        suppress_health_check=[*loaded.suppress_health_check, *allow],
    )


_constants_of_loaded_modules = providers._get_local_constants


def _constants() -> Constants:
    """Constants of our own code, which Hypothesis tries as examples; none in the profile `fixed`.

    They depend on the loaded modules and on every change of the code, and examples have to stay the same there.
    """
    return Constants() if settings().derandomize else _constants_of_loaded_modules()


providers._get_local_constants = _constants

# If loaded, the plugin of Schemathesis hides failing examples of every property test, and draws larger ones.
core.RepresentationPrinter = pretty.RepresentationPrinter  # type: ignore[attr-defined]
engine.BUFFER_SIZE = 8 * 1024
