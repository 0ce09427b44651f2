from __future__ import annotations

import pytest

from train_manager.reporting.terminal import cut, cut_alike, cut_middle, pad, printable, width_of


@pytest.mark.parametrize("text", ["short", "x" * 500, "損失" * 50, "é" * 30, "a損" * 20])
@pytest.mark.parametrize("most", [12, 13, 20, 60])
def test_texts_are_cut_to_the_cells_that_there_are(text: str, most: int) -> None:
    for cutter in (cut, cut_middle):
        assert width_of(cutter(text, most)) <= most
        assert cutter(text, most) == text or width_of(text) > most


def test_the_number_of_characters_that_are_left_out_is_right() -> None:
    kept, _, more = cut("x" * 500, 20).partition("… +")

    assert len(kept) + int(more) == 500


def test_texts_that_differ_differ_after_they_are_cut() -> None:
    long = "/a/very/long/path/to/the/data/"

    cells = cut_alike([f"{long}first", f"{long}second", "short", f"{long}first"], 16)

    assert cells == ["…ata/first", "…ata/second", "short", "…ata/first"]


def test_nothing_that_a_terminal_obeys_is_printed() -> None:
    assert printable("\x1b[2J\u202eabc\r\n\ud800") == "\\x1b[2J\\u202eabc\\r\\n\\ud800"


def test_wide_letters_are_padded_by_their_cells() -> None:
    assert pad("損", 4) == "損  "
    assert pad("損", 4, left=False) == "  損"
