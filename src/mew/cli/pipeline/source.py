"""Which journal, lake and settings a `mew pipeline` command uses."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.cli.common.errors import UsageError
from mew.cli.common.render import human_duration
from mew.config import config_file
from mew.pipeline.settings import BadSetting, PipelineSettings

if TYPE_CHECKING:
    from mew.pipeline.lake import Lake
    from mew.pipeline.landing.landing import Ingest, IngestResult


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Explain an error or an interrupt while a command writes the lake in a folder."""
    from mew.pipeline.lake.unwritable import unwritable

    try:
        yield
    except KeyboardInterrupt:
        print(f"mew: interrupted: {unfinished_batch(folder) or 'no batch is unfinished'}", file=sys.stderr, flush=True)
        raise
    except Exception as error:
        problem = unwritable(error, folder)
        if problem is None:
            raise
        raise problem from None


def unfinished_batch(folder: Path) -> str | None:
    """Return what happens to the batch that is not finished, if there is one."""
    from mew.pipeline.lake import Lake

    lake = Lake(folder)
    progress = lake.progress()
    batch = 1 if progress is None else progress.batch + 1
    if lake.planned(batch) is None:
        return None
    return (
        f"batch {batch} is not finished, and readers see nothing of it; "
        "the next `mew pipeline run` or `watch` completes it"
    )


def settings_here() -> PipelineSettings:
    """Return the pipeline settings in the space.yaml of the directory; without one, defaults for this machine."""
    file = config_file(Path.cwd())
    if file is None:
        return PipelineSettings()
    from mew.config.loader import load_config

    space = load_config([file], environ=os.environ).spaces[0]
    return pipeline_settings_of(space.pipeline, space.file)


def pipeline_settings_of(section: dict[str, object], file: Path) -> PipelineSettings:
    """Parse the section. Raises `BadSetting` with the file and the invalid key."""
    unknown = sorted(section.keys() - set(PipelineSettings.__struct_fields__))
    if unknown:
        known_settings = ", ".join(PipelineSettings.__struct_fields__)
        raise BadSetting(f"{file}: there is no setting pipeline.{unknown[0]}; the settings are {known_settings}")
    try:
        return msgspec.convert(section, PipelineSettings)
    except msgspec.ValidationError as problem:
        raise BadSetting(f"{file}: pipeline: {problem}") from None


OWN: Final = "journal"
"""Folder in a lake for ingested records."""


def places_of(source: str, journal: Path | None, lake: Path) -> tuple[Path, Path]:
    """Return the folders of the ingested journal and of the lake. `--journal` with a source is a `UsageError`."""
    from mew.journal.kafka import parse_topic_url

    parse_topic_url(source)
    if journal is not None:
        raise UsageError("--source and --journal exclude each other: remove --journal")
    return lake / OWN, lake


def landing_of(source: str, lake: "Lake", session: Callable[[], Any]) -> "Ingest":
    """Create the ingest of a source."""
    from mew.journal.kafka import parse_topic_url
    from mew.pipeline.landing.landing import Ingest

    return Ingest(lake, parse_topic_url(source), session)


def land(source: str, lake: "Lake", session: Callable[[], Any]) -> None:
    """Ingest all available records and print a summary to standard error."""
    for arrived in landing_of(source, lake, session).arrivals():
        print(ingest_summary(arrived), file=sys.stderr, flush=True)
        for alarm in arrived.alarms:
            for message in alarm.sample:
                print(f"mew: {alarm.space or 'ingest'}: {message['what']}", file=sys.stderr, flush=True)


def ingest_summary(arrived: "IngestResult") -> str:
    """Return a summary of an ingest as one line."""
    again = f" ({arrived.repeats:,} duplicates)" if arrived.repeats else ""
    return (
        f"ingested {arrived.records:,} records of {arrived.messages:,} messages{again} "
        f"in {arrived.segments:,} segments, {human_duration(arrived.seconds)}"
    )
