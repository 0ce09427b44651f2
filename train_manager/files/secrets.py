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
KINDS: Final = {
    "a token of Hugging Face": r"\bhf_[A-Za-z0-9]{20,}",
    "a key of OpenAI, Anthropic or Stripe": r"\bsk-[A-Za-z0-9_-]{16,}|\b[sr]k_live_[A-Za-z0-9]{16,}",
    "a token of GitHub": r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}",
    "a token of GitLab": r"\bglpat-[\w-]{16,}",
    "a token of Slack": r"\bxox[abeprs]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}|hooks\.slack\.com/services/[\w/]{20,}",
    "a key of AWS": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a key of Google": r"\bAIza[\w-]{35}|\bGOCSPX-[\w-]{20,}",
    "a token of PyPI": r"\bpypi-[\w-]{40,}",
    "a token of npm": r"\bnpm_[A-Za-z0-9]{36}\b",
    "a key of SendGrid": r"\bSG\.[\w-]{20,}\.[\w-]{20,}",
    "a token of Databricks": r"\bdapi[0-9a-f]{32}\b",
    "a token of Replicate": r"\br8_[A-Za-z0-9]{30,}",
    "a key of NVIDIA": r"\bnvapi-[\w-]{30,}",
    "a key of Groq": r"\bgsk_[A-Za-z0-9]{30,}",
    "a key of Weights & Biases": r"\bwandb_v\d_[\w-]{30,}",
    "a JSON web token": r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----",
}
"""What a token is, in words, and its form."""

_VALUES: Final = re.compile("|".join([*KINDS.values(), r"://[^/\s:@]*:[^/\s@]+@"]))  # https://user:password@host


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
