"""The map that is drawn from the table of a loop."""

from __future__ import annotations

from train_manager.checker.table import Again, Block, If, Inside, Line, MethodCall, Table, TableStage

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
        "work": (If("step", (Line("done"),)), If("eval", (Line("never"),))),
        "run": (Inside("what is called in it"),),
    }
)


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
