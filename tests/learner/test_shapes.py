# ruff: noqa: E501  # messages have lines of their own
from __future__ import annotations

import pytest

from tests.learner.planted import MODEL, changed, said_of

pytestmark = pytest.mark.usefixtures("planted_words")


PLANTED = {
    "a width that does not fit": (
        [("out_features = 10", "out_features = 10\nin_features = 100")],
        """\
  model.toml:10  module.digit is Linear, which does not fit: trunk gives [144], and its weight is [10, 100]
                 leave in_features out: it follows; RuntimeError: ...""",
    ),
    "a kernel that is larger than the image": (
        [("kernel_size = 3", "kernel_size = 30")],
        """\
  model.toml:6  module.trunk.layers[0] is Conv2d, which does not fit: image gives [1, 8, 8], and its weight is [4, 1, 30, 30]
                RuntimeError: ...""",
    ),
    "a kernel of 0": (
        [("kernel_size = 3", "kernel_size = 0")],
        """\
  model.toml:6  module.trunk.layers[0] is Conv2d, which does not fit: image gives [1, 8, 8], and its weight is [4, 1, 0, 0]
                InputError: its weight has no numbers, since a size is 0""",
    ),
    "a module that mixes the examples": (
        [('"Flatten"', '"Flatten", start_dim = 0')],
        """\
  model.toml:8  module.trunk.layers[2] is Flatten, which mixes the examples: a batch of 3 becomes [432]
                leave axis 0 as it is: that of the examples""",
    ),
    "an LSTM": (
        [
            ('"Conv2d", out_channels = 4, kernel_size = 3', '"Flatten", start_dim = 1, end_dim = 2'),
            ('"ReLU"', '"LSTM", hidden_size = 3'),
        ],
        """\
  model.toml:7  module.trunk.layers[1] is LSTM, which returns a tuple, but a module must return one tensor
                write a module of your own, with @recorded above it, that returns one tensor""",
    ),
    "a module of three arguments": (
        [('"ReLU"', '"MultiheadAttention", embed_dim = 6, num_heads = 2')],
        """\
  model.toml:7  module.trunk.layers[1] is MultiheadAttention, which does not fit: trunk, layer 1 (Conv2d) gives [4, 6, 6]
                TypeError: ...""",
    ),
    "two feeders of one argument": (
        [('from = "trunk"', 'from = ["trunk", "image"]')],
        """\
  model.toml:10  module.digit is Linear, which does not fit: trunk and image give [144] and [1, 8, 8], and its weight is [10, 144]
                 TypeError: ...""",
    ),
    "an input of another shape than the data": (
        [("[1, 8, 8]", "[1, 9, 9]")],
        """\
  data.toml:3  dataset.digits.inputs give image of [1, 8, 8], but the model takes [1, 9, 9]
               write image = [1, 8, 8] in [inputs] of the model""",
    ),
    "fewer outputs than labels": (
        [("out_features = 10", "out_features = 9")],
        """\
  model.toml:14  objective.class raised IndexError: ...
                 it was given digit of [4, 9] and targets of [4], int64 from 0 to 9""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_a_shape_is_named_with_its_cure(changes: list[tuple[str, str]], message: str) -> None:
    assert said_of(model=changed(MODEL, *changes)) == message
