"""The names of passwords, keys and tokens.

Names are read word by word, so that ``hf_token`` names a secret, and ``tokenizer`` and ``num_tokens`` do not.
"""

from __future__ import annotations

import re
from typing import Final

PASSWORD: Final = "a password"
KEY: Final = "a key or a token"


def set_of(words: str) -> frozenset[str]:
    """Return words as a set."""
    return frozenset(words.split())


# Words that name a secret wherever they are in a name.
WORDS: Final = frozenset({"password", "passwd", "passphrase", "passcode", "pwd", "apikey", "credential", "credentials"})
# Last words of a name, whose value is a password.
PASSWORDS: Final = (WORDS - {"apikey"}) | {"secret", "pw", "passwort"}
CHOSEN: Final = frozenset({"password", "passwd", "passphrase", "pwd"})  # whose value may be plain words
# Services with keys: an option that is called like one may have its key as the value.
_SERVICES: Final = set_of(
    """wandb openai anthropic hf huggingface comet neptune stripe aws azure google github gitlab openrouter gemini
    mistral cohere pinecone groq replicate together deepl mapbox twilio sendgrid mailgun datadog sentry"""
)
# Words before `key` in names of secrets: `api_key`; `sort_key` is not one.
_KEYS: Final = _SERVICES | set_of(
    """api access private secret auth account signing encryption license master session shared client server storage ssh
    fernet"""
)
# Words before `token` in names of language models, which are not secrets: `pad_token`, `last_token`.
_WORDS_OF_MODELS: Final = set_of(
    """pad eos bos unk sep cls mask image audio video special stop start end begin next last first prompt per max min
    num n each text vision class think every new line separator blank null"""
)
# Words before `pass` in names of a pass over data: `forward_pass`; `db_pass` is a password.
_NO_PASS: Final = set_of(
    "forward backward first second third last next single multi two one num n by all full low high band test max min "
    "opt compiler render a the this per each every"
)

# Words in small letters, each with a number of at most two digits, joined by _, as in the name of an attribute.
_ATTRIBUTE: Final = re.compile(r"[a-z]{1,15}\d{0,2}(?:_(?:[a-z]{1,15}\d{0,2}|\d{1,2}))*|\d{1,2}", re.ASCII)


def names_a_secret(name: str) -> bool:
    """Return whether the value of this name is a password, a key or a token.

    >>> [name for name in ("hf_token", "wandb.apiKey", "tokenizer", "pad_token", "token_file") if names_a_secret(name)]
    ['hf_token', 'wandb.apiKey']
    >>> [name for name in ("DB_PASS", "--pass", "forward_pass", "pass") if names_a_secret(name)]
    ['DB_PASS', '--pass']
    """
    return kind_of_name(name) is not None


def names_a_service(name: str) -> bool:
    """Return whether an option is named after a service with keys, so that a random value of it is one.

    >>> [name for name in ("--wandb", "--use-openai", "--wandb-project", "--commit") if names_a_service(name)]
    ['--wandb', '--use-openai']
    """
    return words_of(name)[-1] in _SERVICES


def may_have_entries(name: str) -> bool:
    """Return whether a dict of this name may be no secret: a module ``token`` of a model, but not ``credentials``.

    >>> [name for name in ("token", "api_key", "password", "credentials", "secret_token") if may_have_entries(name)]
    ['token', 'api_key']
    """
    # A key or a token looks random, so it differs from the words beside it; a password may be a word like any other.
    return kind_of_name(name) == KEY and {"secret", *WORDS}.isdisjoint(words_of(name))


def is_plain_name(text: str) -> bool:
    """Return whether a text reads as the name of a module or an option, and cannot be a key or a token.

    >>> [text for text in ("trunk", "blocks.0.norm1", "same", "abc123", "deadBeef", "a" * 16) if is_plain_name(text)]
    ['trunk', 'blocks.0.norm1', 'same']
    >>> [text for text in ("abcd-efgh-ijkl", "correct.horse.battery") if is_plain_name(text)]
    []
    """
    parts = text.split(".")
    named = [part for part in parts if not part.isdecimal()]
    if len(text) > 40 or not 1 <= len(named) <= 2 or len(re.findall(r"\d", text)) > 3:
        return False  # three words and more are a chosen password more often than a path
    return all(_ATTRIBUTE.fullmatch(part) for part in parts)


def words_of(name: str) -> list[str]:
    """Return the words of a name in small letters, without numbers at its end."""
    # `apiKey` and `api-key` become `api key`; a number at the end counts copies: `API_KEY_2`.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", " ", name).lower().split()
    while words and words[-1].isdigit():
        words.pop()
    return words or [""]


def kind_of_name(name: str) -> str | None:
    """Return whether a name is that of a password, or of a key or token; None of other names."""
    words = words_of(name)
    last, before = words[-1], (words[-2:-1] or [""])[0]
    if last in PASSWORDS or last.endswith(("password", "passwords")):  # PGPASSWORD is one word
        return PASSWORD
    if last == "pass" and before not in _NO_PASS and (before or name.startswith("-")):
        return PASSWORD
    if last == "apikey" or (last == "key" and before in _KEYS):
        return KEY
    return KEY if last == "token" and before not in _WORDS_OF_MODELS else None
