"""The arguments of a TrainManager, recorded as it is made; ``rebuilt_arguments`` makes arguments of the record again.

Not recorded are ``train_dir``, because a manager that is rebuilt must not write where another run did; and data whose
class is not ``recorded``: they are large, and a training that is only evaluated or looked at needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer

from train_manager.loop.arguments import kind_of, modules_of_loss
from train_manager.rebuilding.record_tree import NOT_REBUILDABLE, Tree, with_parts
from train_manager.rebuilding.registry import name_of
from train_manager.rebuilding.signatures import signature_of
from train_manager.rebuilding.value_trees import RECORD, tree_of, trees_of, unwritten

DATA: Final = ("train_data", "eval_data")


def record_of_manager(kind: type, given: Mapping[str, Any]) -> Tree:
    """Return the record of a TrainManager that was made with these arguments."""
    model, loss = given["model"], given["loss"]
    special = {name: _tree_of_data(given[name]) for name in DATA}
    optimizer = given["optimizer"]
    if isinstance(optimizer, Mapping):
        trees = {name: _tree_of_optimizer(one, [getattr(model, name, None)]) for name, one in optimizer.items()}
        special["optimizer"] = trees
    else:
        special["optimizer"] = _tree_of_optimizer(optimizer, [model, *modules_of_loss(loss)])
    plain = trees_of({name: value for name, value in given.items() if name not in special})
    # The name is for errors and for readers: from_checkpoint makes an object of the class that it is called on.
    name = f"{kind.__module__}:{kind.__qualname__}"
    return {"$object": name, "arguments": {name: (plain | special)[name] for name in given}}


def _tree_of_data(data: Any) -> Tree:
    if data is None or RECORD in getattr(data, "__dict__", {}):
        return tree_of(data)
    if isinstance(data, Mapping) and all(isinstance(name, str) for name in data):
        return with_parts({}, {name: _tree_of_data(one) for name, one in data.items()})
    return unwritten(f"{kind_of(data)}, which is not recorded", data)


def _tree_of_optimizer(optimizer: Any, modules: list[Any]) -> Tree:
    """Return the tree of a callable that makes the optimizer."""
    # A ready optimizer is recorded as its class and its options, if it has the parameters of the modules in one group.
    if not isinstance(optimizer, Optimizer):
        return tree_of(optimizer)
    name, called = name_of(type(optimizer)), type(optimizer).__name__
    own = [id(p) for module in modules if isinstance(module, nn.Module) for p in module.parameters()]
    groups = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    signature = signature_of(type(optimizer))
    if name is None or signature is None or groups != [own]:
        why = "which is not recorded" if name is None else "whose parameters are not simply those of the model"
        return {NOT_REBUILDABLE: f"a ready {called}, {why}"}
    options = {key: value for key, value in optimizer.defaults.items() if key in signature.parameters}
    return {"$callable": name, "arguments": trees_of(options)}
