from __future__ import annotations

import datetime
import random
import tomllib
from pathlib import Path

import pytest

from tests.support.refusals import refusal
from tests.support.rotation import share_of
from train_manager import InputError
from train_manager.learner.description import (
    Description,
    FileMistakes,
    KeyPath,
    dotted,
    lines_of,
    paths_of,
)

DATA = """\
[dataset.digits]
use = "digits"
inputs = "image"
split = { train = 0.75, test = 0.25 }
features = [{ use = "divide", by = 16.0 }]
"""
MODEL = """\
[module.trunk]
from = "image"
layers = [
    { use = "Conv2d", out_channels = 32, kernel_size = 3 },  # the first
    { use = "ReLU" },
]
[objective.class]
use = "cross_entropy"
at = "trunk"
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files in the folder in which the test runs."""
    monkeypatch.chdir(tmp_path)
    Path("data.toml").write_text(DATA)
    Path("model.toml").write_text(MODEL)


def message_of(given: object) -> str:
    """Return the error of a file with this text, or of an argument that is not a text."""
    if isinstance(given, str | bytes):
        Path("it.toml").write_bytes(given if isinstance(given, bytes) else given.encode())
        given = "it.toml"
    with pytest.raises(InputError) as caught:
        Description.read(given, "data_file")
    return str(caught.value)


# ---- what is read ----


def test_a_file_is_read_with_its_lines() -> None:
    read = Description.read("model.toml", "model_file")

    assert read.source == "model.toml"
    assert read.tree["module"]["trunk"]["layers"][1] == {"use": "ReLU"}
    assert read.at("module", "trunk", "layers", 1) == "model.toml:5"


def test_a_key_that_is_not_there_is_at_the_table_around_it() -> None:
    read = Description.read("model.toml", "model_file")

    assert read.at("objective", "class", "weight") == "model.toml:7"
    assert read.at("dataset") == "model.toml"


def test_a_dict_is_copied() -> None:
    image = [1, 8, 8]
    given = {"inputs": {"image": image}, "since": datetime.date(2026, 1, 1), "shape": (3, 4)}
    read = Description.read(given, "data")
    image.append(5)

    assert read.source == "the dict"
    assert read.tree == {"inputs": {"image": [1, 8, 8]}, "since": datetime.date(2026, 1, 1), "shape": [3, 4]}
    assert read.at("inputs", "image", 0) == "the dict: inputs.image[0]"


def test_a_file_of_a_windows_editor_is_read() -> None:
    Path("it.toml").write_bytes(b"\xef\xbb\xbf" + DATA.replace("\n", "\r\n").encode())
    read = Description.read("it.toml", "data_file")

    assert (read.tree, read.at("dataset", "digits", "split")) == (
        Description.read("data.toml", "data_file").tree,
        "it.toml:4",
    )


# ---- files that cannot be read ----


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("data.tml", ["does not exist", "did you mean 'data.toml'? known: data.toml, model.toml"]),
        ("configs/data.toml", ["is in a folder that does not exist"]),
        (".", ["is a folder", "give the path of a TOML file"]),
        ("/dev/zero", ["is not a file", "give the path of a TOML file"]),
    ],
)
def test_a_path_without_a_file_is_named(path: str, rows: list[str]) -> None:
    head, first, *more = message_of(Path(path)).splitlines()

    assert (head, first) == (f"{path} has a mistake", f"  {path}  {rows[0]}")
    assert [line.strip() for line in more] == rows[1:]


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "a" * 5000, ""])
def test_a_path_that_the_system_refuses_is_an_input_error(path: str) -> None:
    told = refusal(lambda: Description.read(path, "data_file"))

    assert "\0" not in told
    assert len(told) < 1000
    told.encode()


@pytest.mark.parametrize(
    ("given", "is_"), [(3, "3"), (None, "None"), (["data.toml"], "['data.toml']"), (b"data.toml", "bytes")]
)
def test_an_argument_must_be_a_path_or_a_dict(given: object, is_: str) -> None:
    assert refusal(lambda: Description.read(given, "data_file")) == (
        f"""\
data_file has a mistake
  data_file  must be the path of a file or a dict, but is {is_}"""
    )


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "a = 1\nlr 0.1\n",
            "  it.toml:2  is not TOML: expected '=' after a key in a key/value pair\n             the line is 'lr 0.1'",
        ),
        ("[a]\nb = True", "  it.toml:2  is not TOML: invalid value\n             the line is 'b = True'"),
        ("a = 1\na.b = 1", "  it.toml:2  is not TOML: cannot overwrite a value\n             the line is 'a.b = 1'"),
        (
            "[x]\nlr = 1\nmomentum = 2\nlr = 3",
            "  it.toml:4  is not TOML: cannot overwrite a value\n             the line is 'lr = 3'",
        ),
        ("\x1b[31m = 1", "  it.toml:1  is not TOML: invalid statement\n             the line is '\\x1b[31m = 1'"),
        ("a = 1\nb = " + "[" * 100_000, "  it.toml  is nested too deep"),
        (b"a = 1\nb = '\xff'", "  it.toml:2  is not UTF-8 text\n             save it in the encoding UTF-8"),
        ("a = 1".encode("utf-16"), "  it.toml:1  is not UTF-8 text\n             save it in the encoding UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_where(text: str | bytes, rows: str) -> None:
    assert message_of(text) == f"it.toml has a mistake\n{rows}"


def test_a_bracket_that_is_not_closed_is_named_by_its_line() -> None:
    assert (
        message_of(MODEL.replace('    { use = "ReLU" },\n]\n', '    { use = "ReLU" },\n'))
        == """\
it.toml has a mistake
  it.toml:6  is not TOML: invalid value
             the line is '[objective.class]'; the bracket of line 3 is not closed there"""
    )
    assert message_of("a = [{ b = 1 }]\nc = [1,\n").splitlines()[1:] == [
        "  it.toml:2  is not TOML: invalid value",
        "             the line is 'c = [1,'; the bracket of line 2 is not closed there",
    ]


# ---- dicts that cannot be used ----


def test_all_values_of_a_dict_that_a_file_cannot_have_are_named() -> None:
    assert (
        message_of({"a": Path("x"), "b": [None, {3: 1}], "c": {"d e": ...}})
        == """\
the dict has 4 mistakes
  the dict  a is an object of the class pathlib.PosixPath
            a description has texts, numbers, true, false, dates, lists and dicts
  the dict  b[0] is None
            leave the key out
  the dict  b[1] has the key 3, which is not a text
  the dict  c.'d e' is an object of the class builtins.ellipsis
            a description has texts, numbers, true, false, dates, lists and dicts"""
    )


# ---- lines ----

KEYS = '''\
# a model
[inputs]
image = [1, 8, 8]

[module.trunk]
from = "image"   # = [ "
layers = [
  { use = "Conv2d", out_channels = 32 }, { use = "ReLU" },
  # the last
  { use = "Flatten" },
]
[module."the digit"]
use.word = """
[no.header]
key = 1"""
after = \'\'\'it's # text\'\'\'\'
[[phase]]
epochs = 3
[phase.options]
at = 1979-05-27 07:32:00
[[phase]]
[[phase.step]]
size = 1e-3
[module]
'''
"""Each way to write a key."""

LINES: dict[KeyPath, int] = {
    ("inputs",): 2,
    ("inputs", "image"): 3,
    ("inputs", "image", 2): 3,
    ("module",): 5,
    ("module", "trunk"): 5,
    ("module", "trunk", "layers"): 7,
    ("module", "trunk", "layers", 0, "out_channels"): 8,
    ("module", "trunk", "layers", 1): 8,
    ("module", "trunk", "layers", 2): 10,
    ("module", "the digit", "use"): 13,
    ("module", "the digit", "use", "word"): 13,
    ("module", "the digit", "after"): 16,
    ("phase",): 17,
    ("phase", 0, "epochs"): 18,
    ("phase", 0, "options", "at"): 20,
    ("phase", 1): 21,
    ("phase", 1, "step", 0, "size"): 23,
}


def test_each_key_is_at_its_line() -> None:
    found = lines_of(KEYS)

    assert {path: found[path] for path in LINES} == LINES


def test_each_value_of_a_tree_has_a_line() -> None:
    assert set(lines_of(KEYS)) == set(paths_of(tomllib.loads(KEYS)))


def test_a_file_may_end_in_a_comment_or_a_value_without_a_new_line() -> None:
    assert lines_of("a = 1\n# the end") == {("a",): 1}
    assert lines_of("a = 1\nb = 2") == {("a",): 1, ("b",): 2}


# ---- mistakes ----


def test_the_mistakes_of_two_files_are_raised_together_by_file_and_line() -> None:
    data, model = Description.read("data.toml", "data_file"), Description.read("model.toml", "model_file")
    mistakes = FileMistakes()
    mistakes.add(model, ("objective", "class", "at"), "is not a module", nearest_of=["trunck", "digit"], name="trunk")
    mistakes.add(model, ("module", "trunk", "layers", 0, "kernel_size"), "must be odd", cure="add 1")
    mistakes.add(data, ("dataset", "digits", "split"), "has a sum of 1.1")

    assert refusal(lambda: mistakes.raise_all()) == (
        """\
data.toml and model.toml have 3 mistakes
  data.toml:4   dataset.digits.split has a sum of 1.1
  model.toml:4  module.trunk.layers[0].kernel_size must be odd
                add 1
  model.toml:9  objective.class.at is not a module
                did you mean 'trunck'? known: trunck, digit"""
    )


def test_names_are_offered_up_to_a_number() -> None:
    read = Description.read({"columm": 1}, "data")
    mistakes = FileMistakes()
    mistakes.add(read, ("columm",), "is not a key", nearest_of=[f"column{number}" for number in range(15)])
    mistakes.add(read, ("columm",), "is not a key", nearest_of=[])

    with pytest.raises(InputError) as caught:
        mistakes.raise_all()

    known = ", ".join(f"column{number}" for number in range(12))
    assert str(caught.value).splitlines()[2::2] == [
        f"            did you mean 'column9'? known: {known}, ... (3 more)",
        "            there is nothing to choose from",
    ]


def test_what_a_terminal_obeys_is_escaped_and_long_texts_are_cut() -> None:
    Path("it\x1b.toml").write_text(f'"\\u001b[2J" = 1\n"{"k" * 500}" = 1\n')
    read = Description.read("it\x1b.toml", "data_file")
    mistakes = FileMistakes()
    for key in read.tree:
        mistakes.add(read, (key,), "is \x1b[31m not a key\r", nearest_of=["\x1b]0;"], cure="\x07" + "x" * 500)

    with pytest.raises(InputError) as caught:
        mistakes.raise_all()

    lines = str(caught.value).splitlines()
    assert lines[0] == r"it\x1b.toml has 2 mistakes"
    assert lines[1] == r"  it\x1b.toml:1  '\x1b[2J' is \x1b[31m not a key"
    assert lines[2].strip() == r"known: \x1b]0;"
    assert lines[3].strip() == r"\x07" + "x" * 296 + "..."
    assert lines[4] == rf"  it\x1b.toml:2  {'k' * 297}..."


def test_a_path_is_written_as_in_toml() -> None:
    assert dotted(("dataset", "a b", "features", 0, "by")) == "dataset.'a b'.features[0].by"


# ---- damaged files ----

PIECES = [
    "[",
    "]",
    "{",
    "}",
    "=",
    ".",
    ",",
    '"',
    "'",
    '"""',
    "'''",
    "#",
    "\n",
    "\\",
    "\0",
    "\x1b",
    "é",
    "[[",
    "]]",
    "1e",
    "-",
    "\r",
]


def mutated(text: str, draw: random.Random) -> bytes:
    """Return a text after one to four changes."""
    content = text.encode()
    for _ in range(draw.randint(1, 4)):
        start, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
        end = min(end, start + draw.choice([0, 1, 5, 40]))
        piece = draw.choice([b"", draw.choice(PIECES).encode(), draw.randbytes(2), content[start:end] * 2])
        content = content[:start] + piece + content[end:]
    return content


@pytest.mark.slow
def test_a_damaged_file_is_read_with_all_its_lines_or_refused() -> None:
    draw = random.Random(0)
    refusals = []
    for _ in range(share_of(1500)):
        Path("it.toml").write_bytes(mutated(draw.choice([DATA, MODEL, DATA + MODEL]), draw))
        try:
            read = Description.read("it.toml", "data_file")
        except InputError as error:
            refusals.append(str(error))
        else:
            assert set(lines_of(read.text)) == set(paths_of(read.tree))

    assert "".join(refusals).replace("\n", "").isprintable()
    assert share_of(150) < len(refusals) < share_of(1350)
