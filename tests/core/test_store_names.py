from __future__ import annotations

from train_manager import Extensible, Extension, fixture
from train_manager.core.store import FAILURE, Store


def test_what_is_always_there_is_no_fixture_of_a_stage() -> None:
    state = Store({"extensible": "it"})
    assert state.names() == []
    assert state.always_there == {"extensible", "fixtures", "stage", *FAILURE}


def test_no_path_while_no_stage_is_open() -> None:
    assert Store({}).path == ()


class OnDemand(Extension):
    @fixture("outer")
    def lazy(self) -> int:
        return 1


def test_the_owner_of_a_name_is_the_scope_that_defined_it_or_will_compute_it() -> None:
    extensible = Extensible([OnDemand()])
    state = extensible._store
    with extensible.staged("outer", {"x": 1}) as outer, extensible.staged("inner", {"y": 1}) as inner:
        owners = [state.owner_of(name) for name in ("x", "lazy", "y", "nobody")]
        assert owners == [outer, outer, inner, None]


def test_a_recursion_hides_the_fixtures_of_its_outer_stage_lazy_ones_too() -> None:
    extensible = Extensible([OnDemand()])
    state = extensible._store
    with extensible.staged("outer", {"x": 1}) as outer:
        assert state.find_hidden("x") is None
        with extensible.staged("middle") as middle, extensible.staged("outer"):
            assert [state.find_hidden(name) is not None for name in ("x", "lazy", "y")] == [True, True, False]
            assert state.find_hidden("x", owner=outer) is not None
            assert state.find_hidden("x", owner=middle) is not None
        assert state.find_hidden("x") is None
