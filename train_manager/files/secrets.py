"""The search for passwords and keys in a text.

A false alarm leaves a file out of the record of a run, which then cannot be run again. So a name such as ``token`` is
not enough in a text: its value must be written there, and look random, or like a word that people choose.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from train_manager.files.secret_forms import FORMS
from train_manager.files.secret_names import (
    CHOSEN,
    KEY,
    PASSWORD,
    PASSWORDS,
    WORDS,
    kind_of_name,
    names_a_secret,
    set_of,
    words_of,
)


class Found(NamedTuple):
    """A secret in a text."""

    start: int  # the place of its first character in the text
    end: int  # the place behind its last character
    kind: str  # in words, such as "a token of GitHub"


ADDRESS: Final = "an address with a password"

# In small letters: every name of a secret has one of them, so the expressions below run only where one is found.
_SEARCHED: Final = ("pass", "pw", "secret", "credential", "token", "key")
# The characters of a name before the word that was found, and from that word on.
_NAME_BEFORE: Final = re.compile(r"[\w.-]*\Z", re.ASCII)
_REST_OF_NAME: Final = re.compile(r"[\w.-]{0,60}", re.ASCII)
# Between a name and its value: the end of quotes, a sign of assignment in Python, YAML, JSON, Markdown or on a command
# line, perhaps a call around the value, and then the value, in quotes or bare.
_ASSIGNED: Final = re.compile(
    r"""(?P<closed>\\?["'])?\]?[^\S\n]*
    (?: :[^\S\n]*[A-Za-z][\w.\[\]|\x20]{0,40}=(?!=)  # a type: api_key: str = "..."
      | :=|=>|==?
      | :(?:[^\S\n]*(?:[|>][+-]?)?[^\S\n]*\n[\x20\t]*(?:-[\x20])?)?  # below, in YAML
      | \n[\x20\t]+value:  # - name: API_KEY, and its value below
      | (?(closed)[,\x20][^()]{0,200}?\b(?:default|value)["']?[^\S\n]*[=:]|>)  # "--api-key", default=; <password>
      | (?(closed),|\|)
      | (?P<flag>[^\S\n])
    )[^\S\n]*
    (?: [\w.]{0,40}(?:Field|Option|Argument|SecretStr)\(\s*(?:default[^\S\n]*=[^\S\n]*)? | \(\s* | !\w+[\x20] )?
    (?: [A-Za-z]{0,2}\\?(?P<quote>"{3}|'{3}|["'`])(?P<quoted>[^"'`\\\n]{6,400})\\?(?P=quote)
      | (?P<bare>[^\s"'`,;()\[\]{}<>\\]{6,400})(?=[\s,;"'`<}]|$)
    )""",
    re.VERBOSE | re.ASCII,
)
# Commands before a name whose value follows without a sign, as in a Dockerfile, a shell or C.
_SETS: Final = re.compile(r"(?:\bENV|\bARG|\bsetenv|\bset(?: -\w+)*|#define)[ \t]+\Z")
_IS_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)  # a value such as args.token, which is code
# An address with a password, https://user:password@host, or with a token of 20 or more characters before the @.
_ADDRESS: Final = re.compile(r"""://([^/\s:@"'`<>;[\]]*:[^/\s@"'`<>;[\]]+|[^/\s:@"'`<>;[\]]{20,})@""", re.ASCII)
# A secret in the query of an address: ?token=...
_QUERY: Final = re.compile(
    r"[?&](?:[\w-]*token|[\w-]*key|password|secret|sig|signature)=([^&\s#\"'`<>]{6,})", re.IGNORECASE | re.ASCII
)
# Headers of HTTP: "Authorization: Bearer ..." and "Basic ..." with base64 of user:password.
_BEARER: Final = re.compile(r"\b(?:[Bb]earer|BEARER|[Tt]oken)[ ]([\w.~+/=-]{16,})", re.ASCII)
_BASIC: Final = re.compile(r"""(?:\b[Bb]asic[ ]|["']auth["']:[ ]?["'])([A-Za-z0-9+/]{8,}={0,2})""", re.ASCII)
# Passwords by their place: options of programs, arguments of login(), entries of connection strings.
_PLACES: Final = re.compile(
    r"""\b(?: (?:curl|wget|http)\b[^\n]{0,200}?\s(?:-u|--user)[ =]?["']?[^\s:"']+:([^\s"']{6,})
      | sshpass[ ]-p[ ]?["']?([^\s"']{6,})
      | mysql(?:dump|admin)?\b[^\n]{0,100}?\s-p([^\s"']{6,})
      | redis-cli\b[^\n]{0,100}?\s-a[ ]([^\s"']{6,})
      | login\b[^\n]{0,100}?\s-p[ ]["']?([^\s"']{6,})
      | (?:unzip|ssh-keygen)\b[^\n]{0,100}?\s-[PN][ ]["']?([^\s"']{6,})
      | pass:([^\s"']{6,})
      | login\([ ]?["'][^"'\n]{1,60}["'],[ ]?["']([^"'\n]{6,60})["']
      | auth[ ]?=[ ]?\([ ]?["'][^"'\n]{1,60}["'],[ ]?["']([^"'\n]{6,60})["']
      | (?:Password|Pwd|PASSWORD|PWD|AccountKey|SharedAccessKey)=([^;"'\s{}$<>()\[\],]{6,})(?=[;"'])
    )""",
    re.VERBOSE | re.ASCII,
)
# A text without one of these texts has no match of `_PLACES`: `in` is faster than the expression.
_OF_PLACES: Final = (
    *("curl", "wget", "http ", "sshpass", "mysql", "redis-cli", "login", "unzip", "keygen", "pass:", "auth"),
    *("assword=", "wd=", "Key=", "WORD="),
)
# Values that stand for a secret written elsewhere: ${HF_TOKEN}, <password>, {{ key }}, ***, "your-key", "changeme".
_PLACEHOLDER: Final = re.compile(
    r"^\$\w|\$[({]|^[{<].*[}>]$|\{[\w.\[\]]*\}|[{}]{2}|\*{3}|<\w|%[(s]|\.\.\.|x{4}|your|example|change.?me|dummy|fake"
    r"|placeholder|redacted"
    r"|^(?:my|the|a|some|test)?[-_]?(?:user|pass|password|passwd|pwd|secret|token|api[-_]?key|key|test)?[-_]?\d{0,4}$",
    re.IGNORECASE | re.ASCII,
)
# Words that stand behind `password:` in programs and forms, and that nobody means as a password.
_NO_CHOICE: Final = set_of(
    """required optional string hidden masked invalid missing default username prompt input basic plain plaintext text
    bearer unknown public private field value token client server header cookie session digest kerberos oauth
    negotiate encrypted hashed confirm confirmation incorrect wrong forgot reset change changed updated update expired
    delete remove denied rejected accepted allowed disabled enabled keyring keychain getpass provided empty nothing
    strong weak length database network account profile settings string credentials credential authentication
    authorization secret secrets passphrase protected unprotected unset"""
)
# Words that show that several words are a sentence about a password, and not one.
_OF_SENTENCES: Final = set_of(
    "a an and are as at be by can cannot do does enter for from has have if in is it least must no not of on or please "
    "should the this to use used user was will with you your"
)
# The rest of a private key behind its first line, up to its END line, or to the end of the text.
_WHOLE_KEY: Final = re.compile(r"[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)")


def looks_secret(name: str, value: Any) -> bool:
    """Return whether a value must not be written, by its name or by its content.

    >>> looks_secret("hf_token", "abc"), looks_secret("num_tokens", 100), looks_secret("pad_token", "<pad>")
    (True, False, False)
    >>> looks_secret("remote", "https://me:hunter2@example.com/data.git")
    True
    """
    if value is None or isinstance(value, bool | int | float):
        return False
    # pad_token="<pad>" and mask_key="[MASK]" are marks of a tokenizer.
    is_marker = isinstance(value, str) and re.fullmatch(r"[<\[].*[>\]]", value) is not None
    # An argument with such a name holds a secret whatever it looks like: here the name alone is enough.
    if not is_marker and (names_a_secret(name) or not {"secret", *WORDS}.isdisjoint(words_of(name))):
        return True
    return isinstance(value, str) and bool(secrets_in(value))


def secrets_in(text: str, *, bare: bool = True, assignments: bool = True) -> list[Found]:
    """Return the secrets in a text, in their order.

    >>> [kind for _, _, kind in secrets_in('api_key = "9f8e7d6c5b4a39281706"; num_tokens = 100; pad_token = "<pad>"')]
    ['a key or a token']

    Args:
        text: any text.
        bare: whether a value may stand without quotes, as in YAML; in Python that is the name of a variable.
        assignments: whether to look for values by their names too; not where the bytes are not text.
    """
    found = [*_with_a_form(text), *_in_addresses(text)]
    if assignments:
        found += [*_assigned(text, bare), *_in_headers(text), *_in_places(text)]
    return _apart(sorted(found))


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
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value):  # a UUID
        return True
    # Names of models have few changes between letters and digits in one word; keys have many.
    if any(_changes(run) >= 4 for run in re.findall(r"[A-Za-z0-9]{12,}", value)):
        return True
    if len(value) >= 36 and re.fullmatch(r"[\w+/=]+", value) and _changes(re.sub(r"\W", "", value)) >= 12:
        return True  # base64 with signs between
    # A password from a generator: long, with signs and digits, and no space.
    signs = len(re.findall(r"[!@#$%^&*()+=]", value))
    return len(value) >= 20 and signs >= 3 and len(re.findall(r"\d", value)) >= 2 and " " not in value


# ---- how each kind is found ------------------------------------------------------------------------------------------


def _with_a_form(text: str) -> Iterator[Found]:
    for beginning, kind, form in FORMS:
        for start in _places(text, beginning):
            # The lookbehind and the \b of a form are checked here, because match() sees the text before `start`.
            match = form.match(text, start)
            if match is None or (match[0].startswith("sk-") and not _is_key(match[0])):
                continue
            # The form of a private key is only its first line; the secret is in the lines below.
            whole = _WHOLE_KEY.match(text, match.end()) if match[0].startswith("-----") else match
            assert whole is not None, "it matches up to the end"
            yield Found(match.start(form.groups), whole.end(form.groups if whole is match else 0), kind)


def _is_key(value: str) -> bool:
    """Return whether it is not the name of a style, such as ``sk-estimator-doc-link`` of scikit-learn."""
    return any(character.isdigit() for character in value) and looks_random(value.replace("_", "").replace("-", ""))


def _in_addresses(text: str) -> Iterator[Found]:
    if "://" in text:
        for match in _ADDRESS.finditer(text):
            user, _, password = match[1].partition(":")
            # A user alone before the @ is a secret only if it looks like a token.
            if is_placeholder(password) if password else not looks_random(user):
                continue
            yield Found(*match.span(1), ADDRESS)
        yield from (Found(*match.span(1), KEY) for match in _QUERY.finditer(text) if _is_value(match[1], KEY))


def _in_headers(text: str) -> Iterator[Found]:
    if any(end in text for end in ("earer ", "EARER ", "oken ")):
        yield from (Found(*match.span(1), KEY) for match in _BEARER.finditer(text) if _is_value(match[1], KEY))
    if "asic " in text or "auth" in text:
        yield from (Found(*match.span(1), PASSWORD) for match in _BASIC.finditer(text) if _names_a_user(match[1]))


def _names_a_user(encoded: str) -> bool:
    """Return whether base64 is that of ``user:password``."""
    try:
        user, sign, password = b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return False
    return bool(sign) and len(password) >= 4 and (user + password).isprintable()


def _in_places(text: str) -> Iterator[Found]:
    if any(word in text for word in _OF_PLACES):
        for match in _PLACES.finditer(text):
            # Each alternative of _PLACES has one group: the one that matched is the password.
            group = match.lastindex or 0
            if _is_value(match[group], PASSWORD):
                yield Found(*match.span(group), PASSWORD)


def _assigned(text: str, bare: bool) -> Iterator[Found]:
    lower = text.lower()
    # lower() makes two characters of the Turkish İ: places in `lower` would not be those in `text`.
    if len(lower) != len(text):
        lower = re.sub(r"[A-Z]", lambda letter: letter[0].lower(), text)
    for start in (place for word in _SEARCHED for place in _places(lower, word)):
        rest = _REST_OF_NAME.match(text, start)
        assert rest is not None, "a word is there"
        assigned = _ASSIGNED.match(text, rest.end())
        if assigned is None:  # the most frequent case, so it is sorted out before the name is read
            continue
        before = text[max(start - 60, 0) : start]
        name_before = _NAME_BEFORE.search(before)
        assert name_before is not None, "it matches an empty text"
        # The word that was found may be in the middle of a name: `_KEY` in `OPENAI_KEY_2`.
        name = name_before[0] + rest[0]
        kind = kind_of_name(name)
        is_set = _SETS.search(before[: name_before.start()]) is not None
        # Without a sign, only `--password value` and `set PASSWORD value` are assignments; others are prose.
        if kind is None or (assigned["flag"] and not (name.startswith("--") or is_set)):
            continue
        group = "quoted" if assigned["quoted"] else "bare"
        # In code a bare value is an expression, except in a comment, behind a flag or before </password>.
        is_comment = "#" in before.rpartition("\n")[2]
        is_config = (bare or is_comment) and not _IS_NAME.fullmatch(assigned[group])
        if group == "bare" and not (assigned["flag"] or is_config or text[assigned.end() : assigned.end() + 2] == "</"):
            continue
        if _is_value(assigned[group], kind) or (words_of(name)[-1] in CHOSEN and _is_choice(text, assigned, group)):
            yield Found(*assigned.span(group), kind)


def _is_choice(text: str, assigned: re.Match[str], group: str) -> bool:
    """Return whether a value is a password of plain words, and not words of a sentence or a form about passwords."""
    value = assigned[group]
    words = re.split(r"[ _-]", value)
    if is_placeholder(value) or not all(word.isalpha() and word.islower() for word in words):
        return False
    # A bare word is a password only at the end of a line or tag: "password: required field" is a form.
    if group == "bare" and (assigned["flag"] or text[assigned.end() : assigned.end() + 1] not in ("", "\n", "<")):
        return False
    # One word must be long and not of a form; several must be four or more, as in a passphrase.
    if len(words) == 1:
        return len(value) >= 8 and value not in _NO_CHOICE
    return len(words) >= 4 and not ({*words} & (_OF_SENTENCES | _NO_CHOICE | PASSWORDS))


def _places(text: str, word: str) -> Iterator[int]:
    """Yield each place of a word in a text."""
    # str.find() per word is ten times as fast as one expression of all words.
    start = text.find(word)
    while start >= 0:
        yield start
        start = text.find(word, start + len(word))


def _is_value(value: str, kind: str) -> bool:
    if is_placeholder(value) or re.search(r"\s", value):
        return False
    if kind == PASSWORD:  # people add a digit to a word, which prose does not; a value with a slash is a path
        kinds = [any(map(test, value)) for test in (str.isalpha, str.isdigit)]
        return looks_random(value) or (all(kinds) and "/" not in value)
    return looks_random(value)


def _changes(run: str) -> int:
    """Return how often a word changes between digits, capital and small letters; 0 without a change to a digit."""
    kinds = ["digit" if character.isdigit() else "upper" if character.isupper() else "lower" for character in run]
    return 0 if "digit" not in kinds or len({*kinds}) == 1 else sum(a != b for a, b in pairwise(kinds))


def _apart(found: list[Found]) -> list[Found]:
    """Return sorted findings without those that overlap an earlier one."""
    kept: list[Found] = []
    for one in found:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept
