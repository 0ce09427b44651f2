# messages have lines of their own
from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from tests.learner.planted import DATA, MODEL, changed, forget_other_words, said_of
from train_manager.learner import dataset, load_model, words
from train_manager.rebuilding import registry


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and the words of these files alone."""
    monkeypatch.chdir(tmp_path)
    forget_other_words(monkeypatch)


PLANTED = {
    "a misspelt module": (
        [('"ReLU"', '"RelU"')],
        """\
model.toml has a mistake
  model.toml:7  module.trunk.layers[1].use is the text 'RelU', which is not known
                did you mean 'ReLU'? known: ...
                for one of your own, write @recorded above it and import its module first""",
    ),
    "a function that two modules of torch have": (
        [('"ReLU"', '"relu"')],
        """\
model.toml has a mistake
  model.toml:7  module.trunk.layers[1].use names torch.nn.functional:relu and torch:relu, but must name a module
                did you mean 'ReLU'? known: ...""",
    ),
    "a loss for a module": (
        [('"ReLU"', '"CrossEntropyLoss"')],
        """\
model.toml has a mistake
  model.toml:7  module.trunk.layers[1].use names torch.nn:CrossEntropyLoss, but must name a module
                known: ...
                a loss has its place in [objective.a_name]""",
    ),
    "a module for a loss": (
        [('"cross_entropy"', '"Linear"')],
        """\
model.toml has a mistake
  model.toml:15  objective.class.use names torch.nn:Linear, but must name a loss
                 known: ...
                 a module has its place in [module.a_name]""",
    ),
    "a misspelt argument": (
        [("out_features", "out_feature")],
        """\
model.toml has a mistake
  model.toml:13  module.digit.out_feature is not an argument of Linear
                 did you mean 'out_features'? known: in_features, out_features, bias, from, layers""",
    ),
    "a list of modules": (
        [('"ReLU"', '"ModuleList"')],
        """\
model.toml has a mistake
  model.toml:7  module.trunk.layers[1].use names torch.nn:ModuleList, but must name a module
                known: ...
                write layers = [{ use = "..." }], or a module of your own, with @recorded above it""",
    ),
    "a device in a layer": (
        [("out_features = 10", 'out_features = 10\ndevice = "cuda"')],
        """\
model.toml has a mistake
  model.toml:14  module.digit.device is not an argument of Linear
                 known: in_features, out_features, bias, from, layers""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_a_word_or_an_argument_is_named_with_its_cure(
    changes: list[tuple[str, str]], message: str
) -> None:
    assert said_of(model=changed(MODEL, *changes)) == message


def test_a_word_that_two_modules_of_the_program_have_is_refused_with_both_whole_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry._REGISTERED, "others:pictures", lambda: None)
    monkeypatch.setattr(dataset, "DATASET", words.Kind("a function", callable))

    assert said_of(data=changed(DATA, ("inputs", "rows = 80\ninputs"))) == (
        "data.toml has a mistake\n"
        "  data.toml:2  dataset.digits.use is the name of tests.learner.planted:pictures and of others:pictures\n"
        '               write one of these: use = "tests.learner.planted:pictures"'
    )


def test_a_whole_name_is_a_word_too() -> None:
    Path("model.toml").write_text(changed(MODEL, ('"ReLU"', '"torch.nn:ReLU"')))

    assert isinstance(load_model("model.toml").trunk[1], nn.ReLU)  # type: ignore[index]
