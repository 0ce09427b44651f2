"""Optional packages: what they print is kept from the user, and missing ones are named."""

from __future__ import annotations

import logging
import sys
import warnings

import pytest

from train_manager.tools.export import quiet


def test_prints_warnings_and_logs_are_kept_from_the_user(capfd: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stderr)  # made before, so it holds the stderr of then
    logger = logging.getLogger("talkative")
    logger.addHandler(handler)
    try:
        with quiet():
            print("printed")
            print("to stderr", file=sys.stderr)
            warnings.warn("a warning", stacklevel=1)
            logger.critical("logged")
        assert capfd.readouterr() == ("", "")

        logger.critical("logged")
        assert capfd.readouterr() == ("", "logged\n")
    finally:
        logger.removeHandler(handler)


def test_an_error_is_raised_and_the_user_is_told_again() -> None:
    with pytest.raises(ValueError, match="wrong"), quiet():
        raise ValueError("wrong")

    assert logging.root.manager.disable == logging.NOTSET
    with pytest.warns(UserWarning, match="again"):
        warnings.warn("again", stacklevel=1)


def test_logging_that_the_user_has_disabled_stays_so() -> None:
    logging.disable(logging.INFO)
    try:
        with quiet():
            pass
        assert logging.root.manager.disable == logging.INFO
    finally:
        logging.disable(logging.NOTSET)
