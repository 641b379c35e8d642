"""The `journal` section of space.yaml (docs/operations.md)."""

import re
from typing import Final, cast

from mew.gateway.yaml_file import Section
from mew.journal.kafka.address import FORM, Address, BadAddress, read_address
from mew.journal.settings import ErrorPolicy, JournalSettings, SyncMode

KEYS: Final = frozenset({"enabled", "sync", "segment_bytes", "segment_seconds", "retention", "on_error", "kafka"})
_KAFKA: Final = frozenset({"to", "topic"})
LEAST_SEGMENT_BYTES: Final = 64 * 2**10
MOST_INTERVAL_MS: Final = 60_000
_SYNC: Final = re.compile(r"(always|os)|interval:([0-9]{1,5})")
_RETENTION: Final = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def read_journal(top: Section) -> JournalSettings:
    """How the space's journal is kept."""
    given, usual = top.section("journal", KEYS), JournalSettings()
    mode, interval_ms = _read_sync(given, usual)
    seconds = given.number("segment_seconds")
    return JournalSettings(
        enabled=given.flag("enabled", default=usual.enabled),
        sync=mode,
        interval_ms=interval_ms,
        segment_bytes=given.whole("segment_bytes", usual.segment_bytes, least=LEAST_SEGMENT_BYTES),
        segment_seconds=usual.segment_seconds if seconds is None else seconds,
        retention_seconds=_read_retention(given),
        on_error=cast("ErrorPolicy", given.choice("on_error", ("stop", "continue")) or usual.on_error),
        kafka=_read_kafka(given),
    )


def _read_sync(given: Section, usual: JournalSettings) -> tuple[SyncMode, int]:
    place = given.get("sync")
    if place is None:
        return usual.sync, usual.interval_ms
    what = f"always, os, or interval:<milliseconds, 1 to {MOST_INTERVAL_MS}>"
    found = _SYNC.fullmatch(place.text(what))
    if found is None:
        raise place.error(f"expected {what}, got {place.node.value!r}")
    if found[1] is not None:
        return cast("SyncMode", found[1]), usual.interval_ms
    if not 1 <= int(found[2]) <= MOST_INTERVAL_MS:
        raise place.error(f"expected {what}, got {place.node.value!r}")
    return "interval", int(found[2])


def _read_retention(given: Section) -> float | None:
    place = given.get("retention")
    if place is None:
        return None
    what = "all, or a time such as 30d, 12h, 90m"
    if place.text(what) == "all":
        return None
    found = _RETENTION.fullmatch(place.text())
    if found is None or not int(found[1]):
        raise place.error(f"expected {what}, got {place.node.value!r}")
    return float(int(found[1]) * _SECONDS[found[2]])


def _read_kafka(given: Section) -> Address | None:
    if given.get("kafka") is None:
        return None
    section = given.section("kafka", _KAFKA)
    place, topic = section.required("to"), section.text("topic", "the name of a topic")
    if not given.flag("enabled", default=True):
        raise place.error("nothing can be sent of a journal that is not kept: see journal.enabled")
    try:
        return read_address(place.text(FORM), topic)
    except BadAddress as problem:
        raise place.error(str(problem)) from None
