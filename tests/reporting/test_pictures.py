from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread

from tests.support.fork_server import ForkServer
from tests.support.programs import code
from train_manager.reporting.pictures import png_of


def shown(picture: Any) -> list[Any]:
    """What another program reads, in bytes."""
    found: list[Any] = (imread(BytesIO(png_of(picture)), format="png") * 255).round().astype(int).tolist()
    return found


RED = [[[255, 0, 0], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("picture", "pixels"),
    [
        (torch.tensor([[0.0, 0.5, 1.0]]), [[0, 128, 255]]),
        (torch.tensor([[[0, 128, 255]]], dtype=torch.uint8), [[0, 128, 255]]),
        (torch.tensor([[True, False]]), [[255, 0]]),
        (torch.tensor([[-1.0, 2.0]], dtype=torch.bfloat16, requires_grad=True), [[0, 255]]),
        (torch.tensor([[[1.0, 0]], [[0, 0]], [[0, 0]]]), RED),
        (np.array([[[1.0, 0, 0], [0, 0, 0]]]), RED),
        (np.array([[[255, 0, 0, 128]]], dtype=np.uint8), [[[255, 0, 0, 128]]]),
    ],
)
def test_a_picture_comes_back_as_it_was(picture: Any, pixels: list[Any]) -> None:
    assert shown(picture) == pixels


def test_a_figure_is_drawn() -> None:
    figure = Figure(figsize=(1, 1), dpi=10)

    assert np.shape(shown(figure)) == (10, 10, 4)


def test_a_tensor_needs_no_matplotlib(fork_server: ForkServer) -> None:
    program = (
        "import sys, torch; from train_manager.reporting.pictures import png_of\n"
        "png_of(torch.rand(3, 8, 8)); print('matplotlib' in sys.modules)"
    )
    done = fork_server.run(code, program)

    assert (done.output, done.errors) == ("False\n", "")
