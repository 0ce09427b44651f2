"""The files in which tests plant mistakes, and what is said about them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from train_manager import InputError, recorded
from train_manager.learner import create_dataloader, create_learner, entries, load_model
from train_manager.learner.learner import Learner
from train_manager.rebuilding import registry

DATA = """\
[dataset.digits]
use = "pictures"
inputs = "image"
targets = "label"
split = { train = 0.75, test = 0.25 }
features = [{ use = "divide", by = 16.0 }]
augment = [{ use = "shift", pixels = 1 }, { use = "noise", std = 0.1 }]
"""
MODEL = """\
[inputs]
image = [1, 8, 8]
[module.trunk]
from = "image"
layers = [
    { use = "Conv2d", out_channels = 4, kernel_size = 3 },
    { use = "ReLU" },
    { use = "Flatten" },
]
[module.digit]
from = "trunk"
use = "Linear"
out_features = 10
[objective.class]
use = "cross_entropy"
at = "digit"
"""
OPTIONS = """\
seed = 1
freeze = "trunk"
[[self_supervised]]
use = "SimCLR"
at = "trunk"
epochs = 1
[self_supervised.optimizer]
use = "AdamW"
lr = 1e-3
[extension.average]
use = "EMA"
decay = 0.9
"""

# What torch says of itself changes with its version, and so does the number of its modules.
_OF_TORCH = re.compile(r"((?:Runtime|Value|Type|Index)Error): .*")
_REASON = re.compile(r"(there is no device '\w+' here): .*")
_HEAD = re.compile(r"^\w+\.toml has a mistake\n")
_MORE = re.compile(r"known: .*\(\d+ more\)")


@recorded
def pictures(rows: int = 80) -> dict[str, Tensor | list[str]]:
    """Return pictures of ten kinds, as many of each; and a column of texts."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % 10
    return {"image": torch.rand(rows, 1, 8, 8, generator=generator), "label": labels, "name": ["a"] * rows}


def forget_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what other tests have marked @recorded: messages list all words."""
    ours = ("train_manager.learner:", "train_manager.extensions:", f"{__name__}:")
    for name, thing in list(registry._REGISTERED.items()):
        # What an example of a docstring defines is in no module.
        is_there = getattr(sys.modules.get(thing.__module__), thing.__name__, None) is thing
        if not (name.startswith(ours) and is_there):
            monkeypatch.delitem(registry._REGISTERED, name)
    entries._known_words.cache_clear()


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Return a text with parts of it replaced; each must be there."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def learner_of(data: str = DATA, model: str = MODEL, options: str = OPTIONS) -> Learner:
    """Make a learner of three texts, which are written into the current folder."""
    for name, text in {"data.toml": data, "model.toml": model, "options.toml": options}.items():
        Path(name).write_text(text)
    found = load_model("model.toml")
    return create_learner(create_dataloader("data.toml"), found, torch.optim.Adam(found.parameters()), "options.toml")


def said_of(data: str = DATA, model: str = MODEL, options: str = OPTIONS) -> str:
    """Return the error of three texts, without the head of one mistake and what depends on the version of torch."""
    Path("data.toml").write_text(data)
    Path("model.toml").write_text(model)
    with pytest.raises(InputError) as caught:
        create_dataloader("data.toml") if data != DATA and model == MODEL else learner_of(data, model, options)
    told = _HEAD.sub("", str(caught.value))
    return _REASON.sub(r"\1", _MORE.sub("known: ...", _OF_TORCH.sub(r"\1: ...", told)))
