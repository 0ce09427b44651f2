from __future__ import annotations

import copy
import gc
import pickle
from typing import Any
from weakref import ref

import pytest
from torch import nn

from train_manager.model.per_object import PerObject


def test_it_keeps_no_object_alive() -> None:
    kept: PerObject[nn.Module, int] = PerObject()
    model = nn.Linear(1, 1)
    kept[model], seen = 1, ref(model)
    del model
    gc.collect()
    assert (seen(), len(kept)) == (None, 0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))])
@pytest.mark.parametrize("first", [False, True])
def test_copied_with_its_objects_it_has_the_copies(copied: Any, first: bool) -> None:
    model = nn.Linear(1, 1)
    kept: PerObject[nn.Module, list[int]] = PerObject()
    kept[model] = [1]
    both = copied((kept, model) if first else (model, kept))
    other, other_model = both if first else both[::-1]
    assert dict(other.items()) == {other_model: [1]}
    other[other_model].append(2)
    assert kept[model] == [1]
