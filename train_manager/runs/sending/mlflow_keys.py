"""What metrics are called in MLflow, which does not allow all names."""

from __future__ import annotations

import hashlib
import posixpath
import re


def key_of(tag: str) -> str:
    """Return a tag as MLflow allows it; one that is changed gets an end that tells it from others.

    >>> key_of("eval/valid/accuracy"), key_of("eval/größe<1/loss"), key_of("eval//loss")
    ('eval/valid/accuracy', 'eval/größe_1/loss-4637c1', 'eval/loss-66261e')
    """
    # MLflow allows keys of 250 characters; 240 leave room for the dash and six digits.
    allowed = posixpath.normpath(re.sub(r"[^/\w.\- :]", "_", tag)).lstrip("/.")[:240] or "_"
    return allowed if allowed == tag else f"{allowed}-{hashlib.sha256(tag.encode()).hexdigest()[:6]}"
