"""Whether what a model returns for an example, or learns from it, depends on the other examples of its batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from train_manager.diagnosis.allowed_modules import AllowedModules, norms_over_the_batch, with_running_statistics
from train_manager.diagnosis.backward_culprit import BackwardSearch
from train_manager.diagnosis.backward_judge import BackwardJudge
from train_manager.diagnosis.batch_leaves import Path, name_of
from train_manager.diagnosis.changes import Change, Changes
from train_manager.diagnosis.culprit import (
    ForwardSearch,
    culprit_of,
    sides_at_random,
    sides_of_a_bit,
)
from train_manager.diagnosis.differences import SeenDtypes, differ, tolerance_of
from train_manager.diagnosis.examples import Examples
from train_manager.diagnosis.forward_judge import ForwardJudge, Leak
from train_manager.diagnosis.gradient_digests import Gradients
from train_manager.diagnosis.kept_state import KeptState
from train_manager.diagnosis.leak_findings import CHECK, finding_of, note_of
from train_manager.diagnosis.leaking_pair import source_of
from train_manager.diagnosis.output_places import (
    Mixed,
    Outputs,
    Places,
    Rows,
    in_turn,
    places_by_length,
    places_by_size,
    smaller_sizes,
)
from train_manager.diagnosis.recorded_calls import Call
from train_manager.diagnosis.runs import Call as CallModel
from train_manager.diagnosis.runs import Run, Runner, are_as_drawn, plain, uncompiled
from train_manager.model.modules import Chosen
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Coverage, Finding, Findings

SEEDS: Final = (None, 1, 2)
"""A leak in a model that draws random numbers must show with each of them; None is without layers of dropout."""

BETWEEN_RUNS: Final = ("value", "mixed", "depends")
"""The rules that compare one run with another."""


def check_batch_leak(
    model: nn.Module,
    batch: Any,
    *,
    allow: Collection[Chosen] = (),
    batch_axis: int = 0,
    shared: Collection[str | int] = (),
    call: CallModel | None = None,
) -> Findings:
    """Find out whether examples of a batch leak into each other, and in which module.

    >>> import torch
    >>> class Centred(nn.Module):
    ...     def forward(self, x):
    ...         return x - x.mean(0)
    >>> found = check_batch_leak(nn.Sequential(nn.Linear(3, 2), Centred()), torch.randn(8, 3))
    >>> found[0].level, found[0].where
    ('error', '1 (Centred)')

    Args:
        model: the model, in the mode in which it is looked at; of a compiled or distributed one what is inside of it.
        batch: what it is called with: a tuple or a list are its arguments, a dict those by name, else it is the only
            one.
        allow: modules that may mix the examples, or their names.
        batch_axis: the axis along which the examples lie in the batch.
        shared: names, or positions, of parts of the batch that belong to no example, as a mask of attention.
        call: calls the model with the batch, ``call(model, batch)``, if it is called otherwise.

    Raises:
        InputError: ``model`` is not a module, ``allow`` names no module of it, or ``shared`` no part of the batch.
    """
    if not isinstance(model, nn.Module):
        what = f"check_batch_leak takes a model, but was given a {type(model).__name__}"
        raise InputError(what, name="model", cure="give a torch.nn.Module; diagnose(tm) takes a TrainManager")
    examples = Examples(batch, batch_axis, (shared,) if isinstance(shared, str) else shared)
    model = plain(model)
    reason = _why_not(model, examples)
    if reason:
        return could_not_look(reason)
    norms = norms_over_the_batch(model)
    allowed = AllowedModules(model, allow, norms.values())
    with with_running_statistics(norms.values()), allowed.held(), uncompiled():
        kept = KeptState(model)
        try:
            found = _Look(Runner(model, call or usual_call, examples, kept, allowed), batch_axis).findings()
        finally:
            kept.put_back()
    return Findings([note_of(norms)] if norms else []) + found


def usual_call(model: nn.Module, batch: Any) -> Any:
    """Call a model with the parts of a batch."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, list | tuple) and not hasattr(batch, "_fields"):
        return model(*batch)
    return model(batch)


def could_not_look(reason: str) -> Findings:
    """Return that nothing could be looked at, which is never clean."""
    return Findings(covered=[Coverage(CHECK, reason, could_look=False)])


def _why_not(model: nn.Module, examples: Examples) -> str:
    if any(map(is_lazy, model.parameters())):
        return "the model has parameters that its first batch makes: call it once before"
    if not examples.leaves:
        return "the batch has no tensor, and no list, with an entry for each example"
    return "the batch has one example only" if examples.size < 2 else ""


class _Base(NamedTuple):
    """What the batch as it is has given, and what judges the changed ones by it."""

    outputs: Outputs
    drawn: Mapping[str, Any]
    places: Places
    forward: ForwardJudge
    backward: BackwardJudge
    gradients: Gradients
    is_same: bool
    leak: Leak | None
    dtypes: Collection[torch.dtype]


@final
class _Look:
    """One look at a model.

    Args:
        runner: runs the model.
        batch_axis: where its examples lie in the batch.
    """

    def __init__(self, runner: Runner, batch_axis: int) -> None:
        self._runner, self._batch_axis = runner, batch_axis
        self._changes = Changes(runner.examples)
        self._left_out: Counter[str] = Counter()
        self._ran: Counter[tuple[int, int]] = Counter()

    def findings(self) -> Findings:
        """Return what was found, and how far was looked."""
        base = self._base()
        if base is None:
            return could_not_look("no output of the model has a part for each example")
        leak = self._leak(base)
        if leak is not None and base.is_same and leak.rule in BETWEEN_RUNS and not self._is_still(base):
            base = base._replace(is_same=False)  # what it holds outside of its modules looked like a leak
            self._ran.clear()
            self._left_out.clear()
            leak = self._leak(base)
        found = [] if leak is None else [self._finding(leak, base)]
        return Findings(found, [self._coverage(base, is_clean=leak is None)])

    def _is_still(self, base: _Base) -> bool:
        """Return whether the batch as it is still gives what it gave at first."""
        run = self._runner.base()
        return are_as_drawn(run.drawn, base.drawn) and _are_same(run.outputs, base.outputs)

    def _base(self) -> _Base | None:
        """Run the batch twice as it is, and smaller ones between."""
        model, gradients = self._runner.model, Gradients(self._runner.model, self._runner.examples)
        with SeenDtypes() as seen:
            run = self._runner.base()
        first = gradients.of(run, {})
        outputs, drawn = {path: output.detach().clone() for path, output in run.outputs.items()}, run.drawn
        del run  # and its graph, before the state is put back
        places = self._places(outputs)
        if not places.by_path:
            return None
        dtypes = seen.dtypes
        is_mixed = any(isinstance(place, Mixed) for place in places.by_path.values())
        layout = self._changes.keep_layout() if is_mixed else ""
        backward = BackwardJudge(gradients, model, places.by_path, *dtypes)
        run = self._runner.base()
        is_same = are_as_drawn(drawn, run.drawn) and _are_same(run.outputs, outputs)
        is_same = is_same and backward.are_same(first, gradients.of(run, {}))
        leak = backward.judge_base(run, [Change("", split, {}) for split in self._changes.splits])
        forward = ForwardJudge(outputs, places, dtypes, layout)
        return _Base(outputs, drawn, places, forward, backward, gradients, is_same, leak, dtypes)

    def _places(self, outputs: Outputs) -> Places:
        size = self._runner.examples.size
        for count in smaller_sizes(size):
            try:
                fewer = self._runner.fewer(count)
            except Exception:  # the model takes no batch of this size
                continue
            places = places_by_size(outputs, fewer, size, count, self._batch_axis)
            if places.by_path:
                return self._in_turn(places, outputs)
        return places_by_length(outputs, size, self._batch_axis)

    def _in_turn(self, places: Places, outputs: Outputs) -> Places:
        """Find out in which order the examples lie along an axis that is longer than the batch."""
        size = self._runner.examples.size
        if not any(isinstance(place, Rows) and len(place.numbers) > size for place in places.by_path.values()):
            return places
        changes = (
            self._changes.make(kind, split) for kind in self._changes.kinds for split in self._changes.splits[:1]
        )
        change = next((one for one in changes if one is not None), None)
        run = None if change is None else self._run(change)
        if change is None or run is None or not _have_shapes(run.outputs, outputs):
            return places
        return in_turn(places, outputs, run.outputs, change.split.changed)

    def _leak(self, base: _Base) -> Leak | None:
        """Return a leak of the outputs; else one of the gradients."""
        backward = base.leak
        for change in self._made():
            forward, found = self._judged(change, base, is_known=backward is not None)
            if forward is not None:
                return forward
            backward = backward or found
        return (base.forward.judge_mixed() if base.is_same else None) or backward

    def _judged(self, change: Change, base: _Base, *, is_known: bool) -> tuple[Leak | None, Leak | None]:
        """Return what a change shows in the outputs, and in the gradients unless something is known; keep no graph."""
        run = self._run(change)
        if run is None:
            return None, None
        if base.is_same and not are_as_drawn(run.drawn, base.drawn):
            self._left_out["drew other random numbers"] += 1
            return None, None
        forward = base.forward.judge(run.outputs, change) if base.is_same else None
        if forward is not None and self._runner.draws(base.drawn) and not self._shows_with_other_seeds(change, base):
            self._left_out["drew other random numbers"] += 1
            return None, None
        self._ran[change.split.bit, change.split.side] += 1
        if forward is not None or is_known:
            return forward, None
        compares = base.is_same and _have_shapes(run.outputs, base.outputs)
        return None, base.backward.judge(run, change, compares=compares)

    def _shows_with_other_seeds(self, change: Change, base: _Base) -> bool:
        """Return whether a leak shows whatever is drawn: as many numbers may have been drawn for other rows."""
        for seed in SEEDS:
            run, draws = self._runner.seeded(self._runner.examples.own_values(), seed)
            new, other_draws = self._runner.seeded(change.values, seed)
            if draws.seen != other_draws.seen or not are_as_drawn(run.drawn, new.drawn):
                return False
            if ForwardJudge(run.outputs, base.places, base.dtypes, "").judge(new.outputs, change) is None:
                return False
        return True

    def _made(self) -> Iterator[Change]:
        for kind in self._changes.kinds:
            for split in self._changes.splits:
                change = self._changes.make(kind, split)
                if change is None:
                    self._left_out["changed nothing"] += 1
                else:
                    yield change

    def _run(self, change: Change) -> Run | None:
        try:
            run = self._runner.changed(change.values)
        except Exception as error:
            self._left_out[f"failed with {type(error).__name__}"] += 1
            return None
        if run.is_finite():
            return run
        self._left_out["gave nan"] += 1
        return None

    def _finding(self, leak: Leak, base: _Base) -> Finding:
        source = None
        if leak.rule == "mixed":
            call = self._mixing_call(leak, None)
        elif leak.way == "forward":
            leak, source = source_of(self._runner, base.forward.judge, leak)
            call = self._mixing_call(leak, source)
        else:
            search = BackwardSearch(
                self._runner, self._changes, leak, base.gradients, base.places.by_path, is_same=base.is_same
            )
            call = culprit_of(self._runner.model, search)
        return finding_of(leak, source, call, self._runner.model)

    def _mixing_call(self, leak: Leak, source: int | None) -> Call | None:
        sides = [sides_of_a_bit(self._changes, leak)]
        if source is not None and leak.example is not None:
            sides.insert(0, sides_at_random(self._changes, leak.change, source, leak.example))
        searches = (ForwardSearch(self._runner, both) for both in sides)
        found = (culprit_of(self._runner.model, search) for search in searches)
        return next((call for call in found if call is not None), None)

    def _coverage(self, base: _Base, *, is_clean: bool) -> Coverage:
        ran = sum(self._ran.values())
        mode = "train" if self._runner.model.training else "eval"
        text = f"{ran} of {len(self._changes)} changes ran, {mode} mode"
        text += "".join(f"; {count} {reason}" for reason, count in self._left_out.items())
        if not base.is_same:
            text += "; two runs of the same batch differ, so that only their gradients were judged"
        if base.gradients.failure:
            text += f"; walking back failed with {base.gradients.failure}, so that only the outputs were judged"
        elif not base.backward.could_look:
            text += "; nothing that was returned has a gradient to judge"
        text += _not_judged(base.places.none, "of no example")
        text += _not_judged(base.forward.unsteady, "in which the examples lie in no order that is known")
        has_judged = bool(base.places.by_path.keys() - base.forward.unsteady)
        has_judged = has_judged and (base.is_same or (base.backward.could_look and not base.gradients.failure))
        has_all = has_judged and len(self._ran) == len(self._changes.splits)
        text += "".join(f"; {name_of(path)} was left as it is" for path in self._runner.examples.left)
        return Coverage(CHECK, text, could_look=has_all or not is_clean)


def _not_judged(paths: Iterable[Path], reason: str) -> str:
    names = ", ".join(sorted(map(name_of, paths)))
    return f"; not judged: {names}, {reason}" if names else ""


def _are_same(outputs: Outputs, others: Outputs) -> bool:
    return outputs.keys() == others.keys() and all(_equal(outputs[path], others[path]) for path in others)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and not bool(differ(one.detach(), other, tolerance_of(other.dtype)).any())


def _have_shapes(outputs: Outputs, others: Outputs) -> bool:
    return outputs.keys() == others.keys() and all(outputs[path].shape == others[path].shape for path in others)
