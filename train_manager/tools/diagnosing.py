"""Look for what is wrong with a training, before it trains: every check, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any, Final, TypeVar, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.data.batch import parts_of, without_source
from train_manager.data.iteration import is_read_once
from train_manager.data.one_pass import one_pass
from train_manager.data.randomness import preserved_random_state
from train_manager.diagnosis.all_rows import all_rows, count_of
from train_manager.diagnosis.batch_leak import check_batch_leak
from train_manager.diagnosis.batch_leaves import Path
from train_manager.diagnosis.initial_loss import check_initial_loss, share_of_nothing
from train_manager.diagnosis.inputs import (
    Rows,
    are_same_for_all,
    at_paths,
    check_answers,
    check_labels,
    check_numbers,
    check_rows,
    check_scale,
    dense_tensors,
    paths_of_inputs,
)
from train_manager.diagnosis.loss_calls import LabelsOutOfRange, LossCall
from train_manager.diagnosis.loss_leak import check_loss_leak
from train_manager.diagnosis.overfit import SECONDS, check_overfit
from train_manager.diagnosis.parameters import any_nonzero, check_parameters, check_unregistered, leaves_behind
from train_manager.loop.losses import Losses
from train_manager.loop.parameter_check import WINDOWS
from train_manager.loop.windows import preserved_gradients
from train_manager.manager import TrainManager
from train_manager.model.optimizers import learning_rates, parameters_in
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.findings import Coverage, Finding, Findings
from train_manager.tools.preserve import preserved_training
from train_manager.tools.trial_steps import StepFailed, TrialSteps, in_a_line

Value = TypeVar("Value")

LIMIT: Final = 60.0
"""Seconds that all checks take together, about."""

BATCHES: Final = 20
"""So many training batches are read."""

EVALUATED: Final = 1000
"""At most so many batches of an evaluation set."""

LEAK_STEPS: Final = 45
"""The check of the batch takes about so many training steps."""

ANSWERED_AFTER: Final = 3
"""Steps after which gradients of zero and equal outputs are told: a layer may begin with zeros."""

CHECKS: Final = ("batch leak", "loss leak", "parameters", "overfit", "initial loss", "input")


def diagnose(
    train_manager: TrainManager,
    checks: Iterable[str] | None = None,
    *,
    keep: Iterable[str] = (),
    quiet: bool = False,
) -> Findings:
    """Look for what is wrong with a training, and put everything back: a training after it is the one without it.

    >>> from train_manager.testing import tiny_manager
    >>> print(diagnose(tiny_manager(), checks=["initial loss"], quiet=True))
    initial loss  clean: cross_entropy 0.698 against 0.693 (ln 2; 0.685 by the shares of the classes)

    The checks, in their order; each is told as it begins:

    - "batch leak": examples of a batch leak into each other in the model
    - "loss leak": the loss compares an example with the targets of others
    - "parameters": some are in no optimizer, in two, frozen, or without a gradient in ten steps; layers in a list
    - "overfit": one batch is not learned in 200 steps
    - "initial loss": it is far above that of a model that knows nothing; a softmax is before ``cross_entropy``
    - "input": nan, unscaled features, labels, an input that changes nothing, rows that are in an evaluation set too

    They train as ``train_on_batch`` does, an own ``train_batch`` included. Extensions pause meanwhile; those that the
    training cannot do without can be kept: ``keep=["mixed_precision"]``. What is left after 60 seconds is left out.

    Args:
        train_manager: what will train; no run of it may be open.
        checks: those to make; None makes all.
        keep: the names of extensions that do not pause; they are not put back.
        quiet: print no line for each check on the standard error.

    Returns:
        What was found, and how far each check could look; ``print`` shows it as a table, and
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
    names = _require_checks(checks)
    reason = _why_not(train_manager)
    if reason:
        return Findings(covered=[Coverage(name, reason, could_look=False) for name in names])
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    return _Diagnosis(train_manager, kept, quiet=quiet).findings(names)


def _require_checks(checks: Iterable[str] | None) -> list[str]:
    names = list(CHECKS) if checks is None else [checks] if isinstance(checks, str) else list(checks)
    for name in names:
        if name not in CHECKS:
            cure = f"{did_you_mean(near(str(name), CHECKS))} there are {', '.join(map(repr, CHECKS))}".strip()
            raise InputError(f"diagnose has no check {name!r}", name="checks", cure=cure)
    return [name for name in CHECKS if name in names]


def _why_not(train_manager: TrainManager) -> str:
    data, model = train_manager.train_data, train_manager.model
    if not isinstance(model, nn.Module):
        return f"{type(model).__name__} trains itself: what it changes could not be put back"
    if any(map(nn.parameter.is_lazy, train_manager._setup.parameters())):
        return "the model has lazy parameters, which have no values yet: call it once before, model(inputs)"
    if data is None:
        return "there is no train_data"
    if is_read_once(data):
        return f"train_data is a {type(data).__name__}, which can be read once, so it was not read"
    return ""


@final
class _Diagnosis:
    """One call of ``diagnose``."""

    def __init__(self, train_manager: TrainManager, keep: tuple[str, ...], *, quiet: bool) -> None:
        self._tm, self._keep, self._quiet = train_manager, keep, quiet
        self._ends = perf_counter() + LIMIT

    def findings(self, names: list[str]) -> Findings:
        """Return what the checks have found."""
        with preserved_training(self._tm, self._keep, "diagnose"):
            batches = self._read(self._tm.train_data, BATCHES)
        if not batches:
            return Findings(covered=[Coverage(name, "train_data has no batch", could_look=False) for name in names])
        self._steps = TrialSteps(self._tm, self._keep, batches)
        looks = dict(
            zip(
                CHECKS,
                (self._leak, self._loss_leak, self._parameters, self._overfit, self._initial_loss, self._input),
                strict=True,
            )
        )
        found = Findings()
        for number, name in enumerate(names, start=1):
            self._tell(f"diagnose: {name} ({number} of {len(names)})")
            found += self._checked(name, looks[name])
        return found

    def _checked(self, name: str, look: Callable[[], Findings]) -> Findings:
        if self._left() <= 0:
            return _could_not(name, f"left out: the {LIMIT:.0f} seconds were over")
        if self._steps.first.error is not None and name not in ("initial loss", "input"):
            return _could_not(name, str(self._steps.first.error))
        try:
            return look()
        except StepFailed as error:
            return _could_not(name, str(error))
        except Exception as error:  # what a model or a loss does with what it is asked, or a fault in the check
            return _could_not(name, f"the check failed with {in_a_line(error)}")

    def _left(self) -> float:
        return self._ends - perf_counter()

    def _tell(self, line: str) -> None:
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)

    def _read(self, data: Any, count: int) -> list[Any]:
        """Return the first batches, at least one, as far as some of the time that is left goes."""
        with one_pass(data) as batches:
            return [without_source(batch) for batch in self._while_time(islice(batches, count))]

    def _while_time(self, values: Iterable[Value]) -> Iterator[Value]:
        """Yield values, at least one, as far as some of the time that is left goes."""
        until = perf_counter() + self._left() / 4
        for value in values:
            yield value
            if perf_counter() > until:
                break

    # ---- the checks --------------------------------------------------------------------------------------------------

    def _leak(self) -> Findings:
        def look(train_manager: TrainManager) -> Findings:
            batch = train_manager.fixtures["batch"]
            return check_batch_leak(self._tm.model, batch, call=lambda _, other: self._steps.probe(other))

        return self._within_a_step("batch leak", look)

    def _within_a_step(self, name: str, look: Callable[[TrainManager], Findings]) -> Findings:
        expected = LEAK_STEPS * self._steps.first.seconds
        if expected > self._left():
            return _could_not(name, f"left out: it would take about {expected:.0f} seconds")
        found: list[Findings] = []

        def keep(train_manager: TrainManager) -> None:
            found.append(look(train_manager))

        with self._steps.training(post_train_step_batch=keep) as step:
            step(self._steps.batches[0])
        return sum(found, Findings())

    def _loss_leak(self) -> Findings:
        return self._within_a_step("loss leak", self._leak_of_loss)

    def _leak_of_loss(self, _: TrainManager) -> Findings:
        """Look at the loss of the batch whose stage is open."""
        tm, cells = self._tm, self._tm._store.cells
        if "prediction" not in tm.fixtures:
            return _could_not("loss leak", "train_batch makes no prediction by forward()")
        prediction, targets = tm.fixtures["prediction"], tm.fixtures.get("targets", ())

        def loss(other: Any, of_other: Any) -> Tensor:
            cells["prediction"].value = other
            if "targets" in cells:
                cells["targets"].value = of_other
            with Losses() as losses:
                return losses.total(tm._chosen.train_loss_forward())

        try:
            return check_loss_leak(loss, prediction, targets)
        finally:
            cells["prediction"].value = prediction
            if "targets" in cells:
                cells["targets"].value = targets

    def _parameters(self) -> Findings:
        gradients: dict[Tensor, Tensor] = {}  # of all optimizers: each step frees those of its own
        others: dict[Tensor, Tensor] = {}  # which a step of an optimizer leaves alone
        found = Findings()
        setup = self._tm._setup

        def keep(optimizer: Optimizer) -> None:
            own = set(parameters_in(optimizer))
            every: set[Tensor] = {*setup.parameters(), *own}
            for one in every:
                seen = gradients if one in own else others
                if one.grad is not None and (one not in seen or (one in own and not any_nonzero(seen[one]))):
                    seen[one] = one.grad.clone()

        def look() -> None:
            nonlocal found
            with preserved_gradients([*others, *gradients]):
                for parameter, gradient in {**others, **gradients}.items():
                    parameter.grad = gradient
                found = check_parameters(self._tm.model, self._tm.optimizers, self._tm.loss)

        leaves: list[list[Tensor]] = [[], []]  # of two steps: inputs are made anew in each
        for steps, some in enumerate(leaves, start=1):
            self._steps.after(
                steps, pre_train_backward=lambda backward_loss, some=some: some.extend(leaves_behind(backward_loss))
            )
        with self._steps.training(pre_train_optimizer_step=keep, post_train_step_batch=look) as step:
            for number in range(1, ANSWERED_AFTER + WINDOWS):
                if number == ANSWERED_AFTER:
                    gradients.clear()
                step(self._steps.batches[number % len(self._steps.batches)])
                if number >= ANSWERED_AFTER and (found.is_clean or self._left() <= 0):
                    break
        both = [one for one in leaves[0] if any(one is other for other in leaves[1])]
        unregistered = check_unregistered(both, self._tm.model, self._tm.optimizers, self._tm.loss)
        return Findings(unregistered) + found

    def _overfit(self) -> Findings:
        tm, last = self._tm, _LastStep()
        rates = [float(rate) for one in tm.optimizers.values() for rate in learning_rates(one)]
        noting = self._steps.training(pre_train_optimizer_step=last.note_gradients, post_train_step_batch=last.look)
        with noting as step:
            batch = self._steps.batches[0]
            seconds = min(SECONDS, self._left())
            return check_overfit(
                lambda: step(batch),
                rates=rates,
                slowed_by=[*self._slowed_by()],
                kept_up_by=[*self._kept_up_by()],
                share=share_of_nothing(self._calls()),
                is_same_for_all=last.is_same_for_all,
                has_gradients=lambda: last.has_gradients,
                is_frozen=not all(one.requires_grad for one in tm.model.parameters()),
                may_compete=len(tm.optimizers) > 1,
                seconds=seconds,
            )

    def _slowed_by(self) -> Iterator[str]:
        groups = [group for one in self._tm.optimizers.values() for group in one.param_groups]
        decay = max((float(group.get("weight_decay") or 0) for group in groups), default=0.0)
        if decay:
            yield f"weight_decay {decay:g}"
        if dropout := self._dropout():
            yield f"dropout {dropout:g}"

    def _dropout(self) -> float:
        modules = self._tm.model.modules()
        return max((one.p for one in modules if isinstance(one, nn.modules.dropout._DropoutNd)), default=0.0)

    def _kept_up_by(self) -> Iterator[str]:
        """Yield what may keep the loss of one batch from coming near zero."""
        first = self._steps.first
        yield from (f"the added loss {name!r}" for name in first.added)
        if len(self._tm.optimizers) > 1:
            yield "several optimizers"
        if first.draws and not self._dropout():
            yield "random numbers that each step draws"
        if any(_is_soft(call) for call in first.calls):
            yield "targets between 0 and 1"
        smoothing = max((call.options.get("label_smoothing", 0.0) for call in self._steps.first.calls), default=0.0)
        if smoothing:
            yield f"label_smoothing {smoothing:g}"

    def _calls(self) -> list[LossCall]:
        """Return the calls of torch's losses in the first step, or the one that would give the same loss."""
        first = self._steps.first
        if first.calls or first.error is not None:
            return first.calls
        usual = LossCall.usual(*(first.parts.get(name) for name in ("prediction", "targets", "loss")))
        return [] if usual is None else [usual]

    def _initial_loss(self) -> Findings:
        calls, error = self._calls(), self._steps.first.error
        return check_initial_loss(calls) if calls or error is None else _could_not("initial loss", str(error))

    def _input(self) -> Findings:
        first, name = self._steps.first, "input"
        paths = paths_of_inputs(first.batch, first.parts.get("inputs"), first.parts.get("targets"))
        if not paths:
            return _could_not(name, "the batches hold no tensors")
        batches = all_rows(self._tm.train_data) or self._steps.batches
        inputs = [at_paths(batch, paths) for batch in map(without_source, batches)]
        found = [*check_numbers(inputs, [*map(_targets, batches)]), *check_scale(first.scale)]
        targets = map(_targets, self._steps.batches)
        labels = [one for one in targets if isinstance(one, Tensor) and one.dim() == 1 and one.dtype == torch.long]
        found += check_labels(labels)
        cause = None if first.error is None else first.error.__cause__
        if isinstance(cause, LabelsOutOfRange):
            found.append(Finding(name, "error", cause.what, "targets", cause.cure))
        rows = Rows(self._while_time(inputs))
        covered, unread = [_rows_text(rows, self._tm.train_data)], list[str]()
        for set_name, data in self._tm.eval_data.items():
            if is_read_once(data):
                unread.append(f"evaluation set {set_name!r} can be read once, so it was not read")
                continue
            with preserved_random_state():
                batches = all_rows(data) or self._read(data, EVALUATED)
            evaluated = Rows(self._while_time(at_paths(without_source(batch), paths) for batch in batches))
            found += check_rows(rows, set_name, evaluated, is_itself=_is_itself(data, self._tm.train_data))
            compared = f"with {_rows_text(evaluated, data)}" if evaluated.count else "not with those"
            covered.append(f"compared {compared} of evaluation set {set_name!r}")
        try:
            found += self._answers(paths)
            covered.append(f"outputs after {ANSWERED_AFTER} steps")
        except StepFailed as error:
            unread.append(str(error))
        could_not = [Coverage(name, reason, could_look=False) for reason in unread]
        return Findings(found, [Coverage(name, ", ".join(covered)), *could_not])

    def _answers(self, paths: list[Path]) -> list[Finding]:
        found: list[Finding] = []
        if self._steps.first.error is not None:
            raise self._steps.first.error
        if all(len(one) < 2 for one in at_paths(self._steps.batches[0], paths).values() if one.dim()):
            raise StepFailed("the batch has one example only, so that outputs cannot be compared")

        def look(train_manager: TrainManager) -> None:
            found.extend(check_answers(self._steps.probe, train_manager.fixtures["batch"], paths))

        self._steps.after(ANSWERED_AFTER, post_train_step_batch=look)
        return found


@final
class _LastStep:
    """What a step on one batch, done again and again, shows.

    Attributes:
        has_gradients: a gradient that is not zero has reached an optimizer.
    """

    def __init__(self) -> None:
        self.has_gradients = False
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []

    def note_gradients(self, optimizer: Optimizer) -> None:
        """Note whether a gradient arrives."""
        if not self.has_gradients:
            self.has_gradients = any(one.grad is not None and any_nonzero(one.grad) for one in parameters_in(optimizer))

    def look(self, train_manager: TrainManager) -> None:
        """Keep the outputs, and what they are to tell apart."""
        fixtures = train_manager.fixtures
        self._outputs = [one.detach() for one in dense_tensors(fixtures.get("prediction"))]
        self._targets = [one for one in dense_tensors(fixtures.get("targets", fixtures["batch"])) if one.dim()]

    def is_same_for_all(self) -> bool:
        """Return whether the outputs are the same for all examples, though the targets differ."""
        differ = [one for one in self._targets if bool((one != one[:1]).any())]
        return bool(differ) and are_same_for_all(self._outputs, len(differ[0]))


def _could_not(check: str, reason: str) -> Findings:
    return Findings(covered=[Coverage(check, reason, could_look=False)])


def _targets(batch: Any) -> Any:
    return parts_of(without_source(batch)).get("targets")


def _rows_text(rows: Rows, data: Any) -> str:
    """Return how many rows were looked at, of how many."""
    total = count_of(data)
    if total is None:
        return f"{rows.count:,} rows"
    return f"all {total:,} rows" if total == rows.count else f"{rows.count:,} of {total:,} rows"


def _is_itself(data: Any, train_data: Any) -> bool:
    """Return whether a set is the training data, or a list of its very batches."""
    if isinstance(data, list | tuple) and isinstance(train_data, list | tuple):
        return {*map(id, data)} <= {*map(id, train_data)}
    return data is train_data


def _is_soft(call: LossCall) -> bool:
    target = call.target
    return call.name != "mse_loss" and target.is_floating_point() and not bool((target == target.round()).all())
