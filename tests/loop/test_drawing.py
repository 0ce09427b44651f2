"""Pictures of extensions are saved as files, for programs that are not notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import InputError
from train_manager.extensions import ActivationStatistics, ConfusionMatrix, GradientNorms, HardExamples
from train_manager.testing import tiny_manager


def test_a_picture_is_saved_as_an_svg_file(tmp_path: Path) -> None:
    matrix = ConfusionMatrix(["below", "above"])
    tiny_manager(matrix).train()

    matrix.save(tmp_path / "new" / "matrix.svg")

    text = (tmp_path / "new" / "matrix.svg").read_text(encoding="utf-8")
    assert "<svg " in text
    assert ">below</text>" in text


def test_a_page_has_all_pictures(tmp_path: Path) -> None:
    statistics = ActivationStatistics(every=1)
    tiny_manager(statistics).train()

    statistics.save(str(tmp_path / "statistics.html"))

    text = (tmp_path / "statistics.html").read_text(encoding="utf-8")
    assert text == f'<!doctype html><meta charset="utf-8">\n{statistics._repr_html_()}\n'
    assert text.count("<img ") == 2


def test_a_table_is_saved_as_a_page(tmp_path: Path) -> None:
    HardExamples().save(tmp_path / "hard.html")

    assert "<table" in (tmp_path / "hard.html").read_text(encoding="utf-8")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        GradientNorms().save(tmp_path / "norms.png")

    what = f"GradientNorms cannot write {tmp_path / 'norms.png'}"
    assert str(caught.value) == f"{what}\n  give {str(tmp_path / 'norms.html')!r}"
    assert [*tmp_path.iterdir()] == []


def test_several_pictures_do_not_fit_one_svg_file(tmp_path: Path) -> None:
    statistics = ActivationStatistics(every=1)
    tiny_manager(statistics).train()

    with pytest.raises(InputError, match=r"^ActivationStatistics cannot write .*statistics.svg\n  give '.*html'$"):
        statistics.save(tmp_path / "statistics.svg")


def test_before_the_first_look_the_picture_says_how_often_the_extension_looks(tmp_path: Path) -> None:
    ActivationStatistics(every=7).save(tmp_path / "statistics.svg")

    assert ">no batch was looked at so far: one in 7 is</text>" in (tmp_path / "statistics.svg").read_text()
