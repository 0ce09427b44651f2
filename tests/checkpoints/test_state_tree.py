"""A state is taken apart and put together again: equal, types included; what is not a state is refused by its path."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch import nn

from tests.checkpoints.states import same
from train_manager.checkpoints.state_tree import join, split, tensor_names
from train_manager.errors import CheckpointError

KEYS = st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
TENSORS = st.builds(
    lambda dtype, shape, seed: (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 100).to(dtype),
    st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128, torch.uint8]),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 9),
)
ARRAYS = npst.arrays(
    st.one_of(npst.floating_dtypes(), npst.integer_dtypes(), npst.datetime64_dtypes(), npst.unicode_string_dtypes()),
    npst.array_shapes(min_dims=0, min_side=0, max_dims=2, max_side=3),
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), TENSORS, ARRAYS,
    st.floats(width=32, allow_nan=False).map(np.float32), st.integers(0, 255).map(np.uint8),
)  # fmt: skip
STATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(st.text(), inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(STATES)
def test_a_state_comes_back_equal_types_included(state: Any) -> None:
    tree, tensors = split(state)

    assert same(join(json.loads(json.dumps(tree, allow_nan=False)), tensors), state)
    assert sorted(tensor_names(tree)) == sorted(tensors)


@pytest.mark.parametrize(
    "state",
    [
        {1: "a", "1": "b", 1.5: "c", None: "d"},
        {"$tensor": "no tensor", "$": 1},
        {True: 1, False: 0},
        {0.0: 1},
        {"deep": {"er": [(), [], {}, ((),)]}},
        [1, 1.0, True, -0.0, 1 << 200, -(1 << 63), 10**5000],
        [math.nan, math.inf, -math.inf, 5e-324],
        "\ud800 lone surrogate, \0 and \n",
        b"\xff\x00",
        np.float64("nan"),
        np.bool_(True),
        np.str_("a"),
        np.datetime64("2026-01-01", "ms"),
        np.array(["a", "bc"]),
        np.arange(3, dtype=">i4"),
        np.arange(6.0).reshape(2, 3).T,
        Counter({3: 2}),
        OrderedDict([("b", 1), ("a", 2)]),
        np.random.default_rng(0).bit_generator.state,
        np.random.RandomState(0).get_state(),
    ],
    ids=lambda state: type(state).__name__,
)
def test_each_kind_comes_back_as_it_was(state: Any) -> None:
    tree, tensors = split(state)

    assert same(join(json.loads(json.dumps(tree, allow_nan=False)), tensors), state)


def test_the_random_state_of_numpy_continues_where_it_was() -> None:
    was = np.random.RandomState(3)
    tree, tensors = split(was.get_state())
    again = np.random.RandomState()
    again.set_state(join(tree, tensors))

    assert again.rand() == was.rand()


def test_tensors_whose_paths_read_alike_have_names_of_their_own() -> None:
    state = {"a": {"b": torch.ones(1), 0: torch.ones(2)}, "a.b": torch.ones(3), "__metadata__": torch.ones(4)}
    tree, tensors = split(state)

    assert list(tensors) == ["a.b", "a.0", "a.b#2", "__metadata__#2"]
    assert same(join(tree, tensors), state)


class Own:
    pass


class Named(tuple[int, ...]):
    pass


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Own(), "extensions > ema > shadow is an object of type tests.checkpoints.test_state_tree.Own"),
        (print, "extensions > ema > shadow is an object of type builtin_function_or_method"),
        ({1, 2}, "extensions > ema > shadow is an object of type set"),
        (defaultdict(int), "extensions > ema > shadow is an object of type collections.defaultdict"),
        (torch.Size([1]), "extensions > ema > shadow is an object of type torch.Size"),
        (torch.float32, "extensions > ema > shadow is an object of type torch.dtype"),
        (np.array([Own()]), "extensions > ema > shadow is an object of type numpy.ndarray"),
        ([0, Own()], "extensions > ema > shadow > 1 is an object of type tests.checkpoints.test_state_tree.Own"),
        ((Own(),), "extensions > ema > shadow > 0 is an object of type tests.checkpoints.test_state_tree.Own"),
        (nn.Linear(1, 1), "extensions > ema > shadow is an object of type torch.nn.modules.linear.Linear"),
        (torch.ones(2).to_sparse(), "extensions > ema > shadow is a tensor of layout torch.sparse_coo"),
        ({(1, 2): 3}, "extensions > ema > shadow has a key of type tuple"),
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_what_is_no_state_is_refused_by_its_path(value: Any, told: str) -> None:
    with pytest.raises(CheckpointError) as info:
        split({"extensions": {"ema": {"shadow": value}}})

    assert info.value.what == f"{told}, which a checkpoint cannot hold"


def test_a_refusal_says_what_a_checkpoint_holds() -> None:
    with pytest.raises(CheckpointError) as info:
        split({"step": {3}})

    assert str(info.value) == (
        "step is an object of type set, which a checkpoint cannot hold\n"
        "  it holds dicts, lists, tuples, tensors, numpy arrays, numbers, texts, bytes, bool and None"
    )


def test_a_state_that_holds_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["again"] = state

    with pytest.raises(CheckpointError) as info:
        split(state)

    assert info.value.what == "again contains itself"


def test_a_state_that_is_too_deep_to_be_read_again_is_refused() -> None:
    state: Any = 1
    for _ in range(102):
        state = [state]

    with pytest.raises(CheckpointError) as info:
        split(state)

    assert info.value.what == "0 > 0 > 0 > 0 > 0 > ... is nested more than 100 deep"


@pytest.mark.parametrize(
    "tree",
    [
        {"$pickle": "gASV"},
        {"$tuple": [], "more": 1},
        {"$tuple": 3},
        {"$dict": [[[], 1]]},
        {"$dict": [[1]]},
        {"$int": "x"},
        {"$int": 3},
        {"$float": "1e5"},
        {"$bytes": "a"},
        {"$bytes": 3},
        {"$tensor": "missing"},
        {"$tensor": []},
        {"$array": ["|O", [1], "x"]},
        {"$array": ["<f4", [1 << 40], "x"]},
        {"$array": ["<f4", [3], "x"]},
        {"$array": ["<f4", [0], "empty", 1]},
        {"$array": ["<f4", [10**9], "empty"]},
        {"$array": ["f4,(1000000,1000000)f8", [1], "x"]},
        {"$number": ["<f4", "00"]},
        {"$number": ["|V8", "0000000000000000"]},
        {"$number": ["<U999999999", ""]},
        {"$Counter": 3},
    ],
    ids=str,
)
def test_a_tree_that_split_cannot_have_made_is_refused(tree: Any) -> None:
    tensors = {"x": torch.zeros(8, dtype=torch.uint8), "empty": torch.zeros(0, dtype=torch.uint8)}

    with pytest.raises(CheckpointError, match=r"^state.json is damaged: "):
        join({"a": [tree]}, tensors)


def test_a_tree_that_is_too_deep_is_refused() -> None:
    tree: Any = 1
    for _ in range(100_000):
        tree = [tree]

    with pytest.raises(CheckpointError, match=r"^state.json is damaged: maximum recursion depth exceeded"):
        join(tree, {})
