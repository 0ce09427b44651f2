"""What is trained, and by what: the size of the model, the optimizers with their rates, and the monitored metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from train_manager.metrics.monitor import monitor_of
from train_manager.reporting.values import plural

TrainedParts = dict[str, Any]
"""In the record of a run: its "model", its "optimizers" by name, and the "monitor" that decides which epoch is best."""

MOST_GROUPS: Final = 3  # parameter groups whose rates a summary has


def trained_parts(train_manager: Any) -> TrainedParts:
    """Return what a manager trains at present; frozen parameters are counted, and not trained.

    >>> from train_manager.testing import tiny_manager
    >>> trained_parts(tiny_manager())["model"]
    {'class': 'Sequential', 'parameters': 42, 'trained': 42}
    """
    # Imported here, because readers of a record need no torch.
    from torch.nn import Module

    from train_manager.model.group_facts import group_facts
    from train_manager.model.summary import layer_of, total

    tm, found = train_manager, TrainedParts()
    if isinstance(tm.model, Module):
        parameters, trained = total(layer_of(tm.model, {}))
        found["model"] = {"class": type(tm.model).__name__, "parameters": parameters, "trained": trained}
    optimizers = tm.optimizers.items()
    found["optimizers"] = {name: [group._asdict() for group in group_facts(one)] for name, one in optimizers}
    if monitor := monitor_of(one for name, one in tm.extensions.items() if name not in tm.paused_extensions):
        found["monitor"] = {"metric": monitor.metric, "mode": monitor.mode, "by": monitor.asked_by}
    return found


def part_facts(parts: TrainedParts) -> Iterator[tuple[str, str, str]]:
    """Yield each part in words: its name, its class, and its size or its rates."""
    if model := parts.get("model"):
        yield "model", model["class"], size_of(model)
    for name, groups in (parts.get("optimizers") or {}).items():
        rates = [*dict.fromkeys(map(_rate, groups))]
        more = f"; {len(rates) - MOST_GROUPS} more" if len(rates) > MOST_GROUPS else ""
        classes = " and ".join(dict.fromkeys(group["optimizer"] for group in groups))
        yield _named(name), classes, "; ".join(rates[:MOST_GROUPS]) + more


def part_rows(parts: TrainedParts) -> dict[str, str]:
    """Return the rows of a table of parameters: the size of the model, and of each optimizer its groups."""
    found = {"model size": size_of(parts["model"])} if parts.get("model") else {}
    for name, groups in (parts.get("optimizers") or {}).items():
        if len(groups) > 1:
            found[f"{_named(name, '.')} groups"] = "; ".join(map(_whole, groups))
    return found


def size_of(model: Mapping[str, Any]) -> str:
    """Return how many parameters a model has.

    >>> size_of({"parameters": 5000, "trained": 5000}), size_of({"parameters": 5000, "trained": 42})
    ('5,000 parameters, all trained', '5,000 parameters, 42 of them trained')
    """
    trained = "all" if model["trained"] == model["parameters"] else f"{model['trained']:,} of them"
    return f"{model['parameters']:,} parameters, {trained} trained"


def _named(name: str, between: str = " ") -> str:
    return name if name == "optimizer" else f"optimizer{between}{name}"


def _rate(group: Mapping[str, Any]) -> str:
    rate = "no lr" if group["lr"] is None else f"lr {group['lr']:g}"
    return f"{group['name']} {rate}" if group["name"] else rate


def _whole(group: Mapping[str, Any]) -> str:
    decay = "" if group["weight_decay"] is None else f", weight decay {group['weight_decay']:g}"
    return f"{_rate(group)}{decay}, {plural(group['tensors'], 'tensor')}"
