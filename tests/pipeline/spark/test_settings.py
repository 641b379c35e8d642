"""The pipeline's settings: the machine's measure, and nothing that Spark would stumble over."""

import msgspec
import pytest

from mew.pipeline import settings
from mew.pipeline.settings import BadSetting, PipelineSettings


@pytest.mark.parametrize(
    ("machine", "memory"),
    [(2**29, "512m"), (2 * 2**30, "1024m"), (6 * 2**30, "3072m"), (16 * 2**30, "8192m"), (2**40, "8192m")],
)
def test_spark_gets_half_of_the_memory_within_bounds(
    monkeypatch: pytest.MonkeyPatch, machine: int, memory: str
) -> None:
    monkeypatch.setattr(settings, "machine_memory", lambda: machine)
    assert PipelineSettings().driver_memory == memory


@pytest.mark.parametrize(("machine", "memory"), [(2**29, "512m"), (3 * 2**29, "768m"), (2**40, "1024m")])
def test_a_worker_of_a_cluster_is_asked_for_what_every_worker_has(
    monkeypatch: pytest.MonkeyPatch, machine: int, memory: str
) -> None:
    monkeypatch.setattr(settings, "machine_memory", lambda: machine)
    assert PipelineSettings().worker_memory == memory


def test_a_container_s_limit_counts_as_the_machine_s_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("limits")
    unlimited, limited = folder / "unlimited", folder / "limited"
    unlimited.write_text("max\n", encoding="ascii")
    limited.write_text(f"{2**28}\n", encoding="ascii")
    whole = settings.machine_memory()
    assert whole > 2**28
    monkeypatch.setattr(settings, "_LIMITS", (str(folder / "none"), str(unlimited)))
    assert settings.machine_memory() >= whole
    monkeypatch.setattr(settings, "_LIMITS", (str(unlimited), str(limited)))
    assert settings.machine_memory() == 2**28


@pytest.mark.parametrize("amount", ["", "4", "4gb", "-1g", "0g", "1.5g", "4 g", "511m"])
def test_an_amount_that_spark_does_not_know_is_refused(amount: str) -> None:
    with pytest.raises(BadSetting, match=r"pipeline\.driver_memory is"):
        PipelineSettings(driver_memory=amount)


def test_a_master_that_spark_does_not_know_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"pipeline\.master is 'here'"):
        PipelineSettings(master="here")


def test_what_a_file_says_is_checked_too() -> None:
    read = msgspec.json.decode(b'{"driver_memory": "2g", "typed": ["pose"]}', type=PipelineSettings)
    assert (read.driver_memory, read.typed, read.master) == ("2g", ("pose",), "local[*]")
    with pytest.raises(msgspec.ValidationError, match="an amount like"):
        msgspec.json.decode(b'{"worker_memory": "much"}', type=PipelineSettings)


@pytest.mark.parametrize("names", [[""], ["pose", " "]])
def test_a_format_without_a_name_is_refused(names: list[str]) -> None:
    with pytest.raises(BadSetting, match=r"pipeline\.typed has an empty name"):
        PipelineSettings(typed=tuple(names))
