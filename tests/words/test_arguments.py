"""Words of other tools for the arguments of a TrainManager."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import train_manager
from tests.support.refusals import refusal
from train_manager import TrainManager, extensions
from train_manager.errors import ArgumentError
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager
from train_manager.words.arguments import ARGUMENTS as WORDS
from train_manager.words.arguments import METHODS
from train_manager.words.fixtures import FIXTURES

ARGUMENTS = [name for name in inspect.signature(TrainManager.__init__).parameters if name != "self"]

ASKED_FOR = (
    "max_epochs num_epochs n_epochs callbacks plugins metrics lr criterion loss_fn loss_function train_loader "
    "train_dataloader train_dataloaders training_data validation_data val_data val_loader valid_data test_data "
    "batch_size optim optimizers scheduler accelerator devices gpus precision gradient_clip_val "
    "accumulate_grad_batches logger log_dir output_dir default_root_dir checkpoint ckpt_path net module verbose fp16 "
    "max_steps patience"
)


@pytest.mark.parametrize("word", ASKED_FOR.split())
def test_words_of_other_tools_are_known(word: str) -> None:
    told = refusal(lambda: tiny_manager(**{word: 1}), ArgumentError)

    assert told.startswith(f"TrainManager has no argument {word!r}\n  ")
    assert "its arguments are" not in told


def test_no_argument_is_taken_for_the_word_of_another_tool() -> None:
    assert WORDS.keys().isdisjoint(ARGUMENTS)


@pytest.mark.parametrize("meant", sorted(set(WORDS.values())))
def test_what_is_meant_is_there(meant: str) -> None:
    classes = re.findall(r"extensions=\[(\w+)\(", meant)
    methods = re.findall(r"tm\.(\w+)", meant)
    arguments = re.findall(r"\b(\w+)=", meant)

    assert meant in ARGUMENTS or classes or methods or set(arguments) & set(ARGUMENTS)
    assert all(hasattr(extensions, name) for name in classes)
    assert all(hasattr(TrainManager, name) for name in methods)


@pytest.mark.parametrize("argument", ["loss", "lr_schedule", "train_data", "eval_data", "epochs"])
def test_words_for_an_attribute_in_a_hook_are_known_for_the_argument_too(argument: str) -> None:
    words = {word for word, meant in FIXTURES.items() if f"train_manager.{argument}" in meant}

    assert words
    assert words <= {argument, *WORDS}


def test_an_attribute_of_another_tool_is_told_what_is_meant() -> None:
    with pytest.raises(AttributeError) as error:
        tiny_manager().fit()  # type: ignore[attr-defined]

    assert str(error.value) == "'TrainManager' object has no attribute 'fit'; did you mean tm.train()?"


def test_the_log_of_another_tool_is_told_where_numbers_come_from() -> None:
    with pytest.raises(AttributeError, match=r"did you mean report_loss\(value, name\) .* Metrics\(name=function\)"):
        tiny_manager().log("loss", 1.0)  # type: ignore[attr-defined]


def test_the_attribute_that_is_meant_is_there() -> None:
    owners = {"tm": tiny_manager(), "torch": torch}
    for meant in METHODS.values():
        owner, _, name = meant.partition(".") if meant.startswith(("tm.", "torch.")) else ("", "", meant)
        assert hasattr(owners.get(owner, train_manager), re.split(r"\W", name)[0]), meant


def test_a_property_that_fails_says_why() -> None:
    class Own(TrainManager):
        @property
        def width(self) -> int:
            return self.depth  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match=r"^'Own' object has no attribute 'depth'$"):
        _ = Own(model=torch.nn.Linear(1, 1)).width


@pytest.mark.parametrize(
    ("word", "here"),
    [
        ("save_top_k", "keep"),
        ("save_total_limit", "keep"),
        ("every_n_epochs", "save_at"),
        ("every_n_train_steps", "save_at"),
    ],
)
def test_checkpoints_know_the_words_of_other_tools(word: str, here: str) -> None:
    with pytest.raises(ArgumentError) as error:
        Checkpoints(**{word: 3})  # type: ignore[arg-type]

    assert str(error.value) == f"Checkpoints has no argument {word!r}\n  it is called {here!r} here"
