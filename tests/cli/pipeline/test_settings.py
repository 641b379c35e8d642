"""The settings of the pipeline in a space.yaml, and the errors for invalid ones."""

from pathlib import Path

import pytest

from mew.cli.pipeline.source import settings_here
from mew.pipeline.settings import BadSetting, PipelineSettings


def here(folder: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str) -> PipelineSettings:
    (folder / "space.yaml").write_text(f"space: {{id: lab}}\npipeline: {pipeline}\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return settings_here()


def test_without_a_space_the_settings_are_the_defaults_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_here() == PipelineSettings()


def test_a_space_sets_the_master_and_the_memory_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matches = here(tmp_path, monkeypatch, "{master: 'spark://cluster:7077', driver_memory: 2g, worker_memory: 3g}")
    assert (matches.master, matches.driver_memory, matches.worker_memory) == ("spark://cluster:7077", "2g", "3g")


@pytest.mark.parametrize(
    ("pipeline", "key"),
    [
        ("{worker_memory: much}", "worker_memory"),
        ("{driver_memory: 4}", "driver_memory"),
        ("{wroker_memory: 1g}", "wroker_memory"),
    ],
)
def test_an_invalid_setting_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str, key: str
) -> None:
    with pytest.raises(BadSetting, match=rf"space\.yaml: .*\b{key}\b") as problem:
        here(tmp_path, monkeypatch, pipeline)
    assert "\n" not in str(problem.value)
