"""Which names are those of passwords, keys and tokens.

They are read word by word, so that ``hf_token`` is one, and ``tokenizer`` and ``num_tokens`` are not.
"""

from __future__ import annotations

import re
from typing import Final

PASSWORD: Final = "a password"
KEY: Final = "a key or a token"


def set_of(words: str) -> frozenset[str]:
    """Return words as a set."""
    return frozenset(words.split())


WORDS: Final = frozenset({"password", "passwd", "passphrase", "passcode", "pwd", "apikey", "credential", "credentials"})
PASSWORDS: Final = (WORDS - {"apikey"}) | {"secret", "pw", "passwort"}
CHOSEN: Final = frozenset({"password", "passwd", "passphrase", "pwd"})  # which may be words alone
_KEYS: Final = set_of(
    """api access private secret auth account signing encryption license master session shared client server storage
    wandb openai anthropic hf huggingface comet neptune stripe aws azure google github gitlab openrouter gemini mistral
    cohere pinecone groq replicate together deepl mapbox twilio sendgrid mailgun datadog sentry ssh fernet"""
)
_WORDS_OF_MODELS: Final = set_of(  # `pad_token` is not a secret
    """pad eos bos unk sep cls mask image audio video special stop start end begin next last first prompt per max min
    num n each text vision class think every new line separator blank null"""
)
_NO_PASS: Final = set_of(
    "forward backward first second third last next single multi two one num n by all full low high band test max min "
    "opt compiler render a the this per each every"
)


def names_a_secret(name: str) -> bool:
    """Return whether the value of this name is a password, a key or a token.

    >>> [name for name in ("hf_token", "wandb.apiKey", "tokenizer", "pad_token", "token_file") if names_a_secret(name)]
    ['hf_token', 'wandb.apiKey']
    >>> [name for name in ("DB_PASS", "--pass", "forward_pass", "pass") if names_a_secret(name)]
    ['DB_PASS', '--pass']
    """
    return kind_of_name(name) is not None


def words_of(name: str) -> list[str]:
    """Return the words of a name in small letters, without numbers at its end."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", " ", name).lower().split()
    while words and words[-1].isdigit():
        words.pop()
    return words or [""]


def kind_of_name(name: str) -> str | None:
    """Return what the value of a name is: a password, or a key or a token; None of other names."""
    words = words_of(name)
    last, before = words[-1], (words[-2:-1] or [""])[0]
    if last in PASSWORDS or last.endswith(("password", "passwords")):  # PGPASSWORD
        return PASSWORD
    if last == "pass" and before not in _NO_PASS and (before or name.startswith("-")):
        return PASSWORD
    if last == "apikey" or (last == "key" and before in _KEYS):
        return KEY
    return KEY if last == "token" and before not in _WORDS_OF_MODELS else None
