"""The table of a loop: what a method of it does, and the map that is drawn from it."""

from __future__ import annotations

from train_manager.checker.outline import Calls, Defines, Opens, Touches, Where, Yields
from train_manager.checker.table import THE_LOOP, Again, Block, If, Inside, Line, MethodCall, Reads, Table, TableStage

EVAL = TableStage("eval", body=(Line("result = mean", ("result",), "eval"),))
STEP = TableStage(
    "step",
    ("batch",),
    (Line("loss = compute(...)", ("loss",), "step", method="compute"), MethodCall("work", "work(...), by default:")),
    lazy=("index",),
    reads=("batch",),
    changes=("loss",),
)
TABLE = Table(
    {
        "train": (Block("for each batch:", (Again("if it is asked for", EVAL), STEP)), EVAL),
        "again": (If("step", (Line("more"),)), If("step", (Line("less"),), is_open=False)),
        "work": (If("step", (Line("done"),)), If("eval", (Line("never"),))),
        "run": (Inside("what is called in it"),),
        "compute": (Reads(("weight",)),),
    }
)


def names(*given: str) -> frozenset[str]:
    return frozenset(given)


def test_the_outline_of_a_stage_has_what_it_touches_defines_and_calls() -> None:
    *_, (opened, _) = [TABLE.outlines["train"][1:]]
    assert opened == Opens(
        "step",
        names("batch"),
        THE_LOOP,
        (
            Touches(names("batch"), modifies=False),
            Touches(names("loss"), modifies=True),
            Calls("compute", by_name=True),
            Defines(names("loss"), "step", "compute()"),
            Calls("work"),
        ),
    )


def test_a_stage_that_the_map_shows_elsewhere_opens_all_the_same() -> None:
    first, *_, last = TABLE.outlines["train"]
    assert first == last == Opens("eval", names(), THE_LOOP, (Defines(names("result"), "eval", THE_LOOP),))


def test_conditions_yields_and_reads_have_items_of_their_own() -> None:
    assert TABLE.outlines["again"] == (Where("step", True, ()), Where("step", False, ()))
    assert TABLE.outlines["run"] == (Yields(),)
    assert TABLE.outlines["compute"] == (Touches(names("weight"), modifies=False),)


def test_methods_that_do_the_same_have_one_outline() -> None:
    body = (EVAL,)
    outlines = Table({"one": body, "other": body}).outlines
    assert outlines["one"] is outlines["other"]


def test_the_map_has_a_line_for_each_stage_and_step_with_their_fixtures() -> None:
    assert TABLE.draw((*TABLE.methods["train"], *TABLE.methods["run"])) == (
        "for each batch:\n"
        "    if it is asked for: eval, as below\n"
        '    with staged("step"):                         # batch; lazy: index\n'
        "        loss = compute(...)                      # of step\n"
        "        work(...), by default:\n"
        "            done\n"
        'with staged("eval"):\n'
        "    result = mean                                # of eval\n"
        "what is called in it"
    )


def test_a_list_of_fixtures_that_is_too_long_continues_below_itself() -> None:
    many = tuple(f"fixture_number_{number}" for number in range(5))
    first, second = TABLE.draw((TableStage("step", many),)).splitlines()
    assert first.endswith("fixture_number_2,")
    assert second == f"{' ' * 49}# fixture_number_3, fixture_number_4"
