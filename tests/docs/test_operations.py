"""The operations page names every key of the configuration with its default, and every metric, and no other."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.gateway.config import _GATEWAY, GatewayConfig, Queues, SpaceConfig, Timeouts
from mew.gateway.gateway import Gateway
from mew.gateway.metrics import exposition
from mew.protocol.settings import Limits, StreamSettings
from mew.testing import MemoryTokens, settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


def table(title: str) -> dict[str, str]:
    """The first two columns under a heading, without backticks."""
    _, found, rest = PAGE.partition(f"\n### {title}\n")
    assert found, f"docs/operations.md has no section {title!r}"
    rows = re.findall(r"^\| `([^`]+)` \|([^|]*)\|", re.split(r"\n##+ ", rest)[0], re.MULTILINE)
    return {key: value.strip().strip("`") for key, value in rows}


def shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("title", "values"),
    [
        ("`gateway.timeouts`", Timeouts()),
        ("`streams`", StreamSettings()),
    ],
)
def test_every_key_of_a_section_has_its_default(title: str, values: msgspec.Struct) -> None:
    assert table(title) == {name: shown(value) for name, value in msgspec.structs.asdict(values).items()}


def test_every_limit_has_its_default() -> None:
    limits = {name: shown(value) for name, value in msgspec.structs.asdict(Limits()).items()}
    queues = {"data_queue_bytes": shown(Queues().data_bytes), "control_queue_bytes": shown(Queues().control_bytes)}
    assert table("`gateway.limits`") == {**limits, **queues}


def test_every_key_of_the_gateway_is_named() -> None:
    listed = table("`gateway`")
    assert sorted(listed) == sorted(_GATEWAY)
    usual = GatewayConfig()
    assert (listed["host"], listed["port"]) == (usual.host, str(usual.port))


def test_every_metric_is_named(tmp_path: Path) -> None:
    space = SpaceConfig(settings=settings(), directory=tmp_path, file=tmp_path / "space.yaml", name="lab")
    text = exposition(Gateway(GatewayConfig(spaces=(space,)), MemoryTokens())).decode()
    assert sorted(table("Metrics")) == sorted(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
