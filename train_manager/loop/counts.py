"""Counts: how much a TrainManager has trained, in all its runs and phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from train_manager.metrics.deferred import numbers


@final
@dataclass
class Counts:
    """Batches, updates and examples."""

    step_num: int = 0  # batches trained on, without those that were skipped
    update_num: int = 0  # optimizer steps done, of all optimizers
    samples_seen: Any = 0  # examples in those batches; a tensor, which is not read, if the batch sizes are
    optimizer_updates: dict[str, int] = field(default_factory=dict)  # optimizer steps by optimizer

    def count_update(self, name: str) -> None:
        """Count a step of one optimizer."""
        self.update_num += 1
        self.optimizer_updates[name] = self.optimizer_updates.get(name, 0) + 1

    def state_dict(self) -> dict[str, Any]:
        """Return all of them as plain numbers."""
        seen = numbers([self.samples_seen])[0]
        return {**self.__dict__, "samples_seen": seen, "optimizer_updates": dict(self.optimizer_updates)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.step_num, self.update_num = int(state["step_num"]), int(state["update_num"])
        self.samples_seen = state["samples_seen"]
        self.optimizer_updates = dict(state["optimizer_updates"])
