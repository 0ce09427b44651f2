"""What looks like a password or a key, and is therefore not written down.

Names are read word by word, so that ``hf_token`` is a secret, and ``tokenizer`` and ``num_tokens`` are not. Numbers are
no secrets; nor are the words in brackets that tokenizers use (``pad_token="<pad>"``).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

_WORDS: Final = frozenset({"password", "passwd", "passphrase", "secret", "credential", "credentials", "apikey"})
_PAIRS: Final = frozenset({"api key", "access key", "private key", "auth key", "secret key"})
_VALUES: Final = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|\bsk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"  # GitHub, GitLab
    r"|\bxox[abprs]-[\w-]{10,}"  # Slack
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{35}"  # Amazon, Google
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+"  # a JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|://[^/\s:@]*:[^/\s@]+@"  # https://user:password@host
)


def looks_secret(name: str, value: Any) -> bool:
    """Return whether a value must not be written, by its name or by its form.

    >>> looks_secret("hf_token", "abc"), looks_secret("num_tokens", 100), looks_secret("pad_token", "<pad>")
    (True, False, False)
    >>> looks_secret("remote", "https://me:hunter2@example.com/data.git")
    True
    """
    if value is None or isinstance(value, bool | int | float):
        return False
    return _is_secret_name(name, value) or (isinstance(value, str) and _VALUES.search(value) is not None)


def _is_secret_name(name: str, value: Any) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+|_+", " ", name).lower().split()
    pairs = {" ".join(pair) for pair in pairwise(words)}
    if _WORDS & {*words} or _PAIRS & pairs:
        return True
    return words[-1:] == ["token"] and not (isinstance(value, str) and re.fullmatch(r"[<\[].*[>\]]", value))
