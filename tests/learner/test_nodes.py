# messages have lines of their own
from __future__ import annotations

from pathlib import Path

import pytest

from tests.learner.planted import MODEL, changed, forget_other_words, said_of


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and the words of these files alone."""
    monkeypatch.chdir(tmp_path)
    forget_other_words(monkeypatch)


PLANTED = {
    "a misspelt key of a module": (
        [('from = "trunk"', 'form = "trunk"')],
        """\
model.toml has 2 mistakes
  model.toml:10  module.digit lacks from: the inputs and modules that feed it, in the order of its arguments
  model.toml:11  module.digit.form is not an argument of Linear
                 did you mean 'from'? known: in_features, out_features, bias, from, layers""",
    ),
    "no from": (
        [('from = "trunk"\n', "")],
        """\
model.toml has a mistake
  model.toml:10  module.digit lacks from: the inputs and modules that feed it, in the order of its arguments""",
    ),
    "a feeder that does not exist": (
        [('from = "trunk"', 'from = "trnuk"')],
        """\
model.toml has a mistake
  model.toml:11  module.digit.from names 'trnuk', which is neither an input nor a module
                 did you mean 'trunk'? known: image, trunk, digit""",
    ),
    "a circle": (
        [('from = "image"', 'from = "digit"')],
        """\
model.toml has a mistake
  model.toml:11  module.digit.from feeds itself: digit -> trunk -> digit
                 feed one of them by an input, or by a module before it""",
    ),
    "an objective at no module": (
        [('at = "digit"', 'at = "digits"')],
        """\
model.toml has a mistake
  model.toml:16  objective.class.at names 'digits', which is not a module
                 did you mean 'digit'? known: trunk, digit""",
    ),
    "both at and between": (
        [('at = "digit"', 'at = "digit"\nbetween = ["digit", "trunk"]')],
        """\
model.toml has a mistake
  model.toml:14  objective.class has both at and between
                 at compares a module with the targets, between compares two modules with each other""",
    ),
    "neither at nor between": (
        [('at = "digit"\n', "")],
        """\
model.toml has a mistake
  model.toml:14  objective.class lacks at = "a module", or between = ["one", "another"]
                 known: trunk, digit""",
    ),
    "both use and layers": (
        [('use = "Linear"', 'use = "Linear"\nlayers = [{ use = "ReLU" }]')],
        """\
model.toml has a mistake
  model.toml:12  module.digit.use stands beside layers
                 a single module has use = "..." and its arguments, several have layers = [{ use = "..." }]""",
    ),
    "a module that is called train": (
        [("[module.digit]", "[module.train]"), ('at = "digit"', 'at = "train"')],
        """\
model.toml has a mistake
  model.toml:10  module.train has the name of model.train, which every model has
                 give it another name""",
    ),
    "a module that is called forward": (
        [("[module.digit]", "[module.forward]"), ('at = "digit"', 'at = "forward"')],
        """\
model.toml has a mistake
  model.toml:10  module.forward has the name of model.forward, which every model has
                 give it another name""",
    ),
    "a module that is called names": (
        [("[module.digit]", "[module.names]"), ('at = "digit"', 'at = "names"')],
        """\
model.toml has a mistake
  model.toml:10  module.names has the name of model.names, which every model has
                 give it another name""",
    ),
    "a module with the name of an input": (
        [("[module.digit]", "[module.image]"), ('from = "trunk"', 'from = "image"'), ('at = "digit"', 'at = "image"')],
        """\
model.toml has 2 mistakes
  model.toml:10  module.image has the name of an input
                 give it another name
  model.toml:11  module.image.from feeds itself: image -> image
                 feed one of them by an input, or by a module before it""",
    ),
    "a weight that is not a number": (
        [('at = "digit"', 'at = "digit"\nweight = nan')],
        """\
model.toml has a mistake
  model.toml:17  objective.class.weight must be a finite number, but is the number nan""",
    ),
    "an unknown reduction": (
        [('at = "digit"', 'at = "digit"\nreduction = "maen"')],
        """\
model.toml has a mistake
  model.toml:17  objective.class.reduction must be 'mean' or 'sum' or 'batchmean', but is the text 'maen'
                 a loss must be one number""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_a_model_is_named_with_its_cure(changes: list[tuple[str, str]], message: str) -> None:
    assert said_of(model=changed(MODEL, *changes)) == message
