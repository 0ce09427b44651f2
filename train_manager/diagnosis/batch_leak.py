"""Whether the outputs of a model for an example, or their gradients, depend on the other examples of its batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from train_manager.diagnosis.allowed_modules import norms_over_the_batch
from train_manager.diagnosis.batch_leaves import Path, is_plain_list, name_of
from train_manager.diagnosis.changes import Change, Changes
from train_manager.diagnosis.culprit import BackwardSearch, ForwardSearch, innermost, sides_of
from train_manager.diagnosis.examples import Examples, Values
from train_manager.diagnosis.judge import Judge, Leak, MixedJudge
from train_manager.diagnosis.leak_findings import CHECK, finding_of, note_of
from train_manager.diagnosis.output_places import Outputs, Places, places_of, smaller_sizes
from train_manager.diagnosis.runs import CallModel, Run, Runner, plain, uncompiled
from train_manager.model.modules import Chosen, choose_modules
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Coverage, Finding, Findings

SEEDS: Final = (1, 2)
"""Seeds with which a leak must show as well, so that it is not an effect of other random numbers."""


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
        model: the model, in the mode in which it is checked; of a compiled or distributed model its inner module.
        batch: the arguments of its call: a tuple or a list of them, a dict with their names, or the only one.
        allow: modules that may mix the examples, or their names.
        batch_axis: the axis along which the examples lie in the batch.
        shared: names, or positions, of tensors in the batch that belong to no example, as a mask of attention.
        call: calls the model with the batch, ``call(model, batch)``, if the call has another form.

    Raises:
        InputError: ``model`` is not a module, ``allow`` names no module of it, or ``shared`` nothing in the batch.
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
    allowed = list(choose_modules(model, allow, "check_batch_leak").values()) if allow else []
    runner = Runner(model, call or usual_call, examples, allowed)
    try:
        with uncompiled():
            found = _look(runner)
    finally:
        runner.put_back()
    return Findings([note_of(norms)] if norms else []) + found


def usual_call(model: nn.Module, batch: Any) -> Any:
    """Call a model with the values of a batch as its arguments."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if is_plain_list(batch) else model(batch)


def could_not_look(reason: str) -> Findings:
    """Return findings without a result, which do not count as clean."""
    return Findings(covered=[Coverage(CHECK, reason, could_look=False)])


def _why_not(model: nn.Module, examples: Examples) -> str:
    if any(map(is_lazy, model.parameters())):
        return "the model has parameters that its first batch makes: call it once before"
    if not examples.leaves:
        return "the batch has no tensor, and no list, with an entry for each example"
    return "the batch has one example only" if examples.size < 2 else ""


def _look(runner: Runner) -> Findings:
    """Return the findings and the coverage."""
    first = runner.base()
    if not first.is_finite():  # nan differs from nan, so every comparison would show a leak
        return could_not_look("the model gives nan for the batch as it is: NonFiniteFinder says where it comes from")
    # Copies without the graph, so that the memory of the first run is free before the next one.
    first = first._replace(outputs={path: output.detach().clone() for path, output in first.outputs.items()}, roots={})
    places = _places(runner, first.outputs)
    if not places.known and not places.mixed:
        return could_not_look("no output of the model has a part for each example")
    # Noise that keeps masks and lengths leaves outputs of unknown places in their shape, where they can be compared.
    changes = Changes(runner.examples, keep_layout=bool(places.mixed))
    judge = Judge(runner, first, places, changes.splits)
    look = _Look(runner, changes, first, judge, is_steady=True)
    leak = look.leak()
    if leak is not None and leak.compares_runs and not judge.gives_the_same(runner.base(), leak.change):
        # The same batch gives other values each time, from a state that could not be put back: this looked like a leak.
        look = _Look(runner, changes, first, judge, is_steady=False)
        leak = look.leak()
    return Findings([] if leak is None else [look.finding(leak)], [look.coverage(is_clean=leak is None)])


def _places(runner: Runner, outputs: Outputs) -> Places:
    """Return where the examples lie in the outputs: the axes that shrink in a run with fewer examples."""
    examples = runner.examples
    for count in smaller_sizes(examples.size):
        try:
            fewer = runner.run(examples.first(count)).outputs
        except Exception:  # the model takes no batch of this size
            continue
        places = places_of(outputs, fewer, examples.size, count, examples.batch_axis)
        if places.known or places.mixed:
            return places
    return places_of(outputs, None, examples.size, 0, examples.batch_axis)


@final
class _Look:
    """One look at a model with all changes of its batch.

    Args:
        runner: runs the model.
        changes: the changes of the batch.
        first: a run of the unchanged batch.
        judge: compares other runs with the first one.
        is_steady: whether the model gives the same outputs each time, so that runs can be compared.
    """

    def __init__(self, runner: Runner, changes: Changes, first: Run, judge: Judge, *, is_steady: bool) -> None:
        self._runner, self._changes, self._drawn, self._judge = runner, changes, first.drawn, judge
        self._is_steady = is_steady
        self._mixed = MixedJudge(first, judge.places.mixed, judge.tolerance)
        self._left_out: Counter[str] = Counter()  # changes that showed nothing, by the reason
        self._ran: Counter[tuple[int, int]] = Counter()  # changes that ran, by their bit and side

    def leak(self) -> Leak | None:
        """Return a leak of the outputs; if there is none, a leak of the gradients."""
        backward = self._judge.base_leak()
        for change in self._changes.made():
            # A leak of the outputs ends the search, because it names the module better than one of the gradients.
            leak = None if change is None else self._shown_by(change, asks_gradients=backward is None)
            if change is None:
                self._left_out["changed nothing"] += 1
            if leak is not None and leak.is_forward:
                return leak
            backward = backward or leak
        return (self._mixed.leak() if self._is_steady else None) or backward

    def _shown_by(self, change: Change, *, asks_gradients: bool) -> Leak | None:
        """Return the leak that a change shows in the outputs, or otherwise in the gradients; keep no graph."""
        run = self._run(change.values)
        if isinstance(run, str):
            self._left_out[run] += 1
            return None
        leak = self._judge.output_leak(run, change) if self._is_steady else None
        # Other random numbers, as of a sampling whose shape depends on the values, change outputs without a leak.
        has_drawn_others = self._is_steady and run.drawn != self._drawn
        if has_drawn_others or (leak is not None and not self._shows_with_seeds(change)):
            self._left_out["drew other random numbers"] += 1
            return None
        self._ran[change[:2]] += 1
        if change.kind == "noise" and self._changes.keeps_layout:
            self._mixed.note(run, change)
        if leak is None and asks_gradients:
            return self._judge.gradient_leak(run, change, compares=self._is_steady)
        return leak

    def _run(self, values: Values) -> Run | str:
        """Run a changed batch; return the reason if the run shows nothing."""
        try:
            run = self._runner.run(values)
        except Exception as error:
            return f"failed with {type(error).__name__}"
        return run if run.is_finite() else "gave nan"

    def _shows_with_seeds(self, change: Change) -> bool:
        """Return whether a leak shows with other seeds too."""
        # The same count of random numbers may have been drawn for other rows, which looks like a leak with one seed.
        for seed in SEEDS:
            base, new = (self._runner.run(of, seed=seed) for of in (self._runner.examples.values, change.values))
            if base.drawn != new.drawn or self._judge.output_leak(new, change, base) is None:
                return False
        return True

    def finding(self, leak: Leak) -> Finding:
        """Return the finding about a leak, with the module that causes it."""
        model = self._runner.model
        if not leak.is_forward:
            search = BackwardSearch(self._runner, self._changes, leak, self._judge, is_steady=self._is_steady)
            return finding_of(leak, None, innermost(model, search), model)
        leak, source = self._source(leak) if leak.rule == "value" else (leak, None)
        names = (innermost(model, ForwardSearch(self._runner, both)) for both in sides_of(self._changes, leak, source))
        return finding_of(leak, source, next((name for name in names if name is not None), None), model)

    def _source(self, leak: Leak) -> tuple[Leak, int | None]:
        """Halve the changed examples until one of them alone shows the leak; None if only several together do.

        The returned leak is the one of the last half, so that both examples of the pair are of the same run.
        """
        left = leak.change.changed.nonzero().flatten()
        while len(left) > 1:
            for half in left.tensor_split(2):
                shown = self._shown(leak, half)
                if shown is not None:
                    left, leak = half, shown
                    break
            else:
                return leak, None
        return leak, int(left[0])

    def _shown(self, leak: Leak, numbers: Tensor) -> Leak | None:
        """Return the leak if a change of these examples alone shows it too."""
        chosen = torch.zeros_like(leak.change.changed).index_fill(0, numbers, True)
        examples = self._runner.examples
        run = self._run(examples.mixed(leak.change.values, examples.values, chosen))
        return None if isinstance(run, str) else self._judge.output_leak(run, leak.change)

    def coverage(self, *, is_clean: bool) -> Coverage:
        """Return how much of the batch and of its changes could be judged."""
        judge, unjudged = self._judge, self._mixed.unjudged
        text = f"{self._ran.total()} of {len(self._changes)} changes ran, "
        text += "train mode" if self._runner.model.training else "eval mode"
        text += "".join(f"; {count} {reason}" for reason, count in self._left_out.items())
        if not self._is_steady:
            text += "; two runs of the same batch differ, so that only their gradients were judged"
        failure = judge.gradients.failure
        if failure:
            text += f"; walking back failed with {failure}, so that only the outputs were judged"
        elif not judge.has_gradients:
            text += "; nothing that was returned has a gradient to judge"
        text += _not_judged(judge.places.none, "of no example")
        text += _not_judged(unjudged, "in which the examples lie in no order that is known")
        text += "".join(f"; {name_of(path)} was left as it is" for path in self._runner.examples.left)
        has_judged = bool(judge.places.known) or unjudged != set(judge.places.mixed)
        has_judged = has_judged and (self._is_steady or (judge.has_gradients and not failure))
        has_all = has_judged and len(self._ran) == len(self._changes.splits)
        # A leak that was found counts, even if not all changes ran; without one, only a complete look is clean.
        return Coverage(CHECK, text, could_look=has_all or not is_clean)


def _not_judged(paths: Iterable[Path], reason: str) -> str:
    names = ", ".join(sorted(name_of(path) or "the output" for path in paths))
    return f"; not judged: {names}, {reason}" if names else ""
