"""Lines of text in a terminal or in a file."""

from __future__ import annotations

import io

from train_manager.reporting.lines import write_line


def test_a_file_without_a_letter_gets_a_question_mark_for_it() -> None:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding="ascii")

    write_line("größe … 1", file)

    assert written.getvalue() == b"gr??e ? 1\n"
