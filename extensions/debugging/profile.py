"""Profiles of chosen steps, by the profilers of torch and of Python: where the time of a run goes."""

from __future__ import annotations

import pstats
from collections.abc import Iterator
from cProfile import Profile as Calls
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import profile

from train_manager.core.declarations import always
from train_manager.core.extension import Extension
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.values import align_columns
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class Profile(Extension):
    """Trace a few steps call by call, and measure the time of each hook.

    >>> import tempfile
    >>> from train_manager.testing import tiny_manager
    >>> profile = Profile(first=2, steps=2)
    >>> result = tiny_manager(profile, epochs=2, train_dir=tempfile.mkdtemp()).train()
    >>> [file.name for file in profile.files]
    ['steps_2-3.json', 'steps_4-5.prof']

    The first so many steps are traced by ``torch.profiler``, with the kernels of a GPU: open the ``.json`` file in
    Perfetto or ``chrome://tracing``. The steps after them are counted by ``cProfile``: ``python -m pstats``, or
    snakeviz, opens the ``.prof`` file. Both make the steps that they look at slower, and no others.
    ``print(profile.text())`` is a table of the hooks, in microseconds for each call, as ``cProfile`` has seen them.

    *Runs at:* around ``train_step_batch``, and the end of ``train``.

    *Asks for:* ``step_num`` and ``train_dir``.

    *Leaves behind:* ``train_dir/profile/steps_11-13.json`` and ``steps_14-16.prof``.

    Args:
        first: the first step that is traced, counted from 1; the steps before it warm up.
        steps: how many steps are traced, and how many are counted after them.

    Attributes:
        files: those that were written.
        hooks: the microseconds of each hook for each call, and the number of calls, by the hook's name.

    Raises:
        InputError: ``first`` or ``steps`` is not a whole number of at least 1.
    """

    ranks = 0

    def __init__(self, first: int = 11, steps: int = 3) -> None:
        self.first = require_count(first, "first", at_least=1)
        self.steps = require_count(steps, "steps", at_least=1)
        self.files: list[Path] = []  # in the order in which they were written
        self.hooks: dict[str, tuple[float, int]] = {}
        self._open: tuple[profile | Calls, int] | None = None  # the profiler that is running, and its first step

    def around_train_step_batch(
        self, step_num: int, train_dir: Path, train_manager: TrainManager | None = None
    ) -> Iterator[None]:
        # An around hook: the profiler must run while the hooks and the step inside of it do.
        step = step_num + 1
        # Two windows of `steps` steps: first under torch.profiler,
        # then under cProfile, which would slow the other one down.
        if step in (self.first, self.first + self.steps):
            self._begin(step)
        yield
        if self._open is not None and step == self._open[1] + self.steps - 1:
            self._end(step, train_dir, train_manager)

    @always
    def post_train(self, step_num: int, train_dir: Path, train_manager: TrainManager | None = None) -> None:
        if self._open is not None:  # the training has ended within a window, so the profile is shorter than asked for
            self._end(step_num, train_dir, train_manager)

    def _begin(self, step: int) -> None:
        # `Calls` is cProfile.Profile; this class has its name here.
        profiler: profile | Calls = profile() if step == self.first else Calls()
        self._open = (profiler, step)
        if isinstance(profiler, profile):
            profiler.start()
        else:
            profiler.enable()

    def _end(self, step: int, train_dir: Path, train_manager: TrainManager | None) -> None:
        assert self._open is not None, "a profiler is running"
        # Forgotten first: if writing the file fails, post_train must not stop the same profiler again.
        (profiler, first), self._open = self._open, None
        path = train_dir / "profile" / f"steps_{first}-{step}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(profiler, profile):
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # the GPU lags behind Python: the kernels of the last step would be cut off
            profiler.stop()
            path = path.with_suffix(".json")
            profiler.export_chrome_trace(str(path))
        else:
            profiler.disable()
            path = path.with_suffix(".prof")
            profiler.dump_stats(path)
            self.hooks = {} if train_manager is None else self._of_hooks(profiler, train_manager)
        self.files.append(path)

    def text(self) -> str:
        """Return a table of the hooks, the dearest first."""
        rows = sorted(self.hooks.items(), key=lambda row: -row[1][0])
        lines = [["hook", "us", "calls"], *([name, f"{us:.1f}", str(calls)] for name, (us, calls) in rows)]
        return align_columns(lines)

    def _of_hooks(self, calls: Calls, train_manager: TrainManager) -> dict[str, tuple[float, int]]:
        """Return the microseconds of each hook for each call, with what it calls, and the number of calls."""
        # cProfile knows functions by file, line and name; hooks are found among them by their code objects.
        seen: dict[Any, Any] = pstats.Stats(calls).stats  # type: ignore[attr-defined]
        found = {}
        for hook in train_manager._registry.hooks:
            function = hook.call.function
            code = getattr(function, "__code__", None)
            # A hook without Python code, as one made with functools.partial, cannot be found.
            key = None if code is None else (code.co_filename, code.co_firstlineno, code.co_name)
            # The hooks of this extension are left out: they ran while the profiler was being switched on and off.
            if key in seen and getattr(function, "__self__", None) is not self:
                # pstats: primitive calls, calls, own seconds, seconds with all that it calls, callers.
                _, count, _, seconds, _ = seen[key]
                found[hook.call.label] = (1e6 * seconds / count, count)
        return found
