# ruff: noqa: E501  # messages have lines of their own
from __future__ import annotations

from pathlib import Path

import pytest

from tests.learner.planted import DATA, MODEL, changed, learner_of, said_of
from tests.support.refusals import refusal
from train_manager.errors import StageError
from train_manager.learner import deploy_model
from train_manager.learner.evaluation import Evaluation

pytestmark = pytest.mark.usefixtures("planted_words")


PLANTED = {
    "a misspelt word": (
        [('"pictures"', '"pictuers"')],
        """\
  data.toml:2  dataset.digits.use is the text 'pictuers', which is not known
               did you mean 'pictures'? known: pictures
               for one of your own, write @recorded above it and import its module first""",
    ),
    "a module for a dataset": (
        [('"pictures"', '"Linear"')],
        """\
  data.toml:2  dataset.digits.use names torch.nn:Linear, but must name a function of the program that is @recorded, and returns columns
               known: pictures
               a module has its place in [module.a_name]""",
    ),
    "no use": (
        [('use = "pictures"\n', "")],
        """\
  data.toml:1  dataset.digits lacks use = "...", the name of a function of the program that is @recorded, and returns columns
               known: pictures""",
    ),
    "no split": (
        [("split = { train = 0.75, test = 0.25 }\n", "")],
        """\
  data.toml:1  dataset.digits lacks split: the share of each part; train is one of them, and their sum is 1""",
    ),
    "an empty split": (
        [("{ train = 0.75, test = 0.25 }", "{}")],
        """\
  data.toml:5  dataset.digits.split is empty
               write split = { train = 0.75, test = 0.25 }""",
    ),
    "a split without train": (
        [("train =", "training =")],
        """\
  data.toml:5  dataset.digits.split lacks train, the share of the rows that are trained on
               did you mean 'training'? known: training, test""",
    ),
    "an unknown column": (
        [('"image"', '"imgae"')],
        """\
  data.toml:3  dataset.digits.inputs names 'imgae', which is not a column of pictures
               did you mean 'image'? known: image, label, name""",
    ),
    "a column of texts": (
        [('"image"', '"name"')],
        """\
  data.toml:3  dataset.digits.inputs names 'name', which must have numbers, one or more for each row
               return a tensor or a list from pictures""",
    ),
    "too few rows of a label": (
        [("inputs =", "rows = 11\ninputs =")],
        """\
  data.toml:6  dataset.digits.split cannot be made: 2 rows of label 0 are too few: test would have none
               give it a larger share, or the dataset more rows""",
    ),
    "too few labelled rows": (
        [("inputs =", "labelled = 0.05\ninputs =")],
        """\
  data.toml:3  dataset.digits.labelled cannot be chosen: 6 rows of label 0 are too few: the labelled part would have none
               give it a larger share, or the dataset more rows""",
    ),
    "no rows at all": (
        [("inputs =", "rows = 0\ninputs =")],
        """\
  data.toml:2  dataset.digits.use is pictures, which returned no rows of image and label""",
    ),
    "true for a number": (
        [("std = 0.1", "std = true")],
        """\
  data.toml:7  dataset.digits.augment[1].std must be a number, but is true""",
    ),
    "a number of pixels below 0": (
        [("pixels = 1", "pixels = -1")],
        """\
  data.toml:7  dataset.digits.augment[0] is shift, which raised InputError: pixels must be from 0 to 8, but is -1""",
    ),
    "a division by 0": (
        [("16.0", "0.0")],
        """\
data.toml:6: divide raised InputError: by must not be 0
  it was given image""",
    ),
    "a list that is a table": (
        [('[{ use = "divide", by = 16.0 }]', '{ use = "divide", by = 16.0 }')],
        """\
  data.toml:6  dataset.digits.features must be a list of tables, but is the table {'use': 'divide', 'by': 16}
               write [[dataset.digits.features]], or features = [{ ... }]""",
    ),
    "a pretrained feature without its file": (
        [('"divide", by = 16.0', '"Linear", in_features = 8, out_features = 2, weights = "w.pt"')],
        """\
  data.toml:6  dataset.digits.features[0].weights is the text 'w.pt', which is not a file
               write the path of a file of weights, from the folder of this file on""",
    ),
    "a dataset without a name": (
        [("[dataset.digits]", "[dataset]")],
        """\
  data.toml:1  dataset is a table without a name
               write [dataset.a_name]""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_a_dataset_is_named_with_its_cure(changes: list[tuple[str, str]], message: str) -> None:
    assert said_of(data=changed(DATA, *changes)) == message


def test_twenty_mistakes_in_two_files_are_reported_at_once_by_each_of_them() -> None:
    data = changed(
        DATA,
        ('"pictures"', '"pictures"\nrows = "80"'),
        ("inputs", "inptus"),
        ('label"', 'label"\nlabeled = 0.5\nbatch_size = 0'),
        ("test = 0.25", "test = 0.2"),
        ("by = 16.0", 'by = "16"'),
        ("pixels = 1", "pixels = 1.5"),
        ("std", "sdt"),
        ("[dataset.digits]", "[datset]\n[dataset.digits]"),
    )
    model = changed(
        MODEL,
        ("[inputs]", 'outputs = "digti"\n[inputs]'),
        ("1, 8, 8", "1, 8, 0"),
        ('from = "image"', 'from = "imgae"'),
        ('"Conv2d"', '"Conv2D"'),
        ('"ReLU"', '"relu"'),
        ('use = "Flatten"', 'used = "Flatten"'),
        ('from = "trunk"', 'form = "trunk"'),
        ("out_features = 10", "out_features = true"),
        ('"cross_entropy"', '"crossentropy"'),
        ('at = "digit"', 'at = "digits"\nweight = "1"'),
    )

    assert said_of(data=data) == DATA_MESSAGE
    assert said_of(model=model) == MODEL_MESSAGE


DATA_MESSAGE = """\
data.toml has 11 mistakes
  data.toml:1   datset is not a known key
                did you mean 'dataset'? known: dataset, curriculum
  data.toml:2   dataset.digits lacks inputs: the input columns
  data.toml:4   dataset.digits.rows must be a whole number, but is the text '80'
  data.toml:5   dataset.digits.inptus is not an argument of pictures
                did you mean 'inputs'? known: rows, inputs, targets, split, labelled, features, augment, batch_size, seed
  data.toml:7   dataset.digits.labeled is not an argument of pictures
                did you mean 'labelled'? known: rows, inputs, targets, split, labelled, features, augment, batch_size, seed
  data.toml:8   dataset.digits.batch_size must be a whole number from 1 on, but is the number 0
  data.toml:9   dataset.digits.split has the sum 0.95, but must have 1
                each row is in one part: split = { train = 0.75, test = 0.25 }
  data.toml:10  dataset.digits.features[0].by must be a number, but is the text '16'
  data.toml:11  dataset.digits.augment[0].pixels must be a whole number, but is the number 1.5
  data.toml:11  dataset.digits.augment[1].sdt is not an argument of noise
                known: std, of
  data.toml:11  dataset.digits.augment[1] lacks std, which noise needs"""
MODEL_MESSAGE = """\
model.toml has 12 mistakes
  model.toml:1   outputs names 'digti', which is not a module
                 did you mean 'digit'? known: trunk, digit
  model.toml:3   inputs.image must be the shape of one example, such as [1, 8, 8], but is the list [1, 8, 0]
                 an example is counted without its batch
  model.toml:5   module.trunk.from names 'imgae', which is neither an input nor a module
                 did you mean 'image'? known: image, trunk, digit
  model.toml:7   module.trunk.layers[0].use is the text 'Conv2D', which is not known
                 did you mean 'Conv2d'? known: ...
                 for one of your own, write @recorded above it and import its module first
  model.toml:8   module.trunk.layers[1].use names torch.nn.functional:relu and torch:relu, but must name a module
                 did you mean 'ReLU'? known: ...
  model.toml:9   module.trunk.layers[2] lacks use = "...", the name of a module
                 known: ...
  model.toml:11  module.digit lacks from: the inputs and modules that feed it, in the order of its arguments
  model.toml:12  module.digit.form is not an argument of Linear
                 did you mean 'from'? known: in_features, out_features, bias, from, layers
  model.toml:14  module.digit.out_features must be a whole number, but is true
  model.toml:16  objective.class.use is the text 'crossentropy', which is not known
                 did you mean 'cross_entropy'? known: ...
                 for one of your own, write @recorded above it and import its module first
  model.toml:17  objective.class.at names 'digits', which is not a module
                 did you mean 'digit'? known: trunk, digit
  model.toml:18  objective.class.weight must be a finite number, but is the text '1'"""


def test_a_table_that_belongs_into_another_file_is_named() -> None:
    assert said_of(model=MODEL + "[dataset.others]\n") == (
        f"  model.toml:{MODEL.count(chr(10)) + 1}  dataset is not a known key\n"
        "                 known: inputs, module, objective, outputs"
    )


@pytest.mark.parametrize("call", ["train_epoch", "ss_learn"])
def test_a_closed_learner_does_not_train(call: str) -> None:
    learner = learner_of()
    learner.train_epoch()
    learner.close()

    with pytest.raises(
        StageError, match=r"^the learner is closed, so its run has ended\n  make another: create_learner"
    ):
        getattr(learner, call)()


def test_a_model_is_not_deployed_without_an_evaluation() -> None:
    assert refusal(lambda: deploy_model(Evaluation(), learner_of().tm.model, {"folder": "deployed"})) == (
        "deploy_model needs an evaluation, but was given {}\n"
        "  evaluate it first: eval_model(dataloader, model, metrics)"
    )
    assert not Path("deployed").exists()
