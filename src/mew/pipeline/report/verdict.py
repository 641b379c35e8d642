"""The answer to the first question of a reader: was anything wrong? One sentence about a space."""

from typing import Final

import msgspec

from mew.pipeline.report.gathering import ReportData


class Verdict(msgspec.Struct, frozen=True):
    """A sentence, and its colour: `good`, `warn` if something was lost or malformed, `bad` if a check failed."""

    sentence: str
    state: str


_LOSSES: Final = (
    ("missing", "frame that its sender numbered never arrived", "frames that senders numbered never arrived"),
    ("dropped", "delivery was missed by its reader", "deliveries were missed by their readers"),
    ("quarantined", "frame was not what its stream promised", "frames were not what their stream promised"),
)


def verdict_of(figures: ReportData) -> Verdict:
    """What was wrong in a space, if anything was."""
    failed = sum(bool(row[2]) for row in figures.audit)
    checks = len(figures.audit)
    wrong = [f"{failed} of {checks} checks of the record failed"] if failed else []
    for name, one, several in _LOSSES:
        count = figures.totals[name]
        wrong += [f"{count:,} {one if count == 1 else several}"] if count else []
    if not wrong:
        proven = f"all {checks} checks of the record hold" if checks else "the record was not checked yet"
        return Verdict(
            f"Nothing was wrong: {proven}, no loss is known, and every frame was as its stream promised.",
            "good" if checks else "warn",
        )
    rest = "" if failed or not checks else f" All {checks} checks of the record hold."
    return Verdict(f"Something was wrong: {'; '.join(wrong)}.{rest}", "bad" if failed else "warn")
