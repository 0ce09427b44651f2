from __future__ import annotations

import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.rotation import share_of
from train_manager.learner.places import DEEPEST, Place, UnreadableText, places
from train_manager.learner.reading import places_of

FOLDERS = [  # the first is missing in some distributions of Python
    Path(sysconfig.get_path("stdlib")) / "test" / "test_tomllib" / "data" / "valid",
    Path(sysconfig.get_path("purelib")),
]

MODEL = '''\
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
'''
"""Each way to write a key."""

LINES: dict[Place, int] = {
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
    found = places(MODEL)

    assert {place: found[place] for place in LINES} == LINES


def test_the_places_are_those_of_the_tree() -> None:
    assert set(places(MODEL)) == set(places_of(tomllib.loads(MODEL)))


def test_lines_that_end_as_in_windows_count_once() -> None:
    assert places(MODEL.replace("\n", "\r\n")) == places(MODEL)


def test_a_file_may_end_in_a_comment_or_a_value_without_a_new_line() -> None:
    assert places("a = 1\n# the end") == {("a",): 1}
    assert places("a = 1\nb = 2") == {("a",): 1, ("b",): 2}


def test_a_table_that_several_headers_mention_is_at_the_first() -> None:
    assert places("[a.b]\n[a.c]\n[a]\nd = 1")[("a",)] == 1


def test_an_escape_in_a_key_is_read() -> None:
    assert places('"a\\tb"."".c = 1') == {("a\tb",): 1, ("a\tb", ""): 1, ("a\tb", "", "c"): 1}


@pytest.mark.parametrize(
    ("text", "place", "first", "line"),
    [
        ("a = 1\n\na = 2", ("a",), 1, 3),
        ("x = {\na = 1, a = 2}", ("x", "a"), 2, 2),
        ("[a]\n[b]\n[a]", ("a",), 1, 3),
        ("[[x]]\ny.z = 1\n[[x]]\ny.z = 1\ny.'z' = 2\n", ("x", 1, "y", "z"), 4, 5),
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str, place: Place, first: int, line: int) -> None:
    with pytest.raises(UnreadableText, match=f"^is there twice, first in line {first}$") as caught:
        places(text)

    assert (caught.value.place, caught.value.line) == (place, line)


@pytest.mark.parametrize(
    "text",
    ["\na = " + "[" * 100_000, "\na" + ".a" * 400_000 + " = 1", "\na = " + "{a = " * 100_000, "\n[a" + ".a" * 400_000],
    ids=["lists", "key", "tables", "header"],
)
def test_what_is_nested_too_deep_is_refused_where_it_is(text: str) -> None:
    with pytest.raises(UnreadableText, match=r"^is nested deeper than 20 levels$") as caught:
        places(text)

    assert (len(caught.value.place), caught.value.line) == (DEEPEST + 1, 2)


@pytest.mark.parametrize(
    "text", ["a", "a =", "= 1", "a = [", "a = {", "[a", "a = '", 'a = """', "\0a = [", '"\\q" = 1', "a.", "]"]
)
def test_a_text_that_is_not_toml_ends_the_scan(text: str) -> None:
    try:
        places(text)
    except UnreadableText:
        return
    with pytest.raises(tomllib.TOMLDecodeError):  # for which it is left
        tomllib.loads(text)


def test_the_places_of_files_of_others_are_those_of_their_trees() -> None:
    compared = 0
    for path in (path for folder in FOLDERS for path in sorted(folder.rglob("*.toml"))):
        text = path.read_text(encoding="utf-8")
        assert set(places(text)) == set(places_of(tomllib.loads(text))), path
        compared += 1
    assert compared


# ---- texts in all ways to write a tree ----

BLANKS = st.sampled_from(["", " ", "\t"])
GAPS = st.sampled_from(["", " ", "\n", ' # a ] comment, } = "\n', "\n\n"])  # within a list
ENDS = st.sampled_from(["\n", " # [x] y = '\n", "\n\n", "\r\n"])
TEXTS = st.text(st.sampled_from("ab .\"'[]{}=#,\\\n\té"), max_size=8)
NAMES = st.one_of(st.sampled_from(["a", "b-", "_c", "1"]), st.text(st.sampled_from("a.\"'[]=#é\\ \t"), max_size=4))
SCALARS = st.sampled_from(
    ["7LINE", "7LINE", "7LINE", "-0.5", "1e-3", "nan", "true", "0xff", "1979-05-27 07:32:00", "07:32:00", "1_000"]
)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


@st.composite
def keys(draw: st.DrawFn, name: str) -> str:
    ways = [f'"{escaped(name)}"']
    if name and name.isascii() and name.replace("_", "").replace("-", "").isalnum():
        ways.append(name)
    if "'" not in name:
        ways.append(f"'{name}'")
    return draw(st.sampled_from(ways))


@st.composite
def strings(draw: st.DrawFn) -> str:
    text = draw(TEXTS)
    ways = [
        f'"{escaped(text)}"',
        f'"""{escaped(text)}"""',
        '"""' + text.replace("\\", "\\\\").replace('"""', '""\\"') + '"""',
    ]
    if "'" not in text:
        ways += [f"'''{text}'''", f"'''{text}''''", *([f"'{text}'"] if "\n" not in text else [])]
    return draw(st.sampled_from(ways))


def values() -> st.SearchStrategy[str]:
    return st.recursive(
        st.one_of(SCALARS, strings()), lambda inner: st.one_of(lists(inner), inline_tables(inner)), max_leaves=6
    )


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(inner, max_size=3))
    written = [draw(GAPS) + item + draw(GAPS) for item in items]
    return f"[{','.join(written)}{draw(st.sampled_from(['', ','])) if items else ''}{draw(GAPS)}]"


@st.composite
def inline_tables(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    names = draw(st.lists(NAMES, unique=True, max_size=3))
    pairs = [f"{draw(BLANKS)}{draw(dotted(name))}{draw(BLANKS)}={draw(BLANKS)}{draw(inner)}" for name in names]
    return f"{{{','.join(pairs)}{draw(BLANKS)}}}"


@st.composite
def dotted(draw: st.DrawFn, name: str) -> str:
    more = draw(st.lists(NAMES, max_size=2))
    return f"{draw(BLANKS)}.{draw(BLANKS)}".join(draw(keys(part)) for part in (name, *more))


@st.composite
def bodies(draw: st.DrawFn) -> str:
    names = draw(st.lists(NAMES, unique=True, max_size=3))
    return "".join(f"{draw(dotted(name))}{draw(BLANKS)}= {draw(values())}{draw(ENDS)}" for name in names)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Tables ``t0``, ``t1``, ... with tables and arrays of tables in them, whose names begin with other letters."""
    text = draw(bodies())
    for number in range(draw(st.integers(0, 3))):
        brackets = draw(st.sampled_from(["[]", "[[]]"]))
        for _ in range(1 if brackets == "[]" else draw(st.integers(1, 3))):
            opening, closing = brackets[: len(brackets) // 2], brackets[len(brackets) // 2 :]
            text += f"{opening}{draw(BLANKS)}'t{number}'{draw(BLANKS)}{closing}{draw(ENDS)}{draw(bodies())}"
            for below in draw(st.lists(st.sampled_from(["u", "v.w", "v.'x y'"]), unique=True)):
                text += f"[t{number}.{below}]{draw(ENDS)}{draw(bodies())}"
            text += f"[[ t{number} . rows ]]{draw(ENDS)}{draw(bodies())}" * draw(st.integers(0, 1))
    return text


@settings(max_examples=share_of(90), deadline=None, derandomize=True, database=None)
@given(documents())
def test_the_places_of_any_text_are_those_of_its_tree(template: str) -> None:
    text = template.replace("7LINE", "7")

    assert set(places(text)) == set(places_of(tomllib.loads(text)))


@settings(max_examples=share_of(90), deadline=None, derandomize=True, database=None)
@given(documents())
def test_the_lines_of_any_text_are_those_of_its_values(template: str) -> None:
    numbered = enumerate(template.split("\n"), start=1)
    text = "\n".join(line.replace("7LINE", f"7{number:06}") for number, line in numbered)  # values that say their lines
    tree = tomllib.loads(text)
    values = {place: value_at(tree, place) for place in places_of(tree)}
    lines = {place: value - 7_000_000 for place, value in values.items() if value > 7_000_000}

    assert lines == {place: line for place, line in places(text).items() if place in lines}


def value_at(tree: Any, place: Place) -> int:
    """Return a whole number of a tree, and 0 for other values."""
    for step in place:
        tree = tree[step]
    return tree if type(tree) is int else 0
