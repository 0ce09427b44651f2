"""Short words for what files may name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import train_manager.extensions
from tests.rebuilding import recorded_parts
from train_manager.rebuilding.registry import find, named, words

ROOT = Path(__file__).parents[2]


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


IMPORTED_FOR_WORDS = """
import sys
from train_manager.rebuilding.registry import named, words

def extensions():
    return [name for name in sys.modules if name.startswith("train_manager.extensions.optimization.")]

print("WarmUp" in words(), extensions())
named("WarmUp")
print(extensions())
"""


@pytest.mark.whole
def test_an_extension_is_imported_only_when_its_word_is_looked_up() -> None:
    # A process of its own: a child of the fork server has what the server has imported for other tests.
    done = subprocess.run([sys.executable, "-c", IMPORTED_FOR_WORDS], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout.splitlines() == ["True []", "['train_manager.extensions.optimization.warm_up']"], done.stderr
