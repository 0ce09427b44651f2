"""Whatever is saved, killed, damaged and resumed in which order: a sound checkpoint is there, and the best stays."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.rotation import share_of
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.checkpoint_names import order_of, step_of
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError
from train_manager.files.lock import WriterLock

IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk takes most of the time to sync
VALUES = st.sampled_from([0.1, 0.2, 0.3, 0.4, float("nan"), None])


def order(path: Path) -> tuple[int, int]:
    return order_of(path) or (0, 0)


class Killed(BaseException):
    pass


class Training(RuleBasedStateMachine):
    """A training with its checkpoints; `sound` is what the model knows to be whole, with the monitored values."""

    @initialize(n=st.integers(1, 3), mode=st.sampled_from(["min", "max", None]))
    def start(self, n: int, mode: str | None) -> None:
        self.train_dir = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.path = self.train_dir / "checkpoints"
        self.n, self.mode = n, mode
        self.step = 0
        self.sound: dict[Path, float | None] = {}
        self.process()

    def process(self) -> None:
        """Begin a new process, which knows nothing of what the last one has written."""
        self.folder = CheckpointFolder(self.path)
        with WriterLock(self.train_dir) as lock:
            self.folder.clean_up(lock)

    def write(self, steps: int, value: float | None) -> None:
        self.step += steps
        path = self.folder.write(self.step, {"step": self.step}, {"monitored": value})
        assert path not in self.sound, "a checkpoint was overwritten"
        self.sound[path] = value

    def keep(self) -> None:
        best = self.best()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what the model has damaged
            self.folder.keep(self.n, self.mode)
        self.look(best)

    def look(self, best: Path | None) -> None:
        self.sound = {path: value for path, value in self.sound.items() if path.exists()}
        assert best is None or best in self.sound, "the best was lost"

    def best(self) -> Path | None:
        sign = -1 if self.mode == "max" else 1
        values = {path: sign * value for path, value in self.sound.items() if value is not None and value == value}
        in_order = sorted(values, key=lambda path: (values[path], order(path)))
        return in_order[0] if in_order and self.mode is not None else None

    @rule(steps=st.integers(0, 2), value=VALUES)
    def save(self, steps: int, value: float | None) -> None:
        self.write(steps, value)
        newest, best = sorted(self.sound, key=order)[-self.n :], self.best()
        self.keep()
        assert set(self.sound) == {*newest, *([best] if best else [])}

    @rule(steps=st.integers(0, 2), value=VALUES)
    def save_and_be_killed_before_the_others_are_deleted(self, steps: int, value: float | None) -> None:
        self.write(steps, value)
        self.process()

    @rule(value=VALUES, at=st.integers(1, 3))
    def save_and_be_killed_while_others_are_deleted(self, value: float | None, at: int) -> None:
        left = at

        def kill(path: Path) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                next(path.iterdir()).unlink()
                raise Killed
            shutil.rmtree(path)

        self.write(1, value)
        best = self.best()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("train_manager.files.leftovers._remove", kill)
            try:
                self.keep()
            except Killed:
                self.look(best)
        self.process()

    @rule()
    def be_killed_while_writing(self) -> None:
        half = self.path / f".tmp-step-{self.step:012d}-0f3c5b7a"
        half.mkdir(parents=True, exist_ok=True)
        (half / "model.safetensors").write_bytes(b"half")
        self.process()

    @precondition(lambda self: len(self.sound) > 1)
    @rule(data=st.data(), how=st.sampled_from(["flip", "cut", "remove"]))
    def damage_one_of_several(self, data: st.DataObject, how: str) -> None:
        path = data.draw(st.sampled_from(sorted(self.sound)))
        file = path / data.draw(st.sampled_from(["state.json", "model.safetensors", "manifest.json"]))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content if how == "flip" else content[:-1])
        if how == "remove":
            file.unlink()
        del self.sound[path]
        self.process()  # what a process has hashed itself it does not read again

    @precondition(lambda self: self.sound)
    @rule(data=st.data())
    def resume_from_any(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.sound)))
        self.process()
        self.folder.set_aside_after(self.folder.find(path))
        self.step = step_of(path)
        self.sound = {found: value for found, value in self.sound.items() if found.exists()}
        assert self.folder.checkpoints()[-1] == path

    @precondition(lambda self: self.sound)
    @rule()
    def resume_from_the_last(self) -> None:
        self.process()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = self.folder.find("last")
        assert found == max(self.sound, key=order)

    @rule(seconds=st.integers(0, 2**31))
    def set_the_clock(self, seconds: int) -> None:
        for path in self.folder.checkpoints():
            os.utime(path, (seconds, seconds))

    @invariant()
    def all_that_is_sound_for_the_model_is_verified(self) -> None:
        for path in getattr(self, "sound", ()):
            try:
                verify(path)
            except CheckpointError as error:
                raise AssertionError(f"{path.name} was sound") from error

    @invariant()
    def a_sound_one_is_there_once_one_was_saved(self) -> None:
        assert self.sound or not self.step

    @invariant()
    def nothing_is_half_deleted(self) -> None:
        assert all(path.name.startswith(("step-", "damaged-step-", "superseded")) for path in self.listed())

    def listed(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.exists() else []

    def teardown(self) -> None:
        if hasattr(self, "train_dir"):
            shutil.rmtree(self.train_dir)


TestTraining = Training.TestCase
TestTraining.settings = settings(
    max_examples=share_of(25), stateful_step_count=15, deadline=None, derandomize=True, database=None
)
