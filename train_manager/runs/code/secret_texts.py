"""Passwords and keys in a text: where they are, and what they look like.

A false alarm leaves a file out of the record of a run, which then cannot be run again. So a name such as ``token`` is
not enough: its value has to be written there, and to look random.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from train_manager.files.secrets import KINDS


class Found(NamedTuple):
    """A secret in a text.

    Attributes:
        start: where it begins.
        end: where it ends.
        kind: what it looks like.
    """

    start: int
    end: int
    kind: str


PASSWORD: Final = "a password"
KEY: Final = "a key or a token"
ADDRESS: Final = "an address with a password"

_PASSWORDS: Final = frozenset({"password", "passwd", "passphrase", "pwd", "secret", "credential", "credentials"})
_KEYS: Final = frozenset({"api", "access", "private", "secret", "auth", "account", "signing", "encryption", "license"})
_BEFORE_TOKEN: Final = """
pad eos bos unk sep cls mask image audio video special stop start end begin next last first prompt per max min num n
each text vision class think every new line separator blank null
"""
_WORDS_OF_MODELS: Final = frozenset(_BEFORE_TOKEN.split())  # `pad_token` is not a secret
_SECRET_WORDS: Final = (  # in small letters; what finds each must begin with it
    *("password", "passwd", "passphrase", "pwd", "secret", "credential", "token"),
    *(f"{word}{sign}key" for word in sorted(_KEYS) for sign in ("_", "-", "")),
)
_NAME_BEFORE: Final = re.compile(r"[\w.-]*\Z", re.ASCII)
_REST_OF_NAME: Final = re.compile(r"[\w.-]{0,60}", re.ASCII)
_ASSIGNED: Final = re.compile(
    r"""(?P<closed>\\?["'])?\]?[^\S\n]*
    (?: :[^\S\n]*[A-Za-z][\w.\[\]|\x20]{0,40}=(?!=)  # a type: api_key: str = "..."
      | :=|=>|==?|: | (?(closed),|(?!)) | (?P<flag>[^\S\n])
    )[^\S\n]*
    (?: [A-Za-z]{0,2}\\?(?P<quote>["'])(?P<quoted>[^"'\\\n]{6,400})\\?(?P=quote)
      | (?P<bare>[^\s"'`,;()\[\]{}<>\\]{6,400})(?=[\s,;"'`]|$)
    )""",
    re.VERBOSE | re.ASCII,
)
_IS_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)  # args.token
_ADDRESS: Final = re.compile(r"""://([^/\s:@"'`<>;[\]]*:[^/\s@"'`<>;[\]]+|[^/\s:@"'`<>;[\]]{20,})@""", re.ASCII)
_QUERY: Final = re.compile(
    r"[?&](?:[\w-]*token|[\w-]*key|password|secret|sig|signature)=([^&\s#\"'`<>]{6,})", re.IGNORECASE | re.ASCII
)
_BEARER: Final = re.compile(r"\b(?:[Bb]earer|BEARER|[Bb]asic|[Tt]oken)[ ]([\w.~+/=-]{16,})", re.ASCII)
_PLACEHOLDER: Final = re.compile(
    r"[{}$<>*\s]|%[(s]|\.\.\.|x{4}|your|example|change.?me|dummy|fake|placeholder|redacted"
    r"|^(?:my|the|a|some|test)?[-_]?(?:user|pass|password|passwd|pwd|secret|token|api[-_]?key|key|test)?[-_]?\d{0,4}$",
    re.IGNORECASE | re.ASCII,
)
_FORMS: Final = {kind: re.compile(form, re.ASCII) for kind, form in KINDS.items()}
_BEGINNINGS: Final = {  # of each form: what begins so is looked at, so that a large file takes a second and not ten
    "a token of Hugging Face": ("hf_",),
    "a key of OpenAI, Anthropic or Stripe": ("sk-", "sk_live_", "rk_live_"),
    "a token of GitHub": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "a token of Slack": ("xox", "xapp-", "hooks.slack.com/"),
    "a key of AWS": ("AKIA", "ASIA"),
    "a key of Google": ("AIza", "GOCSPX-"),
    "a key of SendGrid": ("SG.",),
    "a token of npm": ("npm_",),
    "a private key": ("-----BEGIN ",),
}
_WHOLE_KEY: Final = re.compile(r"[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)")


def secrets_in(text: str, *, bare: bool = True, assignments: bool = True) -> list[Found]:
    """Return what looks like a secret, in the order of the text.

    >>> [kind for _, _, kind in secrets_in('api_key = "9f8e7d6c5b4a39281706"; num_tokens = 100; pad_token = "<pad>"')]
    ['a key or a token']

    Args:
        text: any text.
        bare: whether a value may stand without quotes, as in YAML; in Python that is the name of a variable.
        assignments: whether to look for values by their names too; not where the bytes are not text.
    """
    found = [*_with_a_form(text), *_in_addresses(text)]
    if assignments:
        found += [*_assigned(text, bare), *_in_headers(text)]
    return _apart(sorted(found))


def names_a_secret(name: str) -> bool:
    """Return whether the value of this name is a password, a key or a token.

    >>> [name for name in ("hf_token", "wandb.apiKey", "tokenizer", "pad_token", "token_file") if names_a_secret(name)]
    ['hf_token', 'wandb.apiKey']
    """
    return _kind_of_name(name) is not None


def is_placeholder(value: str) -> bool:
    """Return whether a value stands for a secret that is written elsewhere.

    >>> is_placeholder("${HF_TOKEN}"), is_placeholder("your-token-here"), is_placeholder("hunter2")
    (True, True, False)
    """
    return _PLACEHOLDER.search(value) is not None


def looks_random(value: str) -> bool:
    """Return whether letters and digits alternate as in a key, and not as in ``llama-3-8b-instruct-v2``.

    >>> looks_random("9f8e7d6c5b4a39281706"), looks_random("vocab_bpe_32000_cased")
    (True, False)
    """
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value):
        return True
    return any(_changes(run) >= 4 for run in re.findall(r"[A-Za-z0-9]{12,}", value))


# ---- how each kind is found ------------------------------------------------------------------------------------------


def _with_a_form(text: str) -> Iterator[Found]:
    for kind, form in _FORMS.items():
        for beginning in _BEGINNINGS.get(kind, (_beginning(form),)):
            for start in _places(text, beginning):
                match = form.match(text, start)
                if match is None or (match[0].startswith("sk-") and not _is_key(match[0])):
                    continue
                whole = _WHOLE_KEY.match(text, match.end()) if kind == "a private key" else match
                assert whole is not None, "it matches up to the end"
                yield Found(start, whole.end(), kind)


def _beginning(form: re.Pattern[str]) -> str:
    """Return the letters that a form begins with: those before its first character that is none."""
    match = re.match(r"[\w-]+", form.pattern.removeprefix(r"\b"))
    return match[0] if match else ""


def _is_key(value: str) -> bool:
    """Return whether it is not the name of a style, such as ``sk-estimator-doc-link`` of scikit-learn."""
    return any(character.isdigit() for character in value) and looks_random(value.replace("_", "").replace("-", ""))


def _in_addresses(text: str) -> Iterator[Found]:
    if "://" in text:
        for match in _ADDRESS.finditer(text):
            user, _, password = match[1].partition(":")
            if is_placeholder(password) if password else not looks_random(user):
                continue
            yield Found(*match.span(1), ADDRESS)
        yield from (Found(*match.span(1), KEY) for match in _QUERY.finditer(text) if _is_value(match[1], KEY))


def _in_headers(text: str) -> Iterator[Found]:
    if any(end in text for end in ("earer ", "EARER ", "asic ", "oken ")):
        yield from (Found(*match.span(1), KEY) for match in _BEARER.finditer(text) if _is_value(match[1], KEY))


def _assigned(text: str, bare: bool) -> Iterator[Found]:
    lower = text.lower()
    if len(lower) != len(text):  # a letter that is two in small ones: places would not agree
        lower = re.sub(r"[A-Z]", lambda letter: letter[0].lower(), text)
    for start in (place for word in _SECRET_WORDS for place in _places(lower, word)):
        rest = _REST_OF_NAME.match(text, start)
        assert rest is not None, "a word is there"
        assigned = _ASSIGNED.match(text, rest.end())
        if assigned is None:  # most often: first, because it is a third of the work
            continue
        before = _NAME_BEFORE.search(text[max(start - 60, 0) : start])
        assert before is not None, "it matches an empty text"
        name = before[0] + rest[0]
        kind = _kind_of_name(name)
        if kind is None or (assigned["flag"] and not name.startswith("--")):
            continue
        group = "quoted" if assigned["quoted"] else "bare"
        if group == "bare" and not (assigned["flag"] or (bare and not _IS_NAME.fullmatch(assigned["bare"]))):
            continue
        if _is_value(assigned[group], kind):
            yield Found(*assigned.span(group), kind)


def _places(text: str, word: str) -> Iterator[int]:
    """Yield where a word is. To look for one after the other is faster than an expression of them all, tenfold."""
    start = text.find(word)
    while start >= 0:
        yield start
        start = text.find(word, start + len(word))


def _kind_of_name(name: str) -> str | None:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", " ", name).lower().split()
    while words and words[-1].isdigit():
        words.pop()
    last, before = (words or [""])[-1], (words[-2:-1] or [""])[0]
    if last in _PASSWORDS:
        return PASSWORD
    if last == "apikey" or (last == "key" and before in _KEYS):
        return KEY
    return KEY if last == "token" and before not in _WORDS_OF_MODELS else None


def _is_value(value: str, kind: str) -> bool:
    if is_placeholder(value):
        return False
    if kind == PASSWORD:  # people choose words with a digit or a sign, which no prose has
        kinds = [any(map(test, value)) for test in (str.isalpha, str.isdigit)]
        return looks_random(value) or (all(kinds) and "/" not in value)
    return looks_random(value)


def _changes(run: str) -> int:
    """Return how often letters and digits take turns; nothing if it has only one of the two."""
    kinds = ["digit" if character.isdigit() else "upper" if character.isupper() else "lower" for character in run]
    return 0 if "digit" not in kinds or len({*kinds}) == 1 else sum(a != b for a, b in pairwise(kinds))


def _apart(found: list[Found]) -> list[Found]:
    """Return them without those that lie in others."""
    kept: list[Found] = []
    for one in found:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept
