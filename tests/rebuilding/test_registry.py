"""Short words for what files may name."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import train_manager.extensions
from tests.fork_server import ForkServer
from tests.rebuilding import recorded_parts
from train_manager.rebuilding.registry import find, named, words


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("Conv2d", {"torch.nn:Conv2d": nn.Conv2d}),
        ("AdamW", {"torch.optim:AdamW": torch.optim.AdamW}),
        ("cross_entropy", {"torch.nn.functional:cross_entropy": F.cross_entropy}),
        ("EMA", {"train_manager.extensions:EMA": train_manager.extensions.EMA}),
        ("Head", {"tests.rebuilding.recorded_parts:Head": recorded_parts.Head}),
        ("WeightedLosses", {"train_manager.loop:WeightedLosses": find("train_manager.loop:WeightedLosses")}),
    ],
)
def test_a_word_finds_what_it_means_with_its_whole_name(word: str, meant: dict[str, object]) -> None:
    assert named(word) == meant


def test_an_ambiguous_word_has_all_that_it_means() -> None:
    assert named("relu") == {"torch.nn.functional:relu": F.relu, "torch:relu": torch.relu}


@pytest.mark.parametrize("word", ["Conv2", "load", "Unrecorded", "torch.nn:Conv2d", "default_extensions", "", "eval"])
def test_a_word_of_nothing_that_a_file_may_name_has_no_meaning(word: str) -> None:
    assert named(word) == {}
    assert word not in words()


def test_every_word_means_what_its_whole_names_are() -> None:
    known = words()

    assert {word: list(named(word)) for word in known} == known


def imported_for_words() -> None:
    before = {*sys.modules}
    print("WarmUp" in words(), new_extensions(before))
    named("WarmUp")
    print(new_extensions(before))


def new_extensions(before: set[str]) -> list[str]:
    return sorted(one for one in {*sys.modules} - before if one.startswith("train_manager.extensions.optimization."))


def test_an_extension_is_imported_only_when_its_word_is_looked_up(fork_server: ForkServer) -> None:
    assert fork_server.run(imported_for_words).output.splitlines() == [
        "True []",
        "['train_manager.extensions.optimization.warm_up']",
    ]
