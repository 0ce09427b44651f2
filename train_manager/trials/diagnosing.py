"""Find faults of a training before it trains: all checks, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import getclosurevars, isfunction
from itertools import cycle, islice
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer

from train_manager.checks.batch_leak import find_leaks
from train_manager.checks.batch_leaves import Path
from train_manager.checks.initial_loss import check_initial_loss
from train_manager.checks.inputs import Rows, check_answers, check_labels, check_rows, check_scale, paths_of_inputs
from train_manager.checks.loss_calls import LabelsOutOfRange, LossCall, classes_of, labels_in
from train_manager.checks.loss_leak import check_loss_leak
from train_manager.checks.overfit import LEARNED, SECONDS, check_overfit
from train_manager.checks.parameters import any_nonzero, check_beside, check_parameters, hidden_in, sums_and_counts
from train_manager.data.batch import tensors_in, unpack
from train_manager.data.readable import is_read_once
from train_manager.data.reader import one_pass
from train_manager.loop.arguments import modules_in_loss
from train_manager.loop.losses import Losses
from train_manager.loop.overridable import Overridable
from train_manager.loop.parameter_check import WINDOWS
from train_manager.loop.probe import beside_the_batch
from train_manager.loop.ranks import require_whole_model
from train_manager.loop.windows import preserve_gradients
from train_manager.manager import TrainManager
from train_manager.model.optimizers import learning_rates, parameters_in
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.findings import Coverage, Finding, Findings
from train_manager.trials.trial_steps import LIMIT, CouldNotLook, TrialSteps, in_a_line

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
    if not isinstance(train_manager, TrainManager):
        what = f"diagnose takes a TrainManager, but was given a {type(train_manager).__name__}"
        cure = "tm = TrainManager(model=model, ...), then diagnose(tm); check_batch_leak(model, batch) takes a model"
        raise InputError(what, name="train_manager", cure=cure)
    require_whole_model(train_manager.ranks, "diagnose")
    names = _require_checks(CHECKS if checks is None else checks)
    try:
        _require_usable(train_manager)
        trial = TrialSteps(train_manager, (keep,) if isinstance(keep, str) else tuple(keep))
    except CouldNotLook as error:
        # A training that cannot be tried at all is a result, and not an error: each check says why.
        return sum((Findings.not_looked(name, str(error)) for name in names), Findings())
    found = Findings()
    for number, name in enumerate(names, start=1):
        if not quiet:
            print(f"diagnose: {name} ({number} of {len(names)})", file=sys.stderr, flush=True)
        for look in CHECKS[name]:
            found += _asked(name, look, trial)
    # What a check has found may come from batches that are not those of the training.
    return found if found.is_clean else found + Findings(_changing(train_manager, trial.paused))


def _changing(train_manager: TrainManager, paused: Collection[str]) -> list[Finding]:
    """Return a note on extensions that paused, and that modify what is trained on."""
    modified = {"batch", "inputs", "targets"}
    names = [hook.owner for hook in train_manager._registry.hooks if modified.intersection(hook.written)]
    resting = [name for name in dict.fromkeys(names) if name in paused]
    if not resting:
        return []
    what = "paused while the checks looked, and modifies what is trained on"
    cure = f"if the training needs it: diagnose(tm, keep={resting})"
    return [Finding("paused extensions", "note", what, ", ".join(resting), cure)]


def _require_checks(checks: Any) -> list[str]:
    names = [checks] if isinstance(checks, str) or not isinstance(checks, Iterable) else list(checks)
    for name in names:
        if name not in [*CHECKS]:
            cure = f"{did_you_mean(near(str(name), CHECKS))} there are {', '.join(map(repr, CHECKS))}".strip()
            raise InputError(f"diagnose has no check {name!r}", name="checks", cure=cure)
    # In the order of CHECKS, whatever the order of the argument.
    return [name for name in CHECKS if name in names]


def _require_usable(train_manager: TrainManager) -> None:
    data, model = train_manager.train_data, train_manager.model
    if not isinstance(model, nn.Module):
        raise CouldNotLook(f"{type(model).__name__} trains itself: what it changes could not be put back")
    if any(map(nn.parameter.is_lazy, train_manager._setup.parameters())):
        raise CouldNotLook(
            "the model has lazy parameters, which have no values yet: call it once before, model(inputs)"
        )
    if data is None:
        raise CouldNotLook("there is no train_data")
    if is_read_once(data):
        raise CouldNotLook(f"train_data is a {type(data).__name__}, which can be read once, so it was not read")


def _asked(name: str, look: Callable[[TrialSteps], Findings], trial: TrialSteps) -> Findings:
    """Return the findings of a check; an error in it becomes the reason why it could not look."""
    try:
        if trial.left() <= 0:
            raise CouldNotLook(f"left out: the {LIMIT:.0f} seconds were over")
        return look(trial)
    except CouldNotLook as error:
        return Findings.not_looked(name, str(error))
    except Exception as error:  # raised by the training, by the loss, or by a fault in the check itself
        return Findings.not_looked(name, f"it failed with {in_a_line(error)}")


# ---- the checks ------------------------------------------------------------------------------------------------------


def _batch_leak(trial: TrialSteps) -> Findings:
    tm = trial.tm

    def look() -> Findings:
        # The model is called as the training calls it, so the check sees an own model_forward too.
        return find_leaks(tm.model, tm.fixtures["batch"], lambda _, other: trial.probe(other))

    return trial.within(look, costs=LEAK_STEPS)


def _loss_leak(trial: TrialSteps) -> Findings:
    tm = trial.tm

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

    return trial.within(look, costs=LEAK_STEPS)


def _parameters(trial: TrialSteps) -> Findings:
    tm, found = trial.tm, list[Findings]()
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
    with trial.training() as step, preserve_gradients(hidden_in(tm.model)):
        beside = [(module, *sums_and_counts(module)) for module in _modules_beside(tm)]
        for batch in islice(cycle(trial.batches), ANSWERED_AFTER - 1):
            step(batch)
        with trial.looking(pre_train_optimizer_step=keep, post_train_step_batch=look):
            for batch in islice(cycle(trial.batches), WINDOWS):
                step(batch)
                if found[-1].is_clean or trial.left() <= 0:
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


def _overfit(trial: TrialSteps) -> Findings:
    tm, losses = trial.tm, trial.fixtures.get("losses")
    # Settings of the training may be the reason why one batch is learned slowly (`slowed_by`), or not to a loss near
    # zero (`kept_up_by`). The finding names each one that holds.
    added = sorted(losses.of_forward) if losses is not None and losses.added is not None else []
    groups = [group for one in tm.optimizers.values() for group in one.param_groups]
    decay = max((float(group.get("weight_decay") or 0) for group in groups), default=0.0)
    dropout = max((one.p for one in tm.model.modules() if isinstance(one, _DropoutNd)), default=0.0)
    smoothing = max((call.options.get("label_smoothing", 0.0) for call in trial.calls), default=0.0)
    trained = sum(one.numel() for optimizer in tm.optimizers.values() for one in parameters_in(optimizer))
    answers = trial.fixtures.get("targets", trial.fixtures.get("prediction"))
    slowed_by = {f"weight_decay {decay:g}": decay, f"dropout {dropout:g}": dropout}
    kept_up_by = {
        f"no more than {trained:,} parameters": trained < sum(one.numel() for one in tensors_in(answers)),
        **{f"the added loss {name!r}": True for name in added},
        "several optimizers": len(tm.optimizers) > 1,
        "random numbers that each step draws": trial.draws and not dropout,
        "targets between 0 and 1": any(map(_is_soft, trial.calls)),
        "a loss that compares the examples": any(map(_is_contrastive, trial.calls)),
        "a loss whose least value is not known": not _calls_of_loss(trial),
        "a frozen part": not all(one.requires_grad for one in tm.model.parameters()),
        f"label_smoothing {smoothing:g}": smoothing,
        "equal predictions that have different labels": any(map(_is_contradicted, _calls_of_loss(trial))),
    }
    with trial.training() as step:
        return check_overfit(
            lambda: step(trial.batches[0]),
            rates=[float(rate) for one in tm.optimizers.values() for rate in learning_rates(one)],
            slowed_by=[text for text, holds in slowed_by.items() if holds],
            kept_up_by=[text for text, holds in kept_up_by.items() if holds],
            may_compete=len(tm.optimizers) > 1,
            seconds=min(SECONDS, trial.left()),
        )


def _is_soft(call: LossCall) -> bool:
    target = call.target
    return call.name != "mse_loss" and target.is_floating_point() and not bool((target == target.round()).all())


def _is_contradicted(call: LossCall) -> bool:
    """Return whether equal predictions have different labels, as those of a model that sees one token at a time.

    The least loss is then the mean of ``-log(share of the label among those of equal predictions)``.
    """
    labels, rows = labels_in(call), call.output.movedim(1, -1).flatten(0, -2) if call.output.dim() > 1 else call.output
    if not len(labels) or len(rows) != len(labels):  # probabilities of classes, or some labels are ignored
        return False
    # Different rows differ in the first classes already; all of them would be sorted by a whole vocabulary.
    different, numbers, alike = rows[:, :8].unique(dim=0, return_inverse=True, return_counts=True)
    _, pairs, same = torch.stack([numbers, labels]).unique(dim=1, return_inverse=True, return_counts=True)
    least = float((alike[numbers] / same[pairs]).log().mean())
    # If all predictions are equal, a part of the model is cut off, or begins with zeros.
    return len(different) > 1 and least > LEARNED * float(F.cross_entropy(rows, labels))


def _is_contrastive(call: LossCall) -> bool:
    """Return whether each label is the number of another example, as in a loss that finds the second of each pair."""
    labels = labels_in(call)
    return len(labels) > 1 and len(labels.unique()) == len(labels) == classes_of(call.output)


def _calls_of_loss(trial: TrialSteps) -> list[LossCall]:
    # A loss that is written out, without a function of torch, is recognized by its value.
    usual = LossCall.usual(*(trial.fixtures.get(name) for name in ("prediction", "targets", "loss")))
    return trial.calls or [one for one in [usual] if one is not None]


def _initial_loss(trial: TrialSteps) -> Findings:
    # The losses may have been called before the step failed, and then can still be judged.
    if trial.failed is not None and not trial.calls:
        raise trial.failed
    return check_initial_loss(_calls_of_loss(trial))


def _labels_and_scale(trial: TrialSteps) -> Findings:
    targets = [unpack(batch).get("targets") for batch in trial.batches]
    labels = [one for one in targets if isinstance(one, Tensor) and one.dim() == 1 and one.dtype == torch.long]
    found = [*check_labels(labels), *(one for layer, given in trial.layers for one in check_scale(layer, given))]
    if isinstance(trial.failed, LabelsOutOfRange):
        found.append(Finding("input", "error", trial.failed.what, "targets", trial.failed.cure))
    return Findings(found)


def _rows(trial: TrialSteps) -> Findings:
    train_data, paths = trial.tm.train_data, _paths(trial)

    def read(data: Any) -> tuple[Rows, str]:
        with one_pass(data) as batches:
            rows = Rows(trial.some(batches), paths)
            # The default of next() is the iterator itself, so it is returned only at the end of the data.
            is_all = next(batches, batches) is batches
        return rows, f"{'all' if is_all else 'the first'} {rows.count:,} rows"

    with trial.preserved():
        rows, covered = read(train_data)
        found = Findings(rows.found(), [Coverage("input", covered)])
        for name, data in trial.tm.eval_data.items():
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


def _answers(trial: TrialSteps) -> Findings:
    paths, covered = _paths(trial), f"outputs after {ANSWERED_AFTER} steps"

    def look() -> Findings:
        return check_answers(trial.probe, trial.tm.fixtures["batch"], paths, covered)

    return trial.within(look, steps=ANSWERED_AFTER)


def _paths(trial: TrialSteps) -> list[Path]:
    paths = paths_of_inputs(*(trial.fixtures.get(name) for name in ("batch", "inputs", "targets")))
    if not paths:
        raise CouldNotLook("the batches hold no tensors")
    return paths


CHECKS: Final[Mapping[str, tuple[Callable[[TrialSteps], Findings], ...]]] = {
    "batch leak": (_batch_leak,),
    "loss leak": (_loss_leak,),
    "parameters": (_parameters,),
    "overfit": (_overfit,),
    "initial loss": (_initial_loss,),
    "input": (_labels_and_scale, _rows, _answers),
}
"""The checks in their order; a check of several functions has all of their findings."""
