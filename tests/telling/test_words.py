"""Names that are meant: those like a name, and those for which a table has it as a word."""

from __future__ import annotations

from train_manager.telling.words import NO_WORDS, Words, by_word

WORDS = Words(by_word({"targets": "label y"}), by_word({"train_step_batch": "step"}))


def test_a_name_of_ones_own_that_is_a_letter_away_comes_before_the_table() -> None:
    assert WORDS.fixtures_meant("label", {"labels", "targets"}) == ["labels", "targets"]
    assert WORDS.stages_meant("step", ["steps", "train_step_batch"]) == ["steps", "train_step_batch"]


def test_a_class_without_such_fixtures_and_stages_never_hears_of_them() -> None:
    assert WORDS.fixtures_meant("label", {"loss"}) == []
    assert WORDS.stages_meant("step", ["work"]) == []


def test_a_class_without_words_is_offered_names_like_the_one_that_was_written() -> None:
    assert NO_WORDS.fixtures_meant("labls", {"labels", "y"}) == ["labels"]
    assert NO_WORDS.fixtures_meant("label_of_image", {"targets"}) == []
