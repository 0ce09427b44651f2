"""The example that trains the networks of the MNIST-1D paper; here for a few epochs only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mnist1d")
pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("mnist1d_table")


@pytest.fixture(scope="module")
def data(example: Any) -> Any:
    return example.curves_and_digits()


@pytest.mark.slow
def test_the_data_are_those_of_the_paper(data: Any) -> None:
    """The file ``mnist1d_data.pkl`` of the paper was compared as a whole; these are a few of its numbers."""
    (train, train_digits), (test, test_digits) = data

    assert (train.shape, test.shape) == ((4000, 40), (1000, 40))
    assert train_digits[:10].tolist() == [2, 6, 4, 5, 6, 6, 6, 0, 3, 1]
    assert test_digits[:10].tolist() == [2, 6, 3, 9, 4, 3, 1, 9, 5, 2]
    assert train[0, :3].tolist() == pytest.approx([-0.33200567, -0.47191037, -0.77869708])
    assert test[-1, -3:].tolist() == pytest.approx([0.65987565, 0.87773435, 1.19315184])


@pytest.mark.slow
@pytest.mark.whole
def test_the_logistic_regression_soon_reads_three_times_as_well_as_chance(example: Any, data: Any) -> None:
    tm = example.manager("logistic", *data, 5, example.Accuracy())
    tm.train()

    assert tm.eval()["test"]["accuracy"] > 28


def test_the_networks_are_as_large_as_those_of_the_paper(example: Any) -> None:
    sizes = {name: sum(p.numel() for p in entry.make().parameters()) for name, entry in example.TABLE.items()}

    assert sizes == {"logistic": 410, "MLP": 15210, "CNN": 5210, "GRU": 5134}


@pytest.mark.slow
def test_the_table_has_a_row_for_each_named_network(
    example: Any, data: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "curves_and_digits", lambda: data)
    example.main(["CNN", "logistic"], epochs=1)

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["parameters", "CNN", "logistic"]


def test_an_unknown_name_is_an_error_with_the_known_names(example: Any) -> None:
    with pytest.raises(SystemExit, match="no network is called cnn; the networks are logistic, MLP, CNN, GRU"):
        example.main(["cnn"])


def test_without_the_package_the_extra_is_named(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mnist1d.data", None)
    with pytest.raises(SystemExit, match=r'mnist1d.*pip install "train-manager\[mnist1d\]"'):
        example.curves_and_digits()
