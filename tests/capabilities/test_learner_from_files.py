"""Rows J01 to J34 of the capabilities, met from files: data, model and options as TOML, and the article's script."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from train_manager import Extension, InputError, TrainManager, jumpml, recorded
from train_manager.learner import Learner, create_dataloader, create_learner, deploy_model, eval_model, load_model
from train_manager.learner.datasets import Datasets
from train_manager.learner.model import FileModel

pytestmark = pytest.mark.filterwarnings("ignore:the code of this run is not recorded in full")

ROWS = 48

DATA = """\
[dataset.dots]
use = "dots"
inputs = "image"
targets = "label"
split = { train = 0.5, valid = 0.25, test = 0.25 }
labelled = 0.5
batch_size = 8
features = [{ use = "divide", by = 4.0 }]
augment = [{ use = "shift", pixels = 1 }, { use = "noise", std = 0.05 }]
"""

MODEL = """\
[inputs]
image = [1, 4, 4]
[module.trunk]
from = "image"
layers = [{ use = "Conv2d", out_channels = 4, kernel_size = 3 }, { use = "BatchNorm2d" }, { use = "ReLU" },
          { use = "Flatten" }]
[module.digit]
from = "trunk"
use = "Linear"
out_features = 2
[objective.class]
use = "cross_entropy"
at = "digit"
"""

OPTIONS = """\
seed = 0
freeze = "trunk"
[[self_supervised]]
use = "SimCLR"
at = "trunk"
epochs = 6
batch_size = 24
"""


@recorded
def dots() -> dict[str, Tensor]:
    """Images with a spot at the left or at the right."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(ROWS) % 2
    image = torch.rand(ROWS, 1, 4, 4, generator=generator)
    image[torch.arange(ROWS), 0, torch.arange(ROWS) % 4, 3 * label] = 4.0
    return {"image": image, "label": label}


@recorded
def shades_of_dots() -> dict[str, Tensor]:
    """The images of ``dots``, with how bright they are."""
    image = dots()["image"]
    return {"image": image, "shade": image.mean((1, 2, 3)).unsqueeze(1)}


@recorded
def two_views() -> dict[str, Tensor]:
    """Two views of the same hidden point."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, 3, generator=generator)
    return {"sound": hidden @ torch.ones(3, 5).cumsum(1), "sight": hidden.flip(1).cumsum(1)}


def accuracy(prediction: Tensor, truth: Tensor) -> Tensor:
    return (prediction.argmax(1) == truth).float().mean()


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.toml").write_text(DATA)
    Path("model.toml").write_text(MODEL)
    Path("learner.toml").write_text(OPTIONS)


def made(options: Any = "learner.toml", data: Any = "data.toml", model: Any = "model.toml") -> Learner:
    torch.manual_seed(0)
    network = load_model(model)
    return create_learner(create_dataloader(data), network, optim.SGD(network.parameters(), lr=0.1), options)


@pytest.fixture
def learner() -> Iterator[Learner]:
    one = made()
    yield one
    one.close()


def part(model: nn.Module, name: str) -> Any:
    return model.get_submodule(name)


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(module.state_dict())


def are_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(value.equal(other[name]) for name, value in one.items())


def test_j01_the_four_stages_are_in_the_printed_tree(learner: Learner) -> None:
    lines = learner.explain().splitlines()

    assert [line for line in lines if line in ("data", "model", "training", "evaluation", "run")] == [
        "data",
        "model",
        "training",
        "evaluation",
        "run",
    ]


def test_j02_a_file_joins_two_modules_and_their_shapes_are_checked_before_anything_is_made() -> None:
    assert part(load_model("model.toml"), "digit").in_features == 16

    Path("model.toml").write_text(MODEL.replace("out_features = 2", "out_features = 2\nin_features = 17"))
    with pytest.raises(InputError) as caught:
        load_model("model.toml")
    assert "model.toml:7  module.digit is Linear, which does not fit" in str(caught.value)
    assert "trunk gives [16], and its weight is [2, 17]" in str(caught.value)


def test_j03_a_hidden_module_has_an_objective_of_its_own_with_a_weight() -> None:
    hidden = '[objective.small]\nuse = "mse_loss"\nat = "trunk"\ntargets = "hidden"\nweight = 0.5\n'
    Path("model.toml").write_text(MODEL.replace('at = "digit"', 'at = "digit"\ntargets = "label"') + hidden)
    model = load_model("model.toml")

    assert list(model(torch.rand(3, 1, 4, 4))) == ["digit", "trunk"]
    assert model.objectives["small"].weight == 0.5


def test_j09_j26_j29_self_supervised_phases_learn_from_augmented_inputs_without_labels(learner: Learner) -> None:
    losses: list[float] = []
    learner.tm.add_extension(post_train_step_epoch=lambda train_result: losses.append(train_result["loss"]))
    learner.ss_learn()

    assert len(losses) == 6
    assert losses[-1] < losses[0]


def test_j11_datasets_of_two_tasks_train_one_trunk_with_branches() -> None:
    tables = DATA.replace("labelled = 0.5\n", "")
    data = tables + tables.replace("dots", "shades_of_dots").replace('"label"', '"shade"')
    model = MODEL.replace('at = "digit"', 'at = "digit"\ntargets = "label"')
    model += '[module.shade]\nfrom = "trunk"\nuse = "Linear"\nout_features = 1\n'
    model += '[objective.shade]\nuse = "mse_loss"\nat = "shade"\ntargets = "shade"\n'
    Path("data.toml").write_text(data)
    Path("model.toml").write_text(model)
    learner = made({"seed": 0})
    before = {name: weights_of(part(learner.tm.model, name)) for name in ("digit", "shade")}
    learner.train_epoch()
    learner.close()

    assert not any(are_equal(before[name], weights_of(part(learner.tm.model, name))) for name in before)


def test_j12_a_teacher_chooses_the_dataset_of_each_batch() -> None:
    other = DATA.replace("dataset.dots", "dataset.again")
    Path("data.toml").write_text(DATA + other + "[curriculum]\nsteps_per_epoch = 4\nprobe = 4\n")
    learner = made({"seed": 0})
    learner.train_epoch()
    learner.close()
    shares = learner.tm.history.epochs[-1]

    assert shares["share/dots"] + shares["share/again"] == 1


def test_j13_two_encoders_are_compared_by_an_objective_between_them() -> None:
    data = {
        "dataset": {"pairs": {"use": "two_views", "inputs": ["sound", "sight"], "split": {"train": 0.5, "test": 0.5}}}
    }
    encoder = {"use": "Linear", "out_features": 4}
    model = {
        "inputs": {"sound": [5], "sight": [3]},
        "module": {"ear": {"from": "sound", **encoder}, "eye": {"from": "sight", **encoder}},
        "objective": {"same": {"use": "contrast", "between": ["ear", "eye"], "temperature": 0.1}},
    }
    learner = made({"seed": 0}, data, model)
    for _ in range(30):
        learner.train_epoch()
    found = eval_model(create_dataloader(data), learner.tm.model, [retrieval])
    learner.close()

    assert found["test"].metrics["retrieval"] > 3 / len(found["test"].truth)


def retrieval(one: Tensor, other: Tensor) -> Tensor:
    """Return how often the nearest of the others is the own one."""
    one, other = nn.functional.normalize(one, dim=1), nn.functional.normalize(other, dim=1)
    return ((one @ other.T).argmax(1) == torch.arange(len(one))).float().mean()


def test_j18_a_file_has_datasets_with_splits_features_augmentations_and_a_misspelt_key_is_named() -> None:
    data = create_dataloader("data.toml")
    assert list(data.eval_data) == ["valid", "test"]
    assert repr(data) == "Datasets(dots: ColumnBatches(12 rows, 2 batches of 8, shuffle=True))"

    Path("data.toml").write_text(DATA.replace("labelled", "labeled"))
    with pytest.raises(InputError, match=r"data.toml:6 +dataset.dots.labeled is not an argument of dots\n.*'labelled'"):
        create_dataloader("data.toml")


def test_j19_j20_j21_the_article_s_calls_make_a_learner_with_a_plain_optimizer() -> None:
    dataloader = jumpml.createDataloader("data.toml")
    model = jumpml.loadModel("model.toml")
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    learner = jumpml.createLearner(dataloader, model, optimizer, "learner.toml")
    learner.ssLearn()
    for _ in range(2):
        learner.trainEpoch()
    learner.close()

    assert learner.tm.epoch_num == 2


def test_j22_weights_are_drawn_by_name() -> None:
    learner = made({"seed": 0, "initialize": "xavier_uniform"}, model=wide())
    weight = part(learner.tm.model, "digit").weight
    expected = (2 / (weight.shape[0] + weight.shape[1])) ** 0.5

    assert abs(weight.std().item() / expected - 1) < 0.05


def wide() -> dict[str, Any]:
    return {
        "inputs": {"image": [1, 4, 4]},
        "module": {
            "trunk": {"from": "image", "use": "Flatten"},
            "digit": {"from": "trunk", "use": "Linear", "out_features": 400},
        },
        "objective": {"class": {"use": "cross_entropy", "at": "digit"}},
    }


def test_j23_j28_extensions_of_the_options_average_weights_and_log() -> None:
    options = {"seed": 0, "train_dir": "run", "extension": {"ema": {"use": "EMA", "decay": 0.5}}}
    learner = made(options)
    learner.train_epoch()
    result = eval_model(create_dataloader("data.toml"), learner.tm.model, [accuracy])
    learner.close()

    assert {one.weights for one in result.values()} == {"EMA"}
    assert Path("run/metrics.sqlite").exists()


def test_j25_a_second_start_resumes_from_the_saved_parameters() -> None:
    options = {"seed": 0, "train_dir": "run"}
    learner = made(options)
    learner.train_epoch()
    learner.close()
    again = made(options)
    again.train_epoch()
    again.close()

    assert again.tm.epoch_num == 1
    assert are_equal(learner.tm.model.state_dict(), again.tm.model.state_dict())


def test_j30_the_loop_is_the_user_s_and_hooks_of_the_run_fire_once() -> None:
    fired: list[str] = []
    learner = made()
    learner.tm.add_extension(Extension.of(pre_run=lambda: fired.append("start"), post_run=lambda: fired.append("end")))
    learner.ss_learn()
    epochs = [learner.train_epoch().epochs for _ in range(3)]
    learner.close()

    assert (epochs, learner.tm.epoch_num, fired) == ([1, 1, 1], 3, ["start", "end"])


def test_j31_epochs_touch_only_the_branches_and_the_phase_only_the_trunk(learner: Learner) -> None:
    model = learner.tm.model
    trunk, digit = weights_of(model.get_submodule("trunk")), weights_of(model.get_submodule("digit"))
    learner.ss_learn()
    learned = weights_of(model.get_submodule("trunk"))
    assert not are_equal(trunk, learned)
    assert are_equal(digit, weights_of(model.get_submodule("digit")))

    learner.train_epoch()
    assert are_equal(learned, weights_of(model.get_submodule("trunk")))
    assert not are_equal(digit, weights_of(model.get_submodule("digit")))


def test_j32_plain_functions_get_all_predictions_and_all_truth(learner: Learner) -> None:
    data: Datasets = create_dataloader("data.toml")
    model: FileModel = learner.tm.model
    result = eval_model(data, model, [accuracy])["test"]
    columns = data.eval_data["test"].source
    with torch.no_grad():
        expected = accuracy(model.eval()(columns["image"]), columns["label"])

    assert result.metrics == {"accuracy": expected.item()}
    assert result.truth.equal(columns["label"])


def test_j17_j33_a_trained_model_is_handed_over_in_a_folder_with_its_report(learner: Learner) -> None:
    learner.train_epoch()
    evaluation = eval_model(create_dataloader("data.toml"), learner.tm.model, [accuracy])
    deploy_model(evaluation, learner.tm.model, {"folder": "handed", "exports": ["low_rank"], "low_rank": 0.6})

    assert sorted(file.name for file in Path("handed").iterdir()) == ["low_rank.pt", "model.pt", "report.md"]
    assert "accuracy" in Path("handed/report.md").read_text()


def test_a_checkpoint_is_a_training_again_without_the_files() -> None:
    learner = made({"seed": 0, "train_dir": "run"})
    learner.train_epoch()
    learner.close()
    Path("model.toml").unlink()
    again: TrainManager[Any] = TrainManager.from_checkpoint("run")

    inputs = torch.rand(3, 1, 4, 4)
    assert again.predict(inputs).equal(learner.tm.predict(inputs))
