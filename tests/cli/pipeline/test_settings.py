"""The settings of the pipeline as a space.yaml gives them, and what is said of wrong ones."""

from pathlib import Path

import pytest

from mew.cli.pipeline.source import settings_here
from mew.pipeline.settings import BadSetting, PipelineSettings


def here(folder: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str) -> PipelineSettings:
    (folder / "space.yaml").write_text(f"space: {{id: lab}}\npipeline: {pipeline}\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return settings_here()


def test_without_a_space_they_are_the_machine_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_here() == PipelineSettings()


def test_a_space_says_where_spark_runs_and_how_much_memory_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matches = here(tmp_path, monkeypatch, "{master: 'spark://cluster:7077', driver_memory: 2g, worker_memory: 3g}")
    assert (matches.master, matches.driver_memory, matches.worker_memory) == ("spark://cluster:7077", "2g", "3g")


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("{worker_memory: much}", r"space\.yaml: pipeline: pipeline\.worker_memory is 'much', not an amount like"),
        ("{driver_memory: 4}", r"space\.yaml: pipeline: Expected `str`, got `int` - at `\$\.driver_memory`"),
        ("{wroker_memory: 1g}", r"space\.yaml: there is no setting pipeline\.wroker_memory; the settings are master, "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str, said: str
) -> None:
    with pytest.raises(BadSetting, match=said) as problem:
        here(tmp_path, monkeypatch, pipeline)
    assert "\n" not in str(problem.value)
