"""Find faults of a training before it trains: all checks, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import getclosurevars, isfunction
from itertools import cycle, islice
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.checks.batch_leak import find_leaks
from train_manager.checks.batch_leaves import Path
from train_manager.checks.first_loss import LabelsOutOfRange, check_initial_loss
from train_manager.checks.inputs import RowsRead, check_answers, check_labels, check_rows, check_scale, paths_of_inputs
from train_manager.checks.loss_leak import check_loss_leak
from train_manager.checks.overfit import SECONDS, check_overfit
from train_manager.checks.parameters import check_parameters
from train_manager.data.batch import unpack
from train_manager.data.readable import is_read_once
from train_manager.data.reader import one_pass
from train_manager.loop.arguments import modules_in_loss
from train_manager.loop.losses import Losses
from train_manager.loop.overridable import Overridable
from train_manager.loop.probe import beside_the_batch
from train_manager.loop.ranks import require_whole_model
from train_manager.loop.windows import preserve_gradients
from train_manager.manager import TrainManager
from train_manager.model.optimizers import learning_rates, parameters_in
from train_manager.model.parameters import WINDOWS, any_nonzero, check_beside, hidden_in, sums_and_counts
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.findings import Coverage, Finding, Findings
from train_manager.trials.first_steps import LIMIT, CouldNotLook, FirstSteps
from train_manager.trials.overfit_reasons import KEPT_UP_BY, SLOWED_BY, reasons
from train_manager.trials.trial import data_of, in_a_line, require_manager

OF_THE_LOSS: Final = ("loss_forward", "train_loss_forward")  # methods by which a user computes the loss
LEAK_STEPS: Final = 45  # the time of a leak check, in training steps, roughly
# Steps before zeros and equal outputs are judged: a layer that begins with zeros has them in its first steps.
ANSWERED_AFTER: Final = 3


def diagnose(
    train_manager: TrainManager,
    checks: Iterable[str] | None = None,
    *,
    keep: Iterable[str] = (),
    quiet: bool = False,
) -> Findings:
    """Find faults of a training, and put everything back: a training after it equals one without it.

    >>> from train_manager.testing import tiny_manager
    >>> print(diagnose(tiny_manager(), checks=["initial loss"], quiet=True))
    initial loss  clean: cross_entropy 0.698 against 0.693 (ln 2; 0.685 by the shares of the classes)

    The checks, in their order; the name of each is printed as it begins:

    - "batch leak": examples of a batch leak into each other in the model
    - "loss leak": the loss compares an example with the targets of others
    - "parameters": some are in no optimizer, in two, frozen, or without a gradient in ten steps; layers in a list; a
      frozen teacher beside the model is in train mode
    - "overfit": one batch is not learned in 200 steps
    - "initial loss": it is far above that of a model that knows nothing; a softmax is before ``cross_entropy``
    - "input": nan, unscaled features, labels, an input that changes nothing, rows that are in an evaluation set too

    They train as ``train_on_batch`` does, an own ``train_batch`` included. Extensions pause meanwhile; those that the
    training needs can be kept: ``keep=["mixed_precision"]``. Checks that have not begun after 60 seconds are left out.

    Args:
        train_manager: the manager that will train; no run of it may be open.
        checks: the names of the checks to make; None makes all.
        keep: the names of extensions that do not pause; they are not put back.
        quiet: print no line for each check on the standard error.

    Returns:
        The findings, and how far each check could look; ``print`` shows them as a table, and
        ``diagnose(tm).require_none()`` is a test.

    Raises:
        InputError: there is no check of a name.
        StageError: a run is open.
        ExtensionNotFound: there is no extension of a name in ``keep``.
    """
    require_manager(train_manager, "diagnose", "; check_batch_leak(model, batch) takes a model")
    require_whole_model(train_manager.ranks, "diagnose")
    names, kept = _require_checks(CHECKS if checks is None else checks), [keep] if isinstance(keep, str) else [*keep]
    try:
        first = _first_steps(train_manager, kept)
    except CouldNotLook as error:
        # A training that cannot be tried at all is a result, and not an error: each check says why.
        return sum((Findings.not_looked(name, str(error)) for name in names), Findings())
    found = Findings()
    for number, name in enumerate(names, start=1):
        if not quiet:
            print(f"diagnose: {name} ({number} of {len(names)})", file=sys.stderr, flush=True)
        for look in CHECKS[name]:
            found += _asked(name, look, first)
    # What a check has found may come from batches that are not those of the training.
    return found if found.is_clean else found + Findings(_changing(train_manager, kept))


def _changing(train_manager: TrainManager, keep: Collection[str]) -> list[Finding]:
    """Return a note on extensions that modify what is trained on, and that were not kept."""
    modified = {"batch", "inputs", "targets"}
    names = [hook.owner for hook in train_manager._registry.hooks if modified.intersection(hook.written)]
    resting = [name for name in dict.fromkeys(names) if name in {*train_manager.extensions}.difference(keep)]
    if not resting:
        return []
    what = "paused while the checks looked, and modifies what is trained on"
    cure = f"if the training needs it: diagnose(tm, keep={resting})"
    return [Finding("paused extensions", "note", what, ", ".join(resting), cure, code="extension-paused")]


def _require_checks(checks: Any) -> list[str]:
    names = [checks] if isinstance(checks, str) or not isinstance(checks, Iterable) else list(checks)
    for name in names:
        if name not in [*CHECKS]:
            cure = f"{did_you_mean(near(str(name), CHECKS))} there are {', '.join(map(repr, CHECKS))}".strip()
            raise InputError(f"diagnose has no check {name!r}", name="checks", cure=cure)
    # In the order of CHECKS, whatever the order of the argument.
    return [name for name in CHECKS if name in names]


def _first_steps(train_manager: TrainManager, keep: list[str]) -> FirstSteps:
    model = train_manager.model
    if not isinstance(model, nn.Module):
        raise CouldNotLook(f"{type(model).__name__} trains itself: what it changes could not be put back")
    try:
        data_of(train_manager, "train on")
        return FirstSteps(train_manager, keep)
    except InputError as error:  # there are no data that can be read again, or the parameters have no values yet
        raise CouldNotLook(f"{error.what}: {error.cure}") from error


def _asked(name: str, look: Callable[[FirstSteps], Findings], first: FirstSteps) -> Findings:
    """Return the findings of a check; an error in it becomes the reason why it could not look."""
    try:
        if first.left() <= 0:
            raise CouldNotLook(f"left out: the {LIMIT:.0f} seconds were over")
        return look(first)
    except CouldNotLook as error:
        return Findings.not_looked(name, str(error))
    except Exception as error:  # raised by the training, by the loss, or by a fault in the check itself
        return Findings.not_looked(name, f"it failed with {in_a_line(error)}")


# ---- the checks ------------------------------------------------------------------------------------------------------


def _batch_leak(first: FirstSteps) -> Findings:
    tm = first.tm

    def look() -> Findings:
        # The model is called as the training calls it, so the check sees an own model_forward too.
        return find_leaks(tm.model, tm.fixtures["batch"], lambda _, other: first.probe(other))

    return first.within(look, costs=LEAK_STEPS)


def _loss_leak(first: FirstSteps) -> Findings:
    tm = first.tm

    def loss(prediction: Any, targets: Any) -> Tensor:
        # The loss of the training is computed again, with other values of its fixtures.
        given = {"prediction": prediction, **({"targets": targets} if "targets" in tm.fixtures else {})}
        with beside_the_batch(tm._store, "train_step_batch", given, anew=()), Losses() as losses:
            return losses.total(tm._chosen.train_loss_forward())

    def look() -> Findings:
        if "prediction" not in tm.fixtures:
            raise CouldNotLook("train_batch makes no prediction by forward()")
        # In these cases the loss cannot be computed from the prediction and targets alone.
        if tm.loss is None and not any(tm._overrides(name, Overridable) for name in OF_THE_LOSS):
            raise CouldNotLook("the loss is made in train_batch, or in the model")
        return check_loss_leak(loss, tm.fixtures["prediction"], tm.fixtures.get("targets", ()))

    return first.within(look, costs=LEAK_STEPS)


def _parameters(first: FirstSteps) -> Findings:
    tm, found = first.tm, list[Findings]()
    # The gradients of all optimizers: with several, each of them frees its own before the last one has stepped.
    gradients: dict[Tensor, Tensor] = {}

    def keep(optimizer: Optimizer) -> None:
        for one in parameters_in(optimizer):
            # A gradient that was once more than zeros is kept: a later batch may give zeros by chance.
            if one.grad is not None and not (one in gradients and any_nonzero(gradients[one])):
                gradients[one] = one.grad.clone()

    def look() -> None:
        # check_parameters() looks at parameter.grad, as it does after a backward pass of the user.
        with preserve_gradients([*gradients]):
            for parameter, gradient in gradients.items():
                parameter.grad = gradient
            found.append(check_parameters(tm.model, tm.optimizers, tm.loss))

    # The layers that begin with zeros have their first steps before the look.
    with first.training() as step, preserve_gradients(hidden_in(tm.model)):
        beside = [(module, *sums_and_counts(module)) for module in _modules_beside(tm)]
        for batch in islice(cycle(first.batches), ANSWERED_AFTER - 1):
            step(batch)
        with first.looking(pre_train_optimizer_step=keep, post_train_step_batch=look):
            for batch in islice(cycle(first.batches), WINDOWS):
                step(batch)
                if found[-1].is_clean or first.left() <= 0:
                    break
        return found[-1] + Findings(one for before in beside for one in check_beside(*before))


def _modules_beside(tm: TrainManager) -> list[nn.Module]:
    """Return the modules without the model and without trained parameters that the loss or the manager holds."""
    held = [*vars(tm).values(), *modules_in_loss(tm.loss)]
    if isfunction(tm.loss):
        names = getclosurevars(tm.loss)
        held += [*names.nonlocals.values(), *names.globals.values()]
    own = {*tm.model.modules(), *(one for optimizer in tm.optimizers.values() for one in parameters_in(optimizer))}
    modules = dict.fromkeys(one for one in held if isinstance(one, nn.Module))
    return [one for one in modules if own.isdisjoint([*one.modules(), *one.parameters()])]


def _overfit(first: FirstSteps) -> Findings:
    tm = first.tm
    with first.training() as step:
        return check_overfit(
            lambda: step(first.batches[0]),
            rates=[float(rate) for one in tm.optimizers.values() for rate in learning_rates(one)],
            slowed_by=lambda: reasons(SLOWED_BY, first),
            kept_up_by=lambda: reasons(KEPT_UP_BY, first),
            may_compete=len(tm.optimizers) > 1,
            seconds=min(SECONDS, first.left()),
        )


def _initial_loss(first: FirstSteps) -> Findings:
    # The losses may have been called before the step failed, and then can still be judged.
    if first.failed is not None and not first.calls:
        raise first.failed
    return check_initial_loss(first.loss_calls())


def _labels_and_scale(first: FirstSteps) -> Findings:
    targets = [unpack(batch).get("targets") for batch in first.batches]
    labels = [one for one in targets if isinstance(one, Tensor) and one.dim() == 1 and one.dtype == torch.long]
    found = [*check_labels(labels), *(one for layer, given in first.layers for one in check_scale(layer, given))]
    if isinstance(first.failed, LabelsOutOfRange):
        found.append(
            Finding("input", "error", first.failed.what, "targets", first.failed.cure, code="label-out-of-range")
        )
    return Findings(found)


def _rows(first: FirstSteps) -> Findings:
    train_data, paths = first.tm.train_data, _paths(first)

    def read(data: Any) -> tuple[RowsRead, str]:
        with one_pass(data) as batches:
            rows = RowsRead(first.some(batches), paths)
            # The default of next() is the iterator itself, so it is returned only at the end of the data.
            is_all = next(batches, batches) is batches
        return rows, f"{'all' if is_all else 'the first'} {rows.count:,} rows"

    with first.trial():
        rows, covered = read(train_data)
        found = Findings(rows.found(), [Coverage("input", covered)])
        for name, data in first.tm.eval_data.items():
            if is_read_once(data):
                found += Findings.not_looked("input", f"evaluation set {name!r} can be read once, so it was not read")
            else:
                evaluated, covered = read(data)
                compared = f"compared with {covered}" if evaluated.count else "not compared with those"
                shared = check_rows(rows, name, evaluated, is_itself=_is_itself(data, train_data))
                found += Findings(shared, [Coverage("input", f"{compared} of evaluation set {name!r}")])
    return found


def _is_itself(data: Any, train_data: Any) -> bool:
    """Return whether a set is the training data, or a list of the same batch objects."""
    if isinstance(data, list | tuple) and isinstance(train_data, list | tuple):
        return {*map(id, data)} <= {*map(id, train_data)}
    return data is train_data


def _answers(first: FirstSteps) -> Findings:
    paths, covered = _paths(first), f"outputs after {ANSWERED_AFTER} steps"

    def look() -> Findings:
        return check_answers(first.probe, first.tm.fixtures["batch"], paths, covered)

    return first.within(look, steps=ANSWERED_AFTER)


def _paths(first: FirstSteps) -> list[Path]:
    paths = paths_of_inputs(*(first.fixtures.get(name) for name in ("batch", "inputs", "targets")))
    if not paths:
        raise CouldNotLook("the batches hold no tensors")
    return paths


CHECKS: Final[Mapping[str, tuple[Callable[[FirstSteps], Findings], ...]]] = {
    "batch leak": (_batch_leak,),
    "loss leak": (_loss_leak,),
    "parameters": (_parameters,),
    "overfit": (_overfit,),
    "initial loss": (_initial_loss,),
    "input": (_labels_and_scale, _rows, _answers),
}
"""The checks in their order; a check of several functions has all of their findings."""
