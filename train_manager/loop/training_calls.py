"""Which training calls a program has made: a resumed program makes them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final


@final
@dataclass
class CallLog:
    """The calls of ``train``, ``train_epochs`` and ``train_steps``, in the order in which a program made them.

    A program that resumes from a checkpoint makes the same calls again. A call that was followed by another one is
    over, also if it was stopped early, and trains nothing; the last call trains the rest. If a call differs, this is
    another program, and all of its calls train as many steps or epochs as they name.
    """

    # The calls of the checkpoint and of this program: the method, its argument, and the count of steps or epochs at
    # which the call is to end.
    made: list[tuple[str, int, int]] = field(default_factory=list)
    _number: int = 0  # how many calls of `made` this program has made

    def repeats(self, method: str, n: int) -> bool:
        """Return whether the coming call was made before the checkpoint; if not, forget the calls that are left."""
        if method == "train":
            self._pass_over_fewer_epochs(n)
        is_known = self._coming()[:2] == (method, n)
        if not is_known:
            del self.made[self._number :]
        return is_known

    def goes_beyond(self, method: str, n: int) -> bool:
        """Return whether all calls that are left were ``train()`` up to fewer epochs: ``epochs`` was raised since."""
        left = self.made[self._number :]
        return method == "train" and bool(left) and all(made == "train" and before < n for made, before, _ in left)

    def _coming(self) -> tuple[str, int, int]:
        """Return the next call of the checkpoint; without one, a call that equals no other."""
        return self.made[self._number] if self.is_behind else ("", 0, 0)

    def _pass_over_fewer_epochs(self, n: int) -> None:
        """Pass over calls of ``train()`` up to fewer epochs."""
        # A program that looks at epoch_num first (`while tm.epoch_num < 10: ...`) leaves these calls out.
        while self._coming()[0] == "train" and self._coming()[1] < n:
            self._number += 1

    def begin(self, method: str, n: int, count: int) -> int:
        """Return the count at which a call ends: as the same call before the checkpoint, else at ``count + n``."""
        if not self.repeats(method, n):
            self.made.append((method, n, count + n))
        self._number += 1
        return self.made[self._number - 1][2]

    @property
    def is_behind(self) -> bool:
        """Whether calls of the checkpoint are left that this program has not made yet."""
        return self.left > 0

    @property
    def left(self) -> int:
        """How many calls of the checkpoint this program has not made yet."""
        return len(self.made) - self._number

    def state_dict(self) -> dict[str, Any]:
        """Return the calls that were made."""
        return {"made": [list(call) for call in self.made[: self._number]]}

    def load_state_dict(self, state: Mapping[str, Any], *, are_made_again: bool) -> None:
        """Resume from what ``state_dict`` returned, in a program that makes the same calls again, or further ones."""
        self.made = [(method, n, end) for method, n, end in state["made"]]
        self._number = min(self._number, len(self.made)) if are_made_again else len(self.made)
