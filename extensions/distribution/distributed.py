"""Distributed: the same training on every process that torchrun starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torch import nn

from train_manager.core.declarations import priority as with_priority
from train_manager.core.extension import Extension
from train_manager.data.random_state import seed_rank
from train_manager.distribution.environment import read_environment, require_own_gpu, use_own_gpu
from train_manager.distribution.gradients import (
    AfterBackward,
    ByWrapper,
    Strategy,
    make_equal,
    require_equal,
    require_shapes,
    sum_of_weights,
)
from train_manager.distribution.joined import Joined
from train_manager.distribution.sharded import Sharded, require_shardable, shard
from train_manager.loop.arguments import modules_in_loss
from train_manager.metrics.deferred import numbers
from train_manager.model.per_object import PerObject
from train_manager.model.sharding import is_sharded
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_number, require_one_of

if TYPE_CHECKING:
    from train_manager.loop.requests import Requests
    from train_manager.manager import TrainManager

NOWHERE: Final = -1
"""In place of a rank: no process has it."""

KINDS: Final[dict[str, type[Strategy]]] = {"ddp": ByWrapper, "after": AfterBackward, "fsdp": Sharded}


@recorded
class Distributed(Extension):
    """Train on all processes that ``torchrun`` starts, to the weights of one process.

    ``torchrun --nproc-per-node 2 train.py`` trains as ``python train.py`` does, with the same ``batch_size``: each
    process reads its rows of each batch. Without ``torchrun`` it does nothing:

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(Distributed())
    >>> result = tm.train()

    With ``device="cuda"`` each process has the GPU of its ``LOCAL_RANK``, if ``Distributed()`` is made before anything
    is moved there. The training data must be ``InMemory``, ``Rows``, ``SeededDataLoader``, or sets of these by
    ``Interleaved``, ``Together`` and ``Endless``; or a DataLoader with a ``DistributedSampler``, whose ``batch_size``
    is that of one process. ``predict`` returns all predictions in each process.

    With "fsdp" each process has a shard of each parameter, gradient and moment. A submodule is whole while it runs: one
    that is called by itself must be a direct child of the model, or be named in ``shard``, and a method other than
    ``forward`` needs torch's ``register_fsdp_forward_method(model, "encode")`` in a hook ``pre_train``. torch refuses
    ``copy.deepcopy(model)``. With several optimizers, gradients are summed in each batch, also within a window of
    ``Accumulate``.

    *Runs at:* around ``run``, ``eval`` and ``predict``; the start of ``load_checkpoint``, ``phase``, ``train``,
    ``train_step_batch`` and ``save_checkpoint``; the end of ``load_checkpoint`` and ``train``; before other extensions
    (priority -1000); the end of ``run``, after others.

    *Asks for:* the model, the loss and the optimizers; ``update_ends``; the variables that ``torchrun`` sets.

    *Leaves behind:* ``tm.ranks``; the weights of rank 0 in all processes; the mean gradient of all processes;
    ``global_batch_size`` over all processes; with "ddp" a wrapped ``model``.

    Args:
        strategy: "ddp" computes the mean gradient while the backward pass runs; "after" after it, also for modules that
            are called by themselves, several optimizers, and losses with weights; "fsdp" shards the parameters.
        timeout: the seconds after which a process that does not come is an error.
        shard: the names of submodules that "fsdp" shards by themselves; None takes the direct children of the model.

    Raises:
        InputError: an argument or a variable of ``torchrun`` is invalid; as a run begins: the device, the data, the
            model or an optimizer cannot be used by several processes.
        RankError: another process has failed, or does not come.
    """

    priority = -1000  # first: other extensions ask for what all processes know

    def __init__(self, strategy: str = "ddp", *, timeout: float = 60.0, shard: Collection[str] | None = None) -> None:
        self.strategy = require_one_of(strategy, "strategy", tuple(KINDS))
        self.shard: Collection[str] | None = [shard] if isinstance(shard, str) else shard
        if shard is not None and strategy != "fsdp":
            what = f"shard= names submodules for strategy 'fsdp', but the strategy is {strategy!r}"
            raise InputError(what, name="shard", asked_by="Distributed", cure='give Distributed("fsdp", shard=...)')
        self.timeout: float = require_number(timeout, "timeout", above=0)
        environment = read_environment()
        self.joined = None if environment is None else Joined(environment.place, timeout)
        self._local_rank = 0 if environment is None else environment.local_rank
        if self.joined is None:
            self.ranks = NOWHERE  # its hooks are not planned, so that no step pays for them
        else:
            use_own_gpu(self._local_rank)
            self.joined.makes_equal_steps = strategy == "fsdp"
        self._is_first = True  # until a run has given each process random states of its own
        self._met: PerObject[nn.Module, bool] = PerObject()  # modules whose weights are those of rank 0
        self._gradients: Any = None  # of the open run

    @property
    def _joined(self) -> Joined:
        assert self.joined is not None, "a process that trains alone plans no hook of Distributed"
        return self.joined

    # ---- the run -------------------------------------------------------------------------------------------------

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        joined, kind = self._joined, KINDS[self.strategy]
        # Before the first message: all processes find the same mistakes, and none waits for another.
        require_own_gpu(train_manager.device, train_manager.model, self._local_rank)
        if self.strategy == "fsdp":
            require_shardable(train_manager, self.shard)
        if (train_manager.entered_by or "").startswith("train"):
            kind.require(train_manager)
        joined.group.gather(None, "the start of a run")
        train_manager.run_id = joined.of_first(train_manager.run_id)
        train_manager.decide = partial(self._decide, train_manager)  # type: ignore[method-assign]
        joined.gradients = self._gradients = kind(joined.place.number, joined.group.tensors)
        try:
            yield
        finally:
            self._call_the_model_itself(train_manager)
            joined.gradients = self._gradients = None
            del train_manager.decide

    @with_priority(1000)
    def post_run(self) -> None:
        # Without this message an error in a hook that ends the run would be one of its process alone.
        self._joined.group.gather(None, "the end of a run")

    def pre_load_checkpoint(self) -> None:
        # Before a checkpoint is loaded: the random states that each process gets from there must stay.
        is_first, self._is_first = self._is_first, False
        if is_first:
            seed_rank(self._joined.place.rank)

    def post_load_checkpoint(self, train_manager: TrainManager) -> None:
        self._meet(train_manager)

    def pre_phase(self, train_manager: TrainManager) -> None:
        self._meet(train_manager)

    def _meet(self, train_manager: TrainManager) -> None:
        """Give all processes the weights and buffers of rank 0, and shard new modules under "fsdp"."""
        modules = _modules_of(train_manager)
        require_shapes(modules)
        tensors = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
        make_equal((tensor for tensor in tensors if not is_sharded(tensor)), self._joined.group.tensors)
        new = [module for module in modules if module not in self._met]
        if self.strategy == "fsdp" and new:
            shard(train_manager, new, self.shard)
        self._met.update(dict.fromkeys(new, True))
        self._gradients.forget()

    def _decide(self, train_manager: TrainManager, requests: Requests) -> Requests:
        at = "the end of a batch" if requests.examples is None else "the middle of a batch"
        # The size of a batch may be a tensor on a device.
        requests = requests._replace(examples=numbers([requests.examples])[0])
        # At the end of an epoch with the sum of all weights: these differ if a hook has changed those of one process.
        is_epoch_end = requests.data_ended and requests.examples is None and self.strategy != "fsdp"
        sums = sum_of_weights(_modules_of(train_manager)) if is_epoch_end else None
        given = self._joined.group.gather((requests, sums), at)
        require_equal([sums for _, sums in given])
        first, *others = (request for request, _ in given)
        found = first.joined(*others)
        if requests.examples is not None:
            self._gradients.set_share(requests.examples, found.examples or 0)
        return found

    # ---- the model -----------------------------------------------------------------------------------------------

    def pre_train(self, train_manager: TrainManager) -> None:
        self._meet(train_manager)  # the program may have changed the model since the run began
        self._gradients.require(train_manager)  # a phase may have brought another model or optimizer

    def post_train(self, train_manager: TrainManager) -> None:
        self._share_buffers(train_manager)

    def pre_save_checkpoint(self, train_manager: TrainManager) -> None:
        self._share_buffers(train_manager)

    def _share_buffers(self, train_manager: TrainManager) -> None:
        """Give all processes the buffers of rank 0: each has the statistics of its own rows, as of a BatchNorm."""
        buffers = (buffer for module in _modules_of(train_manager) for buffer in module.buffers())
        make_equal(buffers, self._joined.group.tensors)

    def pre_train_step_batch(self, train_manager: TrainManager, update_ends: bool) -> None:
        if train_manager.model not in self._met:  # in a loop of the program's own, it may be another one now
            self._meet(train_manager)
        called = self._gradients.called_for(train_manager, update_ends)
        if called is not None and train_manager.called_model is not called:
            train_manager.called_model = called

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Use the new parameters of the model from the next batch on."""
        self._met = PerObject()  # so that the next batch makes the new parameters equal

    def around_eval(self, train_manager: TrainManager) -> Iterator[None]:
        with self._bare(train_manager):
            yield

    def around_predict(self, train_manager: TrainManager) -> Iterator[None]:
        with self._bare(train_manager):
            yield

    @contextmanager
    def _bare(self, train_manager: TrainManager) -> Iterator[None]:
        """Let an evaluation call the model itself, with the buffers of rank 0."""
        self._share_buffers(train_manager)
        called = train_manager.called_model
        self._call_the_model_itself(train_manager)
        try:
            yield
        finally:
            train_manager.called_model = called

    def _call_the_model_itself(self, train_manager: TrainManager) -> None:
        if isinstance(train_manager.called_model, nn.parallel.DistributedDataParallel):
            train_manager.called_model = train_manager.called_model.module


def _modules_of(train_manager: TrainManager) -> list[nn.Module]:
    modules = dict.fromkeys((train_manager.model, *modules_in_loss(train_manager.loss)))
    return [module for module in modules if isinstance(module, nn.Module)]
