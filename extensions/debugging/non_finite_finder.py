"""The module and the batch that a first nan or infinity comes from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch import Tensor
from torch.optim import Optimizer

from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.checks.replay import Why, broken_weights, how_broken, modules_of, why_broken
from train_manager.core.declarations import not_a_hook, priority, provides
from train_manager.core.extension import Extension
from train_manager.data.random_state import random_state
from train_manager.files.atomic import free_path, quote_path
from train_manager.loop.optimizers import SOLE
from train_manager.model.optimizers import parameters_with_gradients
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import CheckpointError, NonFiniteLoss
from train_manager.telling.findings import Finding
from train_manager.telling.showing import short
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

CHECK: Final = "non-finite"  # the name of this check in tm.findings
FOLDER: Final = "non_finite"  # the folder of the kept batches, in train_dir
RANDOM: Final = "random_state_of_batch"  # the fixture with the random state that the present batch began with
LAST: Final = 1_000_000  # later than all other hooks, so that no other hook draws a random number after the copy

SELDOM: Final = 100  # steps between two looks that do not explain
EXPLAINING: Final = ("pre_train_step_batch", "pre_train_backward", "pre_train_optimizer_step")

# The answers if the batch is finite when it runs again: in a step of one batch, and at the end of a window of several.
UNKNOWN: Final = Why(
    "the same batch was finite when it ran again",
    "",
    "if Python's or numpy's random numbers play a part: NonFiniteFinder(python_random=True); "
    "a number that forward changes (a counter) may play a part too",
)
EARLIER: Final = Why(
    "the last batch of the window was finite when it ran again, so it came from one before it",
    "",
    "train with Accumulate(1), or without it, to find the batch and the place",
)


@recorded
class NonFiniteFinder(Extension):
    """Find the module and the batch that the first nan or infinity of a run comes from.

    >>> from torch import nn
    >>> from train_manager import NonFiniteLoss
    >>> from train_manager.testing import tiny_manager
    >>> class Shifted(nn.Module):
    ...     def forward(self, x):
    ...         return (x - x.max()).log()
    >>> tm = tiny_manager(NonFiniteFinder(), model=nn.Sequential(nn.Linear(2, 2), Shifted()))
    >>> try:
    ...     tm.train()
    ... except NonFiniteLoss as error:
    ...     print(error.what.replace(": ", "\\n", 1))
    the loss was nan in step 1, epoch 1
    module '1' (Shifted) made it of finite numbers: of 32 numbers 31 are nan, 1 is infinite

    It looks at each loss before its backward pass, and at the gradients before each step of an optimizer. What a loss
    scale of float16 skips does not count. Once a number is not finite, the same batch runs again from the same random
    state, and each call of a module in it is looked at: the error names the first module that returns such a number for
    finite inputs. For gradients the error names the first function that returns one for finite gradients, with its
    module and its line. If the weights or the data were broken before, the error says so. Of a window of several
    batches the last one runs again. The step ends with ``NonFiniteLoss``.

    **Each look waits for the device**: with ``check_every=1`` once for the loss of a step, and once for its gradients.
    On a GPU that takes time where the program would run ahead. With ``explain=False`` it names only the step: the
    losses, which the loop itself checks at the end of each epoch, are checked every 100 steps together, which waits
    once.

    >>> tm = tiny_manager(NonFiniteFinder(2, explain=False), loss=lambda output, targets: output.sum() / 0)
    >>> try:
    ...     tm.train()
    ... except NonFiniteLoss as error:
    ...     print(error.step, tm.step_num)
    1 2

    *Runs at:* the start of ``train_step_batch``, where it copies the random state after all other hooks (priority
    1,000,000); the start of ``train_backward``, before the loss is scaled (priority -1000); the start of
    ``train_optimizer_step``, when gradients are unscaled, and before they are clipped (priority 5). With
    ``explain=False`` only at the end of ``train_step_batch``, after other hooks (priority 1000).

    *Asks for:* ``batch``, ``step_num``, ``epoch_num`` and ``update_begins``; ``backward_loss``, ``optimizer`` and
    ``optimizer_name``.

    *Leaves behind:* in each batch the fixture ``random_state_of_batch``; a finding of the check "non-finite"; with a
    ``train_dir`` the batch and the random state before it, in ``non_finite/batch_of_step_<n>``, which
    ``read_checkpoint`` reads. With ``explain=False`` nothing.

    Where several processes train together, each looks at its own rows; a loss that is not finite in one of them ends
    the training of all.

    Args:
        check_every: how many batches there are between two looks at the loss, and steps of an optimizer between two at
            its gradients. With more than 1, the first broken step may be long gone when it is seen, and the weights are
            broken then. None for 1; with ``explain=False`` for 100.
        explain: find the module and the batch; else only the step, which costs next to nothing.
        python_random: copy the random states of Python and numpy too, which takes longer: where the model, the loss or
            ``train_batch`` draws from them.

    Raises:
        InputError: ``check_every`` is not a whole number of at least 1; or, in a run, several processes train with
            strategy "fsdp", and ``explain`` is True.
    """

    def __init__(self, check_every: int | None = None, *, explain: bool = True, python_random: bool = False) -> None:
        given = (1 if explain else SELDOM) if check_every is None else check_every
        self.check_every: int = require_count(given, "check_every", at_least=1)
        self.explain, self.python_random = explain, python_random
        self.needs_whole_model = explain  # to call it once more, which strategy "fsdp" of Distributed refuses
        # A hook of an inner stage opens it in every step, also if the hook does nothing: only an object that explains
        # has these.
        for name in ("post_train_step_batch",) if explain else EXPLAINING:
            setattr(self, name, _left_out)

    @priority(LAST)
    @provides(RANDOM)
    def pre_train_step_batch(self) -> dict[str, Any]:
        # The copy is kept for each batch, because only a batch from its own random state breaks again in the same way.
        if self.python_random:
            return random_state()
        # Reading the states of GPUs would initialise CUDA.
        used_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if used_cuda else []}

    @priority(-1000)  # before the extensions that scale the loss: the finder reads the user's own loss
    def pre_train_backward(self, train_manager: TrainManager, optimizer_name: str, step_num: int) -> None:
        if (step_num + 1) % self.check_every:
            return
        # Read from `fixtures`, not as a parameter: a hook that asks for `backward_loss` runs after the hooks that
        # modify it (Accumulate, MixedPrecision), so the value would be the scaled one.
        value = train_manager.fixtures["backward_loss"].item()
        if not math.isfinite(value):
            self._end(train_manager, optimizer_name, f"the loss{_of(optimizer_name)} was {value}", backward=False)

    @priority(5)  # after gradients are summed up and unscaled (-20, -10), before they are clipped (10)
    def pre_train_optimizer_step(self, optimizer: Optimizer, optimizer_name: str, train_manager: TrainManager) -> None:
        if (train_manager.optimizer_updates.get(optimizer_name, 0) + 1) % self.check_every:
            return
        gradients = [one.grad for one in parameters_with_gradients(optimizer) if one.grad is not None]
        if not all_finite(gradients):
            what = f"the gradients{_of(optimizer_name)} were not finite ({how_broken(gradients)})"
            self._end(train_manager, optimizer_name, what, backward=True)

    @priority(1000)  # last: a NonFiniteLoss here must not keep the hooks of other extensions from this step
    def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        if not step_num % self.check_every:
            train_manager._progress.present_epoch.losses.check()

    def _end(self, train_manager: TrainManager, optimizer_name: str, happened: str, *, backward: bool) -> NoReturn:
        """Find out why, keep the finding and the batch, and raise the error."""
        step, epoch = train_manager.step_num + 1, train_manager.epoch_num + 1
        why = self._why(train_manager, optimizer_name, step, backward=backward)
        if backward:
            # The gradients of all processes are made one by now, so that all of them have come here; the batch of one
            # may be the source.
            whys = train_manager.ranks.gather(why)
            why = next((one for one in whys if one not in (UNKNOWN, EARLIER)), why)
        what = f"{happened} in step {step}, epoch {epoch}: {why.what}"
        finding = Finding(CHECK, "error", what, why.where, why.cure, {"step": step, "epoch": epoch}, code="not-finite")
        with warnings.catch_warnings():  # add_finding warns, and the error below says the same
            warnings.simplefilter("ignore")
            train_manager.add_finding(finding)
        cure = f"at {why.where}: {why.cure}" if why.where else why.cure
        raise NonFiniteLoss(what, epoch=epoch, step=step, cure=f"{cure}\n  {_keep_batch(train_manager, step)}")

    def _why(self, train_manager: TrainManager, optimizer_name: str, step: int, *, backward: bool) -> Why:
        # Broken gradients after a finite loss: then the weights were finite too.
        weights = [] if backward else broken_weights(modules_of(train_manager))
        if weights:
            return self._why_of_weights(weights, step)
        fixtures = train_manager.fixtures
        try:
            why = why_broken(train_manager, fixtures.get(RANDOM, {}), optimizer_name, backward=backward)
        except Exception as error:
            # The search must not hide the nan: whatever fails in it, the step ends with NonFiniteLoss.
            return Why(f"the batch could not be run again to find out why ({error!s:.200})", "", UNKNOWN.cure)
        return why or (EARLIER if backward and not fixtures["update_begins"] else UNKNOWN)

    def _why_of_weights(self, names: list[str], step: int) -> Why:
        # The last look at finite numbers was `check_every` steps
        # ago, so the update that broke the weights came after it.
        first = max(1, step - self.check_every)
        steps = f"step {first}" if first == step - 1 else f"a step from {first} to {step - 1}"
        between = f"they broke between the update of {steps} and this forward pass"  # an update, or a hook after it
        cure = f"{between}: try a smaller learning rate, or look at the optimizer's eps and at hooks that write weights"
        if step == 1:
            cure = "they came so into the training: look at how they are initialised or loaded"
        return Why(f"weights were not finite before it, seen first in this step: {short(names)}", names[0], cure)


@not_a_hook
def _left_out() -> None:
    """Stand for a hook that an object does not have."""


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether all numbers of tensors are finite; waits for the device once if they are.

    >>> all_finite([torch.ones(2), torch.tensor([1e38, 1e38])]), all_finite([torch.tensor([torch.nan])])
    (True, False)
    """
    # _foreach_norm takes neither sparse nor empty tensors.
    dense = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in tensors]
    dense = [tensor for tensor in dense if tensor.numel()]
    if not dense:
        return True
    # One kernel for many tensors, and one `item()` for all: a nan or an infinity anywhere makes the sum not finite.
    norms = torch._foreach_norm(dense)
    if math.isfinite(torch.stack([norm.to(norms[0].device) for norm in norms]).sum().item()):
        return True
    # The squares of large finite numbers overflow. The largest absolute number of each tensor does not, but takes ten
    # times as long, so it is computed only here.
    return all(math.isfinite(largest.item()) for largest in torch._foreach_norm(dense, math.inf))


def _of(optimizer_name: str) -> str:
    return "" if optimizer_name == SOLE else f" of {optimizer_name!r}"


def _keep_batch(train_manager: TrainManager, step: int) -> str:
    """Keep the batch in ``train_dir``, and return where it is."""
    if train_manager.train_dir is None:
        return "the batch is not kept, since there is no train_dir"
    path = free_path(Path(train_manager.train_dir, FOLDER, f"batch_of_step_{step}"))
    # With the random state of the batch, so that a program can run the kept batch again and break in the same way.
    state = {"batch": train_manager.fixtures["batch"], "random": train_manager.fixtures.get(RANDOM, {})}
    try:
        write_checkpoint(path.parent, path.name, state, {"step": step})
    except CheckpointError as error:
        return f"the batch could not be kept: {error.what}"
    return f"the batch is in {quote_path(path)}: read_checkpoint(path)['batch']"
