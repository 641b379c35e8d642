"""The notebook runs from top to bottom as a reader runs it, and what it shows is what DuckDB says of the same lake."""

import base64
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from mew.pipeline import open_lake
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from tests.pipeline.sessions import ENGINE, FOR_CHILDREN
from tools.journal_generator import generate

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "lake.ipynb"
SECONDS = 150
"""For one cell: the first that asks for a DataFrame starts Spark."""
FIGURES = ["colours", "rate"]
TELL = """import json

told = {
    "streams": streams[["space", "stream_id", "owner", "frames"]].values.tolist(),
    "ownership": ownership[["stream_id", "participant", "from_position"]].values.tolist(),
    "rates": {stream: int(frames) for stream, frames in rates.sum().items()},
    "gaps": gaps[["way", "stream_id", "who", "gaps", "frames"]].values.tolist(),
    "silences": silences[["stream_id", "silence_ms", "broken_by"]].values.tolist(),
}
print(json.dumps(told, default=int))
"""
"""Added before the last cell: what the notebook found, by the names that it gave to it."""


def stored() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def index(notebook: Any, cell_id: str) -> int:
    return next(number for number, cell in enumerate(notebook.cells) if cell.id == cell_id)


@contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """These variables for a kernel, which has those of the process that starts it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            if value is None:
                patch.delenv(name, raising=False)
            else:
                patch.setenv(name, value)
        yield


def run(notebook: Any, folder: Path, lake: Path | None) -> Any:
    """The notebook with its outputs, run by a kernel of this environment; a cell that raises fails the test."""
    values = {
        "JUPYTER_PLATFORM_DIRS": "1",
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLCONFIGDIR": str(folder / "matplotlib"),
        # Quick to start rather than quick: it lives for some seconds only.
        **FOR_CHILDREN,
        "MEW_LAKE": None if lake is None else str(lake),
        # The generator of the sample is a tool of the repository.
        "PYTHONPATH": str(ROOT),
    }
    with environment(values), tempfile.TemporaryDirectory(prefix="mew-") as sockets:
        # Unix sockets, which other users cannot reach; their names must be short.
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        NotebookClient(notebook, kernel_name="python3", config=config, timeout=SECONDS).execute(cwd=str(folder))
    return notebook


def outputs(notebook: Any, cell_id: str) -> list[Any]:
    return list(notebook.cells[index(notebook, cell_id)].outputs)


class Ran:
    """The notebook after its run, what it said it had found, and the lake that it was given."""

    def __init__(self, notebook: Any, lake: Path) -> None:
        self.notebook, self.lake = notebook, lake
        (output,) = outputs(notebook, "tell")
        self.told: dict[str, Any] = json.loads(output.text)

    def asked(self, statement: str) -> list[list[Any]]:
        """The same question to DuckDB."""
        with open_lake(self.lake) as lake, lake.sql(statement) as answer:
            return [list(row) for row in answer]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("notebook")
    generate(folder / "journal", records=30_000, spaces=2, seed=7)
    run_batch(folder / "journal", Lake(folder / "lake"), ENGINE)
    notebook = stored()
    cell = nbformat.v4.new_code_cell(TELL, id="tell")  # type: ignore[no-untyped-call]
    notebook.cells.insert(index(notebook, "close"), cell)
    return Ran(run(notebook, folder, folder / "lake"), folder / "lake")


def test_it_is_stored_without_what_a_run_has_left() -> None:
    notebook = stored()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) > 5
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@pytest.mark.timeout(300)
def test_it_complains_of_nothing(ran: Ran) -> None:
    streams = [
        output for cell in ran.notebook.cells for output in cell.get("outputs", []) if output.output_type == "stream"
    ]
    assert [stream.text for stream in streams if stream.name == "stderr"] == []


@pytest.mark.timeout(300)
def test_it_draws_its_figures(ran: Ran) -> None:
    drawn = {
        cell.id: output
        for cell in ran.notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in _data(output)
    }
    assert list(drawn) == FIGURES
    for output in drawn.values():
        picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(output.data["image/png"])))
        inked = (picture[:, :, :3] < 0.9).any(axis=2).mean()
        assert 0.05 < inked < 0.6, "neither empty nor all bars"


def _data(output: Any) -> Mapping[str, Any]:
    return output.get("data", {})  # type: ignore[no-any-return]


@pytest.mark.timeout(300)
def test_its_first_words_are_what_the_lake_has(ran: Ran) -> None:
    (output,) = outputs(ran.notebook, "lake")
    counted = ran.asked("select space, count(*) from frames group by space order by space")
    assert [line.partition(" frames ")[0] for line in output.text.splitlines()] == [
        f"{space}: {frames:,}" for space, frames in counted
    ]


@pytest.mark.timeout(300)
def test_its_streams_are_those_of_the_lake(ran: Ran) -> None:
    query = "select space, stream_id, owner, frames + data as n from streams order by n desc, space, stream_id"
    assert ran.told["streams"] == ran.asked(query)


@pytest.mark.timeout(300)
def test_its_owners_rates_and_gaps_are_those_of_the_busiest_space(ran: Ran) -> None:
    space = ran.told["streams"][0][0]
    busiest = [stream for where, stream, *_ in ran.told["streams"] if where == space]
    twelve_ids, six_ids = (", ".join(f"'{stream}'" for stream in busiest[:count]) for count in (12, 6))
    assert ran.told["ownership"] == ran.asked(
        "select stream_id, participant, from_position from stream_access"
        f" where space = '{space}' and role = 'owner' and stream_id in ({twelve_ids}) order by stream_id, from_position"
    )
    frames = f"select stream_id, count(*) from frames where space = '{space}' and stream_id in ({six_ids}) group by 1"
    assert ran.told["rates"] == dict(ran.asked(frames))
    assert ran.told["gaps"] == ran.asked(
        f"""select way, stream_id, who, count(*), sum(frames)::bigint as n from (
            select 'in' as way, stream_id, writer as who, missing as frames from sequence_gaps where space = '{space}'
            union all
            select 'out', stream_id, reader, dropped from reader_gaps where space = '{space}'
        ) group by 1, 2, 3 order by way, n desc, stream_id, who"""
    )
    assert {way for way, *_ in ran.told["gaps"]} == {"in", "out"}


@pytest.mark.timeout(300)
def test_its_window_finds_the_longest_silence_of_each_stream(ran: Ran) -> None:
    space = ran.told["streams"][0][0]
    assert ran.told["silences"] == ran.asked(
        f"""with each as (
            select stream_id, writer, position,
              (epoch_us(time) - epoch_us(lag(time) over (partition by stream_id order by position))) / 1000 as ms
            from frames where space = '{space}'
        )
        select stream_id, max(ms) as longest, arg_max(writer, (ms, -position))
        from each where ms is not null group by stream_id order by longest desc, stream_id limit 10"""
    )


def test_without_a_lake_it_makes_itself_a_small_one(tmp_path: Path) -> None:
    notebook = stored()
    last = notebook.cells[index(notebook, "close")]
    notebook.cells = [*notebook.cells[: index(notebook, "lake") + 1], last]
    (output,) = outputs(run(notebook, tmp_path, None), "lake")
    assert output.text.startswith("harbour: 2")
