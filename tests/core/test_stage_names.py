"""Stage names that Python would write in another way as identifiers: NFKC, here a ligature and a combining accent."""

from __future__ import annotations

import pytest

from train_manager import Extensible, Extension, StageError


@pytest.mark.parametrize(("name", "written"), [("\ufb01t", "fit"), ("cafe\u0301", "caf\u00e9")])
def test_a_stage_name_that_no_hook_could_have_is_refused(name: str, written: str) -> None:
    with pytest.raises(StageError) as error, Extensible().staged(name):
        pass
    assert str(error.value) == (
        f"a stage cannot be called {name!r}: Python writes that name {written!r} in a `def`\n"
        "  take another name, like 'train_step_batch'"
    )


def test_a_stage_name_in_other_letters_than_ascii_meets_its_hook() -> None:
    class Watcher(Extension):
        seen = 0

        def pre_größe(self, size: int) -> None:
            self.seen = size

    watcher = Watcher()
    with Extensible([watcher]).staged("größe", {"size": 3}):
        pass
    assert watcher.seen == 3
