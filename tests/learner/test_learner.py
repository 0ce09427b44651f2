"""The learner: its options at work, its stages, its end, and its checkpoints without the files that it came from."""

from __future__ import annotations

import copy
import gc
import math
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD

from tests.learner.files import dataset, learner_of, network, options, right
from tests.support.refusals import refusal
from train_manager import Extension, TrainManager
from train_manager.errors import StageError
from train_manager.learner import create_dataloader, create_learner, deploy_model, eval_model, load_model
from train_manager.runs.comparing.compare_runs import compare_runs
from train_manager.runs.record.run_file import outcome_of, read_runs

pytestmark = pytest.mark.filterwarnings("ignore:the code of this run is not recorded")

FORMULAS: dict[str, Callable[[int, int], float]] = {
    "xavier_uniform": lambda into, out: math.sqrt(2 / (into + out)),
    "xavier_normal": lambda into, out: math.sqrt(2 / (into + out)),
    "kaiming_uniform": lambda into, out: math.sqrt(2 / into),
    "kaiming_normal": lambda into, out: math.sqrt(2 / into),
    "orthogonal": lambda into, out: 1 / math.sqrt(max(into, out)),
}


# ---- the initial weights ----


def initialized(**given: Any) -> Any:
    wide = [{"use": "Linear", "out_features": 64}, {"use": "Linear", "out_features": 256}, {"use": "BatchNorm1d"}]
    model = network(module={"trunk": {"from": "point", "layers": wide}, "head": network()["module"]["head"]})
    return learner_of(model=model, given=given).tm.model


@pytest.mark.parametrize("word", FORMULAS)
def test_weights_are_drawn_with_the_standard_deviation_of_the_formula(word: str) -> None:
    weight = initialized(seed=0, initialize=word).trunk[1].weight

    assert float(weight.detach().std()) == pytest.approx(FORMULAS[word](64, 256), rel=0.05)


def test_biases_become_zero_and_the_vectors_of_norms_stay() -> None:
    model = initialized(seed=0, initialize="xavier_uniform")

    assert [bool(bias.any()) for name, bias in model.named_parameters() if name.endswith("bias")] == 4 * [False]
    assert bool((model.trunk[2].weight == 1).all())


def test_the_seed_determines_the_initial_weights() -> None:
    one, same, other = (initialized(seed=seed, initialize="xavier_uniform").trunk[1].weight for seed in (0, 0, 1))

    assert one.equal(same)
    assert not one.equal(other)


def test_the_random_state_of_the_program_is_not_moved_by_the_initial_weights() -> None:
    initialized()
    expected = torch.rand(1)
    initialized(seed=5, initialize="orthogonal")

    assert torch.rand(1).equal(expected)


# ---- one run ----


def test_without_options_the_labels_are_trained_and_nothing_is_written() -> None:
    learner = learner_of(given={})
    learner.ss_learn()
    assert learner.tm.step_num == 0
    learner.train_epoch()

    found = learner.tm.step_num, learner.tm.train_dir, list(learner.tm.extensions)
    assert found == (3, None, ["progress_bar", "log", "augment"])


def test_close_twice_ends_the_run_once() -> None:
    seen: list[str] = []
    learner = learner_of()
    learner.tm.add_extension(Extension.of(post_run=lambda: seen.append("end")))
    learner.train_epoch()
    learner.close()
    learner.close()

    assert seen == ["end"]


def test_the_model_is_trainable_again_after_close() -> None:
    learner = learner_of()
    learner.train_epoch()
    model: Any = learner.tm.model
    assert not model.trunk[0].weight.requires_grad
    learner.close()
    assert model.trunk[0].weight.requires_grad


def test_deploy_model_closes_the_run(tmp_path: Path) -> None:
    learner = learner_of(given=options(tmp_path / "run", self_supervised=[]))
    learner.train_epoch()
    model: Any = learner.tm.model
    evaluation = eval_model(create_dataloader(dataset()), model, [right])
    deploy_model(evaluation, model, {"folder": str(tmp_path / "out")})

    (entry,) = read_runs(tmp_path / "run")
    assert (outcome_of(entry), entry["progress"]["epochs"], entry["progress"]["steps"]) == ("completed", 1, 3)
    with pytest.raises(StageError):
        learner.train_epoch()


def test_a_learner_is_collected_with_its_model() -> None:
    learner = learner_of()
    learner.train_epoch()
    learner.close()
    found = weakref.ref(learner), weakref.ref(learner.tm.model)
    del learner
    gc.collect()

    assert [one() for one in found] == [None, None]


def test_a_copy_of_the_model_has_no_learner() -> None:
    learner = learner_of()
    model: Any = learner.tm.model

    assert (model.learner, copy.deepcopy(model).learner) == (learner, None)


# ---- what it says of itself ----


def test_explain_shows_the_four_stages_and_the_tree_of_the_run() -> None:
    text = learner_of().explain()
    own, _, of_run = text.partition("\n\nthe run, which is open in training and evaluation:\n")

    assert [line for line in own.splitlines() if re.match(r"\w", line)] == [
        "Learner",
        "data",
        "model",
        "training",
        "evaluation",
    ]
    found = [line for line in of_run.splitlines() if re.match(r"[│ ]*[├└]─ ", line)]
    assert found[:4] == ["├─ load_checkpoint", "├─ train", "│  ├─ eval", "│  │  └─ eval_step_epoch"]
    assert "└─ phase" in found
    assert "Augment.pre_train_step_batch of extension 'augment'" in of_run


def test_explain_of_an_extension_is_that_of_the_run() -> None:
    learner = learner_of()

    assert learner.explain("freeze") == learner.tm.explain("freeze")


def test_hooks_at_the_stages_of_the_learner_run_in_their_order() -> None:
    seen: list[str] = []
    learner = learner_of()
    learner.add_extension(
        Extension.of(
            pre_training=lambda: seen.append("training"),
            post_training=lambda: seen.append("trained"),
            pre_evaluation=lambda: seen.append("evaluation"),
        )
    )
    learner.ss_learn()
    learner.train_epoch()
    eval_model(create_dataloader(dataset()), learner.tm.model, [right])

    assert seen == ["training", "trained", "training", "trained", "evaluation"]


# ---- data and model that do not fit ----


def test_an_input_that_the_model_does_not_have_is_named() -> None:
    data = create_dataloader(dataset())
    model = load_model(
        network(inputs={"spot": [4]}, module={"head": {"from": "spot", "use": "Linear", "out_features": 3}})
    )

    assert (
        refusal(lambda: create_learner(data, model, SGD(model.parameters(), lr=0.1)))
        == """\
the dict has 2 mistakes
  the dict  dataset gives the input 'point', which the model does not have
  the dict  dataset lacks the input 'spot' of the model"""
    )


def test_an_objective_without_targets_in_the_data_is_named() -> None:
    table = dataset()
    del table["dataset"]["spots"]["targets"]

    assert (
        refusal(lambda: learner_of(data=table))
        == """\
the dict has a mistake
  the dict  objective.class needs targets, but no dataset has any"""
    )


# ---- without the files ----


MODEL = """\
[inputs]
point = [4]
[module.trunk]
from = "point"
layers = [{ use = "Linear", out_features = 6 }, { use = "BatchNorm1d" }, { use = "ReLU" }]
[module.head]
from = "trunk"
use = "Linear"
out_features = 3
[objective.class]
use = "cross_entropy"
at = "head"
weight = 0.5
"""


def of_file(train_dir: Path, text: str = MODEL) -> Any:
    """Train two epochs of a model whose file is deleted; return the model."""
    path = train_dir.parent / "model.toml"
    path.write_text(text)
    torch.manual_seed(3)
    model = load_model(path)
    path.unlink()
    given = options(train_dir, self_supervised=[])
    learner = create_learner(create_dataloader(dataset()), model, SGD(model.parameters(), lr=0.1), given)
    learner.train_epoch()
    learner.train_epoch()
    learner.close()
    return model


def test_a_training_that_ended_after_its_phase_is_rebuilt_from_its_checkpoint(tmp_path: Path) -> None:
    learner = learner_of(given=options(tmp_path / "run"))
    learner.ss_learn()
    model: Any = learner.tm.model
    weight = model.trunk[0].weight.clone()
    learner.close()
    tm = TrainManager.from_checkpoint(tmp_path / "run")

    assert tm.model.trunk[0].weight.equal(weight)


@pytest.mark.whole
def test_a_comparison_of_two_runs_names_what_differs_in_their_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    of_file(tmp_path / "a" / "run")
    of_file(tmp_path / "b" / "run", MODEL.replace("out_features = 6", "out_features = 5"))
    compared = compare_runs([tmp_path / "a" / "run", tmp_path / "b" / "run"])

    different = {name: cells for name, cells in compared.parameters.items() if len({*cells}) > 1}
    assert different == {
        "model.description.module.trunk.layers.0.out_features": ("6", "5"),
        "model size": ("63 parameters, 21 of them trained", "53 parameters, 18 of them trained"),
    }


# ---- extensions ----


def test_an_extension_of_the_options_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    keep = {"checkpoints": {"use": "Checkpoints", "keep": 7, "resume": True}}
    learner = learner_of(given=options(tmp_path / "run", extension=keep))
    checkpoints: Any = learner.tm["checkpoints"]

    assert checkpoints.keep == 7


STOPPING = {"use": "EarlyStopping", "monitor": "test/loss", "patience": 1, "min_delta": 9.0}


@pytest.mark.filterwarnings("ignore:this run was stopped")
@pytest.mark.parametrize(
    ("eval_at", "steps"), [("epoch", 6), (["start", "epoch"], 6), ({"use": "every", "n": 2}, 4)], ids=str
)
def test_a_learner_that_evaluates_while_it_trains_stops_early(eval_at: Any, steps: int) -> None:
    learner = learner_of(given={"eval_at": eval_at, "extension": {"stopping": STOPPING}})
    for _ in range(4):
        learner.train_epoch()
    learner.close()

    assert learner.tm.step_num == steps
    assert str(learner.tm.stop_reason).startswith("EarlyStopping: 'test/loss' was no better than")


def test_a_learner_evaluates_nothing_while_it_trains_by_default() -> None:
    learner = learner_of(given={})
    learner.train_epoch()
    learner.close()

    assert learner.tm.history.evaluations == []


def test_early_stopping_rests_in_the_phases_of_a_learner_which_evaluate_nothing() -> None:
    given = options(eval_at="epoch", extension={"stopping": STOPPING | {"patience": 9}})
    learner = learner_of(given=given)
    learner.ss_learn()
    learner.train_epoch()
    learner.close()

    assert learner.tm["stopping"].patience.best == learner.tm.history.evaluations[-1]["loss"]


def test_a_learner_with_early_stopping_that_evaluates_nothing_is_told_so() -> None:
    learner = learner_of(given={"extension": {"stopping": STOPPING}})
    learner.train_epoch()
    with pytest.warns(UserWarning, match="EarlyStopping saw no evaluation of 'test/loss'"):
        learner.close()
