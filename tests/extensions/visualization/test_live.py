from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
import torch

from tests.support.host_reads import HostReads
from train_manager import TrainManager
from train_manager.extensions import Live
from train_manager.extensions.visualization import live
from train_manager.telling.errors import InputError
from train_manager.testing import tiny_manager

CELLS = [
    "from train_manager.extensions import Live, Log, ProgressBar\nfrom train_manager.testing import tiny_manager\n"
    "tm = tiny_manager(ProgressBar(interval=0), Live(interval=0), epochs=3)",
    "tm.train();",
    "tm.train_epochs(40);",
    "with tm.run():\n    for batch in tm.train_data:\n        tm.train_on_batch(batch)\n    tm.end_epoch()",
    "with tm.phase('second', epochs=1):\n    tm.train();",
]


class Shown:
    """An output below a cell: what was shown there."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, text: str, html: str) -> None:
        self.texts.append(text)


@pytest.fixture
def _notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "is_notebook", lambda: True)


def batches_of(tm: TrainManager) -> list[Any]:
    assert tm.train_data is not None
    return [*tm.train_data]


def shown_by(*, interval: float = 0.0) -> tuple[Live, list[str]]:
    extension, output = Live(interval), Shown()
    vars(extension)["_output"] = output
    return extension, output.texts


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.test_notebooks import executed

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])  # type: ignore[no-untyped-call]
    return executed(notebook, tmp_path_factory.mktemp("notebook")).cells


def pictures(cell: Any) -> list[str]:
    return [
        output.data["text/html"] for output in cell.outputs if "<svg" in output.get("data", {}).get("text/html", "")
    ]


@pytest.mark.slow
@pytest.mark.whole  # tests/test_notebooks.py runs a notebook with one
def test_a_cell_has_one_output_for_each_extension_however_long_it_trains(cells: list[Any]) -> None:
    assert [len(cell.outputs) for cell in cells[1:3]] == [2, 2]
    assert [len(pictures(cell)) for cell in cells[1:]] == [1, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.whole  # tests/test_notebooks.py runs a notebook with one
def test_a_later_cell_shows_the_whole_training_so_far(cells: list[Any]) -> None:
    last_ticks = [max(map(int, re.findall(r">(\d+)</text>", pictures(cell)[0]))) for cell in cells[1:3]]

    assert last_ticks == [8, 100]  # of 9 steps and of 129


@pytest.mark.slow
@pytest.mark.whole  # tests/test_notebooks.py runs a notebook with one
def test_the_pictures_of_all_cells_have_one_size(cells: list[Any]) -> None:
    assert len({re.findall(r'(?:width|height)="\d+"', pictures(cell)[0])[:2][0] for cell in cells[1:]}) == 1


def test_outside_of_a_notebook_it_shows_and_keeps_nothing() -> None:
    extension, texts = shown_by()
    tm = tiny_manager(extension)
    tm.train()

    assert texts == []
    assert extension.state_dict()["losses"] == {}


@pytest.mark.usefixtures("_notebook")
def test_it_shows_the_losses_that_the_history_has_after_the_last_evaluation() -> None:
    extension, texts = shown_by()
    tm = tiny_manager(extension, epochs=2)
    tm.train()

    assert texts[-1].endswith(f"valid {tm.history.evaluations[-1]['loss']:.4g}")


@pytest.mark.usefixtures("_notebook")
def test_it_is_renewed_once_in_each_interval_and_at_the_end() -> None:
    extension, texts = shown_by(interval=3600)
    tiny_manager(extension, epochs=50).train()

    assert len(texts) == 2  # at the first step, and at the end


@pytest.mark.usefixtures("_notebook")
def test_calls_of_train_on_batch_that_are_runs_of_their_own_do_not_draw_each_time() -> None:
    extension, texts = shown_by(interval=3600)
    tm = tiny_manager(extension)
    for _ in range(3):
        for batch in batches_of(tm):
            tm.train_on_batch(batch)

    assert len(texts) == 1


@pytest.mark.usefixtures("_notebook")
def test_a_loop_of_ones_own_is_drawn_as_its_run_ends() -> None:
    extension, texts = shown_by(interval=3600)
    tm = tiny_manager(extension)
    with tm.run():
        for batch in batches_of(tm):
            tm.train_on_batch(batch)
        tm.end_epoch()

    assert len(texts) == 2


@pytest.mark.usefixtures("_notebook")
def test_after_an_error_the_last_picture_has_the_steps_before_it() -> None:
    extension, texts = shown_by(interval=3600)
    tm = tiny_manager(extension)
    tm.train_data = [*batches_of(tm), None]
    with pytest.raises(Exception, match="batch"):
        tm.train()

    assert len(texts) == 2


@pytest.mark.usefixtures("_notebook")
def test_a_phase_has_a_picture_of_its_own() -> None:
    extension, texts = shown_by()
    tm = tiny_manager(extension, epochs=1)
    with tm.run():
        with tm.phase("first", epochs=1, eval_data={"other": tm.eval_data["valid"]}):
            tm.train()
        in_phase = texts[-1]
        tm.train()

    assert ", other " in in_phase
    assert ", valid " in texts[-1]
    assert ", other " not in texts[-1]


@pytest.mark.usefixtures("_notebook")
def test_a_training_from_a_loaded_state_shows_the_steps_before_it() -> None:
    first, _ = shown_by()
    tm = tiny_manager(first, epochs=1)
    tm.train()
    again, _ = shown_by()
    going_on = tiny_manager(again, epochs=2)
    going_on.load_state_dict(tm.state_dict())
    going_on.train()
    whole, _ = shown_by()
    tiny_manager(whole, epochs=2).train()

    assert again.state_dict()["losses"] == whole.state_dict()["losses"]


@pytest.mark.usefixtures("_notebook")
def test_a_step_reads_nothing_on_the_host_between_two_drawings() -> None:
    extension, _ = shown_by(interval=3600)
    tm = tiny_manager(extension, epochs=1)
    tm.train()
    with HostReads() as reads:
        tm.train_on_batch(batches_of(tm)[0])

    assert reads.count == 0


@pytest.mark.usefixtures("_notebook")
def test_it_does_not_change_what_is_trained() -> None:
    plain, watched = tiny_manager(epochs=2), tiny_manager(shown_by()[0], epochs=2)
    plain.train()
    watched.train()

    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True))


def test_an_interval_below_zero_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        Live(-1)
    assert str(refused.value).startswith("interval must be")
