"""Stage names in other letters than ASCII."""

from __future__ import annotations

from train_manager import Extensible, Extension


def test_a_stage_name_in_other_letters_than_ascii_meets_its_hook() -> None:
    class Watcher(Extension):
        seen = 0

        def pre_größe(self, size: int) -> None:
            self.seen = size

    watcher = Watcher()
    with Extensible([watcher]).staged("größe", {"size": 3}):
        pass
    assert watcher.seen == 3
