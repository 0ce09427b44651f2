from __future__ import annotations

import torch

from train_manager.diagnosis.changes import Change, Changes
from train_manager.diagnosis.examples import Examples

FIRST = Change(0, 0, torch.tensor([True, False, True, False]))


def changed(batch: object, kind: str) -> Change:
    change = Changes(Examples(batch)).make(kind, FIRST)
    assert change is not None
    return change


def test_the_kept_examples_are_as_they_were() -> None:
    x = torch.randn(4, 3)
    for kind in ("noise", "copies"):
        (values,) = changed(x, kind).values.values()

        assert torch.equal(values[1::2], x[1::2])
        assert not torch.equal(values[::2], x[::2])


def test_copies_are_of_kept_examples_in_all_leaves_at_once() -> None:
    numbers = torch.arange(1, 5)
    x, lengths = changed((numbers.float(), numbers), "copies").values.values()

    assert torch.equal(x, lengths.float())
    assert set(lengths.tolist()) <= {2, 4}


def test_copies_of_one_leaf_leave_the_others() -> None:
    numbers = torch.arange(1, 5)
    x, lengths = changed((numbers.float(), numbers), "copies of 1").values.values()

    assert torch.equal(x, numbers.float())
    assert not torch.equal(lengths, numbers)


def test_other_tokens_are_of_the_batch_and_padding_stays() -> None:
    words = torch.tensor([[3, 5, 0], [4, 0, 0], [7, 3, 5], [9, 9, 0]])
    (values,) = changed(words, "noise").values.values()

    assert torch.equal(values == 0, words == 0)
    assert set(values.flatten().tolist()) <= set(words.flatten().tolist())


def test_noise_that_keeps_the_layout_is_on_floats_alone() -> None:
    x, lengths = torch.randn(4, 2), torch.arange(1, 5)
    change = Changes(Examples((x, lengths)), keep_layout=True).make("noise", FIRST)

    assert change is not None
    assert not torch.equal(change.values[0,][::2], x[::2])
    assert torch.equal(change.values[1,], lengths)


def test_noise_leaves_masks_as_they_are() -> None:
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    _, values = changed((torch.randn(4, 2), mask), "noise").values.values()

    assert torch.equal(values, mask)


def test_a_change_that_changes_nothing_is_none() -> None:
    assert Changes(Examples(torch.ones(4, 3))).make("copies", FIRST) is None


def test_no_global_random_number_is_drawn() -> None:
    state = torch.get_rng_state()
    changed(torch.randn(4, 3, generator=torch.Generator()), "noise")

    assert torch.equal(state, torch.get_rng_state())
