"""The operations page names every metric, and no other."""

import re
from pathlib import Path

from mew.config.models import GatewayConfig, SpaceConfig
from mew.gateway.gateway import Gateway
from mew.gateway.metrics import exposition
from mew.testing import MemoryTokens, settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


def table(title: str) -> dict[str, str]:
    """The first two columns under a heading, without backticks."""
    _, separator, rest = PAGE.partition(f"\n### {title}\n")
    assert separator, f"docs/operations.md has no section {title!r}"
    rows = re.findall(r"^\| `([^`]+)` \|([^|]*)\|", re.split(r"\n##+ ", rest)[0], re.MULTILINE)
    return {key: value.strip().strip("`") for key, value in rows}


def test_every_metric_is_named(tmp_path: Path) -> None:
    space = SpaceConfig(settings=settings(), directory=tmp_path, file=tmp_path / "space.yaml", name="lab")
    text = exposition(Gateway(GatewayConfig(spaces=(space,)), MemoryTokens())).decode()
    assert sorted(table("Metrics")) == sorted(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
