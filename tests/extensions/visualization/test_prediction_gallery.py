"""The examples of a gallery: mistakes first, the surest of them; then the same random ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.rotation import part_of
from train_manager import InputError
from train_manager.extensions import MetricStore, PredictionGallery
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager


class Same(nn.Module):
    """Return the inputs as prediction; it has a weight, for an optimizer must have one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight


def evaluated(gallery: PredictionGallery, inputs: list[list[float]], targets: list[int]) -> None:
    batches = list(zip(torch.tensor(inputs).split(2), torch.tensor(targets).split(2), strict=True))
    tiny_manager(gallery, model=Same()).eval({"valid": batches})


def test_the_surest_mistakes_of_all_batches_come_first() -> None:
    gallery = PredictionGallery(mistakes=2, others=1)
    evaluated(gallery, [[0.0, 1.0], [0.0, 9.0], [0.0, 5.0], [7.0, 0.0]], [0, 1, 0, 1])

    examples = gallery.examples["valid"]
    assert examples["place"].tolist()[:2] == [3, 2]
    assert (examples["said"].tolist()[:2], examples["true"].tolist()[:2]) == ([0, 1], [1, 0])
    assert examples["sure"][0].item() == pytest.approx(0.999, abs=1e-3)


def test_where_nothing_is_wrong_there_are_random_examples_only() -> None:
    gallery = PredictionGallery(mistakes=2, others=3)
    evaluated(gallery, [[0.0, 1.0]] * 4, [1] * 4)

    assert len(gallery.examples["valid"]["place"]) == 3


def test_the_random_examples_are_the_same_in_each_evaluation() -> None:
    places = []
    for _ in range(2):
        evaluated(gallery := PredictionGallery(mistakes=1, others=2), [[0.0, 1.0]] * 20, [1] * 20)
        places.append(gallery.examples["valid"]["place"].tolist())

    assert places[0] == places[1]


def test_the_random_numbers_of_the_training_stay_as_they_are() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    evaluated(PredictionGallery(), [[0.0, 1.0]] * 4, [1] * 4)

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", part_of([(2,), (6, 6), (3, 6, 6), (1, 6, 6), (5, 6, 6)], 2))
def test_the_store_has_a_picture_of_inputs_of_any_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    inputs, targets = torch.rand(12, *shape), torch.zeros(12).long()
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))
    model(inputs)
    gallery = PredictionGallery(["cat", "dog"])
    tm = tiny_manager(
        gallery, MetricStore(), model=model, train_data=[(inputs, targets)], eval_data={}, train_dir=tmp_path
    )
    tm.eval({"valid": [(inputs, targets)]})

    ((_, rows),) = MetricReader(tmp_path).files().items()
    assert (tmp_path / rows[-1][1]).read_bytes()[:4] == b"\x89PNG"
    ((_, texts),) = MetricReader(tmp_path).texts().items()
    assert texts[-1][1].splitlines()[-1].startswith(("cat", "dog"))
    assert 'src="data:image/svg+xml;base64,' in gallery._repr_html_()


def test_inputs_that_are_no_tensor_are_refused() -> None:
    class FromDict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            prediction: torch.Tensor = self.layer(x)
            return prediction

    tm = tiny_manager(PredictionGallery(), model=FromDict())
    with pytest.raises(InputError) as error:
        tm.eval({"valid": [({"x": torch.rand(4, 2)}, torch.zeros(4).long())]})
    assert str(error.value) == (
        "PredictionGallery needs one input for each of 4 predictions, but inputs is a dict\n"
        "  leave PredictionGallery out"
    )
