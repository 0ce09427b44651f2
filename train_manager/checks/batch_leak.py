"""Whether the outputs of a model for an example, or their gradients, depend on the other examples of its batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from train_manager.checks.batch_leaves import Path, is_plain_list, name_of
from train_manager.checks.leak_batch import Change, Changes, ExampleBatch, Values
from train_manager.checks.leak_judge import Judge, Leak, axes_in_outputs
from train_manager.checks.leak_module import BackwardSearch, ForwardSearch
from train_manager.checks.leak_runs import CallModel, ModelRun, Runner, norms_over_the_batch, plain, uncompiled
from train_manager.model.modules import Chosen, choices, choose_modules
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Coverage, Finding, Findings

CHECK: Final = "batch leak"

NORMS: Final = 4
"""The most norms that a note names."""

SEED: Final = 20_051

OTHER_NUMBERS: Final = "drew other random numbers"

AGAIN: Final = 2
"""The further changes in which a leak must show if the model draws random numbers."""

RANDOM_HALVES: Final = 4
"""The random halves that are tried; a leak is named if at least one of them shows it."""

FORWARD: Final = "look in its forward for a view, a reduction, an index or a state that mixes examples"

RULES: Final = {
    "value": ("output-leak", "what the model returns for example {example}{of} depends on other examples", FORWARD),
    "reaches": (
        "gradient-reaches-others",
        "the gradient of other examples' outputs reaches example {example}{of}",
        "look in it for a detached path, a backward of its own or a hook that mixes examples",
    ),
    "depends": (
        "gradient-depends-on-others",
        "the gradient{of} that some examples give depends on the others, though the outputs do not",
        "look in it for a backward of its own, a hook or a detached path that mixes examples",
    ),
    "sum": (
        "gradients-do-not-add-up",
        "the gradients{of} of two halves of the batch do not add up to those of the whole batch",
        "look in it for a backward of its own or a hook that scales by all gradients together",
    ),
}
"""The code of the finding if a rule does not hold, its text, and its cure."""

Allowed = Chosen | type[nn.Module]
"""A module that may mix examples: the module, its name, or its class."""


def check_batch_leak(
    model: nn.Module,
    batch: Any,
    *,
    allow: Allowed | Collection[Allowed] = (),
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
        allow: modules that may mix the examples, their names, or their classes.
        batch_axis: the axis along which the examples lie in the batch.
        shared: names, or positions, of tensors in the batch that belong to no example, as a mask of attention.
        call: calls the model with the batch, ``call(model, batch)``, if the call has another form.

    Raises:
        InputError: ``model`` is not a module, ``allow`` names no module of it, or ``shared`` nothing in the batch; or
            ``batch`` is a list of tensors of one shape, and a ``call`` of your own decides what they are.
    """
    if not isinstance(model, nn.Module):
        what = f"check_batch_leak takes a model, but was given a {type(model).__name__}"
        raise InputError(what, name="model", cure="give a torch.nn.Module; diagnose(tm) takes a TrainManager")
    if call is not None:
        _refuse_ambiguous(batch)
    return find_leaks(model, batch, call or usual_call, allow=allow, batch_axis=batch_axis, shared=shared)


def _refuse_ambiguous(batch: Any) -> None:
    """Refuse a list of tensors of one shape, which may be the examples or the arguments."""
    if type(batch) is list and len(batch) > 1 and all(isinstance(one, Tensor) and one.dim() > 1 for one in batch):
        shapes = {tuple(one.shape) for one in batch}
        if len(shapes) == 1:
            what = f"batch is a list of {len(batch)} tensors of shape {shapes.pop()}: are these examples, or arguments?"
            cure = "examples: give [batch], and call gets that list; arguments: give tuple(batch)"
            raise InputError(what, name="batch", cure=cure)


def find_leaks(
    model: nn.Module,
    batch: Any,
    call: CallModel,
    *,
    allow: Allowed | Collection[Allowed] = (),
    batch_axis: int = 0,
    shared: Collection[str | int] = (),
) -> Findings:
    """Find leaks as ``check_batch_leak`` does, in a batch whose list is known to hold the parts of a batch."""
    examples = ExampleBatch(batch, batch_axis, (shared,) if isinstance(shared, str) else shared)
    model = plain(model)
    reason = _why_not(model, examples)
    if reason:
        return could_not_look(reason)
    norms = norms_over_the_batch(model)
    runner = Runner(model, call, examples, _modules_allowed(model, allow))
    try:
        with uncompiled():
            found = _look(runner)
    finally:
        runner.put_back()
    return Findings([_note_of(norms)] if norms else []) + found


def usual_call(model: nn.Module, batch: Any) -> Any:
    """Call a model with the values of a batch as its arguments."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if is_plain_list(batch) else model(batch)


def could_not_look(reason: str) -> Findings:
    """Return findings without a result, which do not count as clean."""
    return Findings(covered=[Coverage(CHECK, reason, could_look=False)])


def _modules_allowed(model: nn.Module, allow: Allowed | Collection[Allowed]) -> list[nn.Module]:
    # A text and a Sequential can be iterated over too, but are one choice.
    chosen = [allow] if isinstance(allow, str | type | nn.Module) else list(allow)
    found: list[nn.Module] = []
    for kind in (one for one in chosen if isinstance(one, type)):
        of_kind = [module for module in model.modules() if isinstance(module, kind)]
        if not of_kind:
            what = f"check_batch_leak finds no {kind.__name__} in the model ({type(model).__name__})"
            kinds = ", ".join(dict.fromkeys(type(module).__name__ for module in model.modules()))
            raise InputError(what, name="allow", cure=f"its modules are of the classes {kinds:.200}")
        found += of_kind
    others = [one for one in chosen if not isinstance(one, type)]
    named = choose_modules(model, choices(others, "check_batch_leak"), "check_batch_leak") if others else {}
    return [*found, *named.values()]


def _why_not(model: nn.Module, batch: ExampleBatch) -> str:
    if any(map(is_lazy, model.parameters())):
        return "the model has parameters that its first batch makes: call it once before"
    if not batch.leaves:
        return "the batch has no tensor, and no list, with an entry for each example"
    return "the batch has one example only" if batch.size < 2 else ""


def _look(runner: Runner) -> Findings:
    """Return the findings and the coverage."""
    first = runner.base()
    if not first.is_finite():  # nan differs from nan, so every comparison would show a leak
        return could_not_look("the model gives nan for the batch as it is: NonFiniteFinder says where it comes from")
    first = first.without_graph()
    axes = axes_in_outputs(runner, first.outputs)
    if not axes.known:
        unknown = _not_judged(axes.unknown, "in which the examples lie in no order that is known")
        return could_not_look(unknown or "no output of the model has a part for each example")
    changes = Changes(runner.batch)
    judge = Judge(runner, first, axes, changes.halves)
    look = _Look(runner, changes, judge, is_steady=True)
    leak = look.leak()
    if leak is not None and leak.compares_runs and not judge.gives_the_same(runner.base(), leak.half):
        # The same batch gives other values each time, from a state that could not be put back: this looked like a leak.
        look = _Look(runner, changes, judge, is_steady=False)
        leak = look.leak()
    return Findings([] if leak is None else [look.finding(leak)], [look.coverage(is_clean=leak is None)])


@final
class _Look:
    """One look at a model with all changes of its batch.

    Args:
        runner: runs the model.
        changes: the changes of the batch.
        judge: compares other runs with one of the unchanged batch.
        is_steady: whether the model gives the same outputs each time, so that runs can be compared.
    """

    def __init__(self, runner: Runner, changes: Changes, judge: Judge, *, is_steady: bool) -> None:
        self._runner, self._changes, self._judge, self._is_steady = runner, changes, judge, is_steady
        self._left_out: Counter[str] = Counter()  # changes that showed nothing, by the reason
        self._ran: Counter[int] = Counter()  # changes that ran, by the half that was changed

    def leak(self) -> Leak | None:
        """Return a leak of the outputs; if there is none, a leak of the gradients."""
        backward = self._judge.base_leak()
        for change in self._changes.made():
            if change is None:
                self._left_out["changed nothing"] += 1
                continue
            leak = self._shown_by(change, asks_gradients=backward is None)
            # A leak of the outputs ends the search, because it names the module better than one of the gradients.
            if leak is not None and leak.is_forward:
                return leak
            backward = backward or leak
        return backward

    def _shown_by(self, change: Change, *, asks_gradients: bool) -> Leak | None:
        """Return the leak that a change shows in the outputs, or otherwise in the gradients; keep no graph."""
        run = self._run(change.values)
        if isinstance(run, str):
            self._left_out[run] += 1
            return None
        leak = self._judge.output_leak(run, change) if self._is_steady else None
        if leak is not None and run.drawn != self._runner.undrawn and not self._shows_again(change):
            self._left_out[OTHER_NUMBERS] += 1
            return None
        self._ran[change.half] += 1
        if leak is None and asks_gradients:
            return self._judge.gradient_leak(run, change, compares=self._is_steady)
        return leak

    def _run(self, values: Values) -> ModelRun | str:
        """Run a changed batch; return the reason if the run shows nothing."""
        try:
            run = self._runner.run(values)
        except Exception as error:
            return f"failed with {type(error).__name__}"
        if self._is_steady and self._judge.has_drawn_others(run):
            return OTHER_NUMBERS  # as a sampling whose shape depends on the values
        return run if run.is_finite() else "gave nan"

    def finding(self, leak: Leak) -> Finding:
        """Return the finding about a leak, with the module that causes it."""
        if leak.change is not None and leak.is_forward:
            searches = (ForwardSearch(self._runner, sides).name() for sides in self._sides(leak, leak.change))
            name = next((name for name in searches if name is not None), None)
        else:
            change = self._change_of_others(leak) if self._is_steady and leak.rule != "sum" else None
            kept = ~self._changes.halves[leak.half]
            name = BackwardSearch(self._runner, self._judge, leak, kept, change).name()
        return _finding_of(leak, name, self._runner.model)

    def _change_of_others(self, leak: Leak) -> Change | None:
        """Return the change that has shown a leak; for one of the batch as it is another that runs."""
        if leak.change is not None:
            return leak.change
        change = self._changes.make_any(self._changes.halves[leak.half], "noise", leak.half)
        return None if change is None or isinstance(self._run(change.values), str) else change

    def _sides(self, leak: Leak, change: Change) -> Iterator[tuple[Change, Change]]:
        """Yield pairs of changes of two halves, of which one shows a leak: random halves, then those by a bit."""
        # Halves by a bit lie in regular patterns, which a reshape may keep separate by chance; random halves do not.
        generator = torch.Generator().manual_seed(SEED)
        halves = [torch.rand(len(change.changed), generator=generator) < 0.5 for _ in range(RANDOM_HALVES)]
        made = (self._changes.make(change.kind, changed) for changed in halves if changed.any() and not changed.all())
        for one in (*(made for made in made if made is not None and self._shows(made)), change):
            other = self._changes.make_any(~one.changed, one.kind)
            if other is not None and not isinstance(self._run(other.values), str):
                yield one, other

    def _shows_again(self, change: Change) -> bool:
        """Return whether a leak shows in further changes of the same examples."""
        # As many random numbers as before may have been drawn for other rows, which looks like a leak once.
        again = (self._changes.make(change.kind, change.changed, change.half) for _ in range(AGAIN))
        return all(one is None or self._shows(one) for one in again)

    def _shows(self, change: Change) -> bool:
        run = self._run(change.values)
        return not isinstance(run, str) and self._judge.output_leak(run, change) is not None

    def coverage(self, *, is_clean: bool) -> Coverage:
        """Return how much of the batch and of its changes could be judged."""
        judge = self._judge
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
        unjudged = (
            _not_judged(judge.axes.none, "of no example"),
            _not_judged(judge.axes.unknown, "in which the examples lie in no order that is known"),
        )
        text += "".join(f"; {one}" for one in unjudged if one)
        text += "".join(f"; {name_of(path)} was left as it is" for path in self._runner.batch.left)
        has_judged = self._is_steady or (judge.has_gradients and not failure)
        has_all = has_judged and len(self._ran) == len(self._changes.halves)
        # A leak that was found counts, even if not all changes ran; without one, only a complete look is clean.
        return Coverage(CHECK, text, could_look=has_all or not is_clean)


# ---- texts -----------------------------------------------------------------------------------------------------------


def _not_judged(paths: Iterable[Path], reason: str) -> str:
    names = ", ".join(sorted(name_of(path) or "the output" for path in paths))
    return f"not judged: {names}, {reason}" if names else ""


def _finding_of(leak: Leak, name: str | None, model: nn.Module) -> Finding:
    """Return the finding about a leak in the named module; without a name in the model itself."""
    module = dict(model.named_modules())[name or ""]
    where = f"{name or 'the model itself'} ({type(module).__name__})"
    # The model itself cannot be allowed: then nothing would be checked.
    allowed = f"; if that is intended, pass allow=[{name!r}]" if name else ""
    numbers: dict[str, float | int | str] = {"way": "forward" if leak.is_forward else "backward", "change": leak.size}
    numbers |= {} if leak.example is None else {"example": leak.example}
    code, what, cure = RULES[leak.rule]
    of = f" in {leak.of!r}" if leak.of else ""
    return Finding(CHECK, "error", what.format(example=leak.example, of=of), where, cure + allowed, numbers, code)


def _note_of(norms: Mapping[str, nn.Module]) -> Finding:
    """Return the note about norms over the batch."""
    kinds = ", ".join(dict.fromkeys(type(norm).__name__ for norm in norms.values()))
    what = f"{kinds} mixes the examples of a batch on purpose in train mode; what is before and after was judged"
    first, rest = list(norms)[:NORMS], len(norms) - NORMS
    named = ", ".join(name or "the model itself" for name in first)
    return Finding(CHECK, "note", what, f"{named} and {rest} more" if rest > 0 else named, code="norm-over-batch")
