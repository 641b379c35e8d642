"""The pipeline's settings for the space of this directory: the `pipeline` section of its space.yaml, where it has one.

Must not start anything, and reads no configuration where there is none.
"""

import os
from pathlib import Path

import msgspec

from mew.pipeline.settings import BadSetting, PipelineSettings

_FILES = (Path(".mew") / "space.yaml", Path("space.yaml"))


def settings_here() -> PipelineSettings:
    """What the space.yaml of this directory says of the pipeline; without one, what the machine suggests."""
    if not any(file.is_file() for file in _FILES):
        return PipelineSettings()
    from mew.gateway.config import find_config, load

    space = load([find_config(Path.cwd())], environ=os.environ).spaces[0]
    return read(space.pipeline, space.file)


def read(section: dict[str, object], file: Path) -> PipelineSettings:
    """The section as a value; `BadSetting` says what is wrong with it, and where it stands."""
    unknown = sorted(section.keys() - set(PipelineSettings.__struct_fields__))
    if unknown:
        known = ", ".join(PipelineSettings.__struct_fields__)
        raise BadSetting(f"{file}: there is no setting pipeline.{unknown[0]}; there are {known}")
    try:
        return msgspec.convert(section, PipelineSettings)
    except msgspec.ValidationError as problem:
        raise BadSetting(f"{file}: pipeline: {problem}") from None
