"""Strategy "fsdp": parameters of which each process has a shard come to the weights of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import manager
from tests.support.ranks import ends_of, on_ranks, start_ranks
from tests.support.refusals import refusal
from tests.support.sharded_trainings import (
    SCENES,
    Wide,
    load_and_train,
    play,
    reductions,
    save_and_resume,
    train_around,
    train_inside,
)
from train_manager import InMemory, InputError, TrainManager
from train_manager.extensions import ActivationStatistics, BatchLeakCheck, Distributed
from train_manager.tools import diagnose, rehearse

pytestmark = pytest.mark.slow


def require_close(found: Any, expected: Any) -> None:
    """Compare numbers to 1e-6, at any depth."""
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0, equal_nan=True, check_dtype=False)


@pytest.mark.whole
@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("scene", SCENES)
def test_shards_come_to_what_one_process_comes_to(
    fork_server: ForkServer, tmp_path: Path, scene: str, number: int
) -> None:
    alone = play(scene, None)
    for found in on_ranks(fork_server, number, play, scene, "fsdp", folder=tmp_path):
        require_close(found, alone)


def test_gradients_are_summed_once_for_each_update(fork_server: ForkServer, tmp_path: Path) -> None:
    groups = 2  # the layers of the model
    for updates, reduced in on_ranks(fork_server, 2, reductions, folder=tmp_path):
        assert (updates, reduced) == (6, 6 * groups)


# ---- saved and loaded ----------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_a_state_within_a_window_is_that_of_one_process(fork_server: ForkServer, tmp_path: Path) -> None:
    weights, state = save_and_resume(None)
    for found, taken in on_ranks(fork_server, 2, save_and_resume, "fsdp", folder=tmp_path):
        require_close(found, weights)  # taking the state has not changed the training
        for name in ("model", "optimizers", "windows"):
            require_close(taken[name], state[name])
        require_close(taken["extensions"]["ema"]["average"], state["extensions"]["ema"]["average"])


@pytest.mark.whole
@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_state_of_shards_resumes_in_shards_and_in_one_process(
    fork_server: ForkServer, tmp_path: Path, is_sharded: bool
) -> None:
    weights, state = on_ranks(fork_server, 2, save_and_resume, "fsdp", folder=tmp_path)[0]
    require_close(save_and_resume("fsdp", state)[0], weights)  # in one process, where Distributed does nothing
    for found, _ in on_ranks(fork_server, 3, resume, state, is_sharded, folder=tmp_path):
        require_close(found, weights)


def resume(state: Any, is_sharded: bool) -> tuple[Tensor, Any]:
    return save_and_resume("fsdp", state, is_sharded=is_sharded)


@pytest.mark.whole
@pytest.mark.parametrize("is_sharded", [False, True])
def test_whole_weights_are_loaded_into_shards(fork_server: ForkServer, tmp_path: Path, is_sharded: bool) -> None:
    path = tmp_path / "weights.pt"
    torch.save({name: value + 0.1 for name, value in manager().model.state_dict().items()}, path)
    alone = load_and_train(None, path, is_sharded)
    for found in on_ranks(fork_server, 2, load_and_train, "fsdp", path, is_sharded, folder=tmp_path):
        require_close(found, alone)


# ---- refused -------------------------------------------------------------------------------------------------------


class TrainsItself:
    def train_step(self, batch: Any) -> Tensor:
        raise AssertionError("called")


def refusals() -> list[str]:
    """The errors of managers that strategy "fsdp" refuses, without a message to the other processes."""
    managers: list[Any] = [
        lambda: manager(Distributed("fsdp", shard=["heed"]), model=Wide()).train(),
        lambda: manager(Distributed("fsdp", shard="3")).train(),
        lambda: manager(Distributed("fsdp"), BatchLeakCheck()).train(),
        lambda: manager(Distributed("fsdp"), ActivationStatistics()).train(),
        lambda: diagnose(manager(Distributed("fsdp"))),
        lambda: rehearse(manager(Distributed("fsdp"))),
        lambda: TrainManager(
            model=TrainsItself(), train_data=InMemory(torch.zeros(12), batch_size=12), extensions=[Distributed("fsdp")]
        ).train(),
    ]
    found = []
    for refused in managers:
        with pytest.raises(InputError) as error:
            refused()
        found.append(str(error.value))
    return found


NEED_A_WHOLE_MODEL = (
    '{} calls the model by itself, but strategy "fsdp" has sharded it over the processes\n'
    '  run it in one process; or give Distributed(strategy="after"), if the model fits on one device'
)


def test_what_shards_do_not_allow_is_refused_as_a_run_opens(fork_server: ForkServer, tmp_path: Path) -> None:
    for found in on_ranks(fork_server, 2, refusals, folder=tmp_path):
        assert found == [
            "the model has no submodule 'heed' to shard\n  did you mean 'head'?",
            "the model has no submodule '3' to shard\n  its submodules are '0', '1', '2'",
            NEED_A_WHOLE_MODEL.format("BatchLeakCheck"),
            NEED_A_WHOLE_MODEL.format("ActivationStatistics"),
            NEED_A_WHOLE_MODEL.format("diagnose"),
            NEED_A_WHOLE_MODEL.format("rehearse"),
            'strategy "fsdp" shards an nn.Module, but the model is a TrainsItself\n'
            '  give Distributed(strategy="after")',
        ]


def test_names_to_shard_are_refused_with_another_strategy() -> None:
    assert refusal(lambda: Distributed("ddp", shard=["head"])) == (
        "shard= names submodules for strategy 'fsdp', but the strategy is 'ddp'\n"
        '  give Distributed("fsdp", shard=...)'
    )


@pytest.mark.whole
def test_a_submodule_inside_of_a_sharded_one_that_is_called_by_itself_is_an_error(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    for end in ends_of(start_ranks(fork_server, 2, train_inside, folder=tmp_path), tmp_path):
        assert (
            "a submodule that was called by itself has only shards of its parameters: name it in "
            'Distributed("fsdp", shard=[...]), or call the model; a method other than forward needs '
            "register_fsdp_forward_method(model, ...) in a hook pre_train"
        ) in end.text


@pytest.mark.whole
def test_a_phase_whose_model_has_a_sharded_submodule_is_refused(fork_server: ForkServer, tmp_path: Path) -> None:
    for end in ends_of(start_ranks(fork_server, 2, train_around, folder=tmp_path), tmp_path):
        assert str(end.error) == (
            'strategy "fsdp" cannot shard a parameter for two modules that are called by themselves\n'
            '  give Distributed(strategy="after"), or let one of the modules call the other'
        )
