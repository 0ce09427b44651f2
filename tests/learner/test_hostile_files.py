"""Files that ask for what no file may have: nothing runs or is imported."""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.learner.planted import DATA, MODEL, OPTIONS, changed, learner_of
from tests.support.rotation import in_turn, share_of
from train_manager import InputError
from train_manager.learner import create_dataloader

MUTATIONS = 300  # of each of ten seeds
PIECES = (
    *('"', "'", "[", "]", "{", "}", "=", ",", ".", "\n", "#", "-", "_", "\\", "\0", "\ufeff", "é", " "),
    *("true", "nan", "-1", "0", "1e99", "9223372036854775807", '""', '"Linear"', '"LSTM"', '"label"', '"meta"', "{}"),
    *("[]", "use = ", "[module.x]\n", "[[dataset.x]]\n", "from", "train", "encoder", "epochs = 0\n", "of = 3"),
)


def mutated(text: str, chance: random.Random) -> str:
    """Return a text with one to three pieces of it replaced, left out, moved or doubled."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text))
        end = min(len(text), start + chance.choice((0, 0, 1, 2, 5, 12)))
        lines = text.splitlines(keepends=True)
        way = chance.randrange(4)
        if way == 0 and len(lines) > 1:
            chance.shuffle(lines)
            text = "".join(lines)
        elif way == 1:
            text = text[:end] + text[start:]
        else:
            text = text[:start] + chance.choice(("", *PIECES)) + text[end:]
    return text or " "


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(share_of(share_of(10))))
def test_a_mutated_file_is_a_learner_or_an_input_error(seed: int) -> None:
    chance, count = random.Random(seed), share_of(share_of(MUTATIONS))
    refused = 0
    for number in range(count):
        texts = {"data": DATA, "model": MODEL, "options": OPTIONS}
        name = ("data", "model", "options")[number % 3]
        texts[name] = mutated(texts[name], chance)
        try:
            learner_of(**texts)
        except InputError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{error!r} of {name}:\n{texts[name]}") from error

    assert refused > count // 2


WORDS = (
    *("os.system", "os:system", "torch.load", "torch:load", "torch.hub:load", "builtins:eval", "eval", "exec"),
    *("subprocess", "subprocess:run", "canary:run", "canary.run", "train_manager.learner.entries:read_entry"),
    *("__import__", "../canary", "torch.nn:Module.__init__", "torch.nn.functional:handle_torch_function", ""),
)
PLACES = ("dataset", "feature", "augment", "layer", "loss", "task", "optimizer", "extension")


@pytest.mark.parametrize(("word", "place"), in_turn(WORDS, PLACES))
def test_a_word_that_is_not_registered_runs_and_imports_nothing(
    word: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("canary.py").write_text("open('ran', 'w').close()\ndef run(*given, **more): open('ran', 'w').close()\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    before = set(sys.modules)
    old = {
        "dataset": ("data", '"pictures"'),
        "feature": ("data", '"divide"'),
        "augment": ("data", '"shift"'),
        "layer": ("model", '"ReLU"'),
        "loss": ("model", '"cross_entropy"'),
        "task": ("options", '"SimCLR"'),
        "optimizer": ("options", '"AdamW"'),
        "extension": ("options", '"EMA"'),
    }
    file, name = old[place]
    texts = {"data": DATA, "model": MODEL, "options": OPTIONS}

    with pytest.raises(InputError, match=r"which is not known|but must name"):
        learner_of(**{**texts, file: changed(texts[file], (name, f'"{word}"'))})

    assert not Path("ran").exists()
    assert "canary" not in set(sys.modules) - before


class _Runs:
    """What a pickle holds that writes a file as it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, ("ran", "w")


@pytest.mark.parametrize("write", [torch.save, lambda thing, path: Path(path).write_bytes(pickle.dumps(thing))])
def test_the_weights_of_a_pretrained_feature_run_nothing(write: Any) -> None:
    write({"weight": _Runs(), "bias": torch.zeros(2)}, "weights.pt")
    feature = '"Linear", in_features = 8, out_features = 2, weights = "weights.pt"'
    Path("data.toml").write_text(changed(DATA, ('"divide", by = 16.0', feature)))

    with pytest.raises(InputError, match=r"^data.toml:6: Linear raised CheckpointError: "):
        create_dataloader("data.toml")

    assert not Path("ran").exists()
