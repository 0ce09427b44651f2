from __future__ import annotations

from dataclasses import replace

from train_manager import Extensible, Extension, every, scheduled
from train_manager.core.declarations import replaced_by


class Plain(Extensible):
    def step(self) -> None:
        with self.staged("step"):
            pass


class WithRows(Plain):
    _options = replace(Plain._options, replacing=frozenset({"rows"}))


class Counts(Extension):
    count = 0

    def pre_step(self) -> None: ...

    @replaced_by("rows")
    def post_step(self) -> None:
        self.count += 1


class Overrides(Counts):
    def post_step(self) -> None:
        super().post_step()


def counted(loop: Plain, extension: Counts) -> int:
    loop.add_extension(extension)
    for _ in range(4):
        loop.step()
    return extension.count


def test_a_hook_that_a_fixture_replaces_is_left_out_where_the_loop_has_the_fixture() -> None:
    assert counted(WithRows(), Counts()) == 0


def test_it_runs_in_a_loop_without_the_fixture() -> None:
    assert counted(Plain(), Counts()) == 4


def test_it_runs_with_a_schedule() -> None:
    assert counted(WithRows(), scheduled(Counts(), "post_step", every(2))) == 2


def test_it_runs_if_a_subclass_overrides_it() -> None:
    assert counted(WithRows(), Overrides()) == 4


def test_it_can_be_called_by_hand() -> None:
    extension = Counts()
    extension.post_step()

    assert extension.count == 1
