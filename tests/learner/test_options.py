# ruff: noqa: E501  # messages have lines of their own
from __future__ import annotations

import pytest

from tests.learner.planted import OPTIONS, changed, said_of

pytestmark = pytest.mark.usefixtures("planted_words")


PLANTED = {
    "an unknown initializer": (
        [("seed = 1", 'seed = 1\ninitialize = "xavier_unifrom"')],
        """\
  options.toml:2  initialize is 'xavier_unifrom', which is not known
                  did you mean 'xavier_uniform'? known: xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, orthogonal""",
    ),
    "a freeze of no module": (
        [('freeze = "trunk"', 'freeze = "trnuk"')],
        """\
  options.toml:2  freeze names 'trnuk', which is not a module of the model
                  did you mean 'trunk'? known: trunk, digit""",
    ),
    "an unknown extension": (
        [('"EMA"', '"EMMA"')],
        """\
  options.toml:11  extension.average.use is the text 'EMMA', which is not known
                   did you mean 'EMA'? known: ...
                   for one of your own, write @recorded above it and import its module first""",
    ),
    "a seed of more than 63 bits": (
        [("seed = 1", "seed = 9223372036854775808")],
        """\
  options.toml:1  seed must be a whole number from 0 on, but is the number 9223372036854775808""",
    ),
    "an argument that an extension refuses": (
        [("decay = 0.9", "decay = 5.0")],
        """\
  options.toml:10  extension.average is EMA, which refuses its arguments: InputError: decay must be a number of at least 0 and below 1, but is 5.0""",
    ),
    "a device that is not there": (
        [("seed = 1", 'seed = 1\ndevice = "hpu"')],
        """\
  options.toml:2  device cannot be used: there is no device 'hpu' here
                  leave it out, or write device = "cpu\"""",
    ),
    "an argument that a task refuses": (
        [("epochs = 1", "epochs = 1\nfeatures = -1")],
        """\
  options.toml:3  self_supervised[0] is SimCLR, which refuses its arguments: RuntimeError: ...""",
    ),
    "an argument that the program gives": (
        [("epochs = 1", 'epochs = 1\nencoder = "trunk"')],
        """\
  options.toml:7  self_supervised[0].encoder is not an argument of SimCLR
                  known: temperature, features, at, epochs, batch_size, optimizer""",
    ),
    "a phase in single brackets": (
        [("[[self_supervised]]", "[self_supervised]")],
        """\
  options.toml:3  self_supervised must be a list of tables, but is the table {'use': 'SimCLR', 'at': 'trunk', 'epochs': 1, 'optimizer': {'use': 'AdamW', 'lr': 0.001}}
                  write [[self_supervised]], or self_supervised = [{ ... }]""",
    ),
    "a misspelt point of evaluation": (
        [("seed = 1", 'seed = 1\neval_at = ["start", "epohc"]')],
        """\
  options.toml:2  eval_at[1] is 'epohc', which is not known
                  did you mean 'epoch'? known: start, epoch, end""",
    ),
    "a misspelt schedule of evaluations": (
        [("seed = 1", 'seed = 1\neval_at = { use = "evry", n = 2 }')],
        """\
  options.toml:2  eval_at.use is the text 'evry', which is not known
                  did you mean 'every'? known: at_most, every, exponentially, periodically""",
    ),
    "a schedule that refuses its number": (
        [("seed = 1", 'seed = 1\neval_at = { use = "every", n = 0 }')],
        """\
  options.toml:2  eval_at is every, which refuses its arguments: HookError: every's n must be a whole number of at least 1, but is 0""",
    ),
    "a number of evaluations": (
        [("seed = 1", "seed = 1\neval_at = 5")],
        """\
  options.toml:2  eval_at must be a word, a table or a list of these, but is the number 5""",
    ),
    "an extension with the name of another": (
        [("[extension.average]", "[extension.freeze]")],
        """\
  options.toml:10  extension.freeze has the name of an extension that the learner adds itself
                   give it another name""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_the_options_is_named_with_its_cure(changes: list[tuple[str, str]], message: str) -> None:
    assert said_of(options=changed(OPTIONS, *changes)) == message
