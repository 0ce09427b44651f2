"""Passwords and keys: in a text, by the name of a value, and in files that are not to be copied.

A false alarm leaves a file out of the record of a run, which then cannot be run again. So a name such as ``token`` is
not enough in a text: its value must be written there, and look random, or have letters and digits as a password has.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from fnmatch import translate
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple


class Found(NamedTuple):
    """A secret in a text."""

    start: int  # the place of its first character in the text
    end: int  # the place behind its last character
    kind: str  # in words, such as "a token of GitHub"


PASSWORD: Final = "a password"
KEY: Final = "a key or a token"
ADDRESS: Final = "an address with a password"
HIDDEN: Final = "***"


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


# ---- the forms of keys and tokens ------------------------------------------------------------------------------------

_KINDS: Final = {
    "a token of Hugging Face": (r"\bhf_[A-Za-z0-9]{20,}",),
    "a key of OpenAI, Anthropic or Stripe": (
        # Of three digits, as the names of styles of scikit-learn have not: sk-estimator-doc-link.
        *(r"\bsk-(?=(?:[A-Za-z_-]*\d){3})[\w-]{16,}", r"\bwhsec_[A-Za-z0-9+/]{24,}"),
        *(rf"\b{kind}_{mode}_[A-Za-z0-9]{{16,}}" for kind in ("sk", "rk") for mode in ("live", "test")),
    ),
    "a token of GitHub": (*(rf"\bgh{of}_[A-Za-z0-9]{{20,}}" for of in "pousr"), r"\bgithub_pat_\w{20,}"),
    "a token of GitLab": (r"\bgl(?:pat|dt|rt)-[\w-]{16,}",),
    "a token of Slack": (r"\bxox[abeprs]-[\w-]{10,}", r"\bhooks\.slack\.com/services/[\w/]{20,}"),
    "a token of Discord or Telegram": (r"\bdiscord\.com/api/webhooks/\d+/[\w-]{40,}", r"(?<=\d{8}):AA[\w-]{33}"),
    "a key of AWS": (r"\bAKIA[0-9A-Z]{16}\b", r"\bASIA[0-9A-Z]{16}\b"),
    "a key of Google": (r"\bAIza[\w-]{35}", r"\bGOCSPX-[\w-]{20,}", r"\bya29\.[\w-]{20,}"),
    "a token of PyPI": (r"\bpypi-[\w-]{40,}",),
    "a token of npm": (r"\bnpm_[A-Za-z0-9]{36}\b",),
    "a key of SendGrid": (r"\bSG\.[\w-]{20,}\.[\w-]{20,}",),
    "a token of Databricks": (r"\bdapi[0-9a-f]{32}\b",),
    "a token of Replicate": (r"\br8_[A-Za-z0-9]{30,}",),
    "a key of NVIDIA": (r"\bnvapi-[\w-]{30,}",),
    "a key of Groq": (r"\bgsk_[A-Za-z0-9]{30,}",),
    "a key of Weights & Biases": (r"\bwandb_v\d_[\w-]{30,}", r"\bwandb\b[^\n]{0,40}?\b([0-9a-f]{40})\b"),
    "a key of a web service": (r"\bshpat_[0-9a-fA-F]{32}", r"\bdop_v1_[0-9a-f]{32,}", r"\bhvs\.[\w-]{24,}"),
    "a JSON web token": (r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+",),
    # In a header of HTTP, such as "Authorization: Bearer ..."; "Basic" is followed by base64.
    KEY: (
        r"(?<=\b[Bb])earer ([\w.~+/=-]{16,})",
        r"\bBEARER ([\w.~+/=-]{16,})",
        r"(?<=\b[Tt])oken ([\w.~+/=-]{16,})",
        r"(?<=\b[Bb])asic ([\w.~+/=-]{16,})",
    ),
    "a private key": (
        # With the lines below, up to its END line, or to the end of the text.
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
        r"\bLS0tLS1CRUdJTi(?:BSU0EgUFJJ|BQUklWQVRF|BFQyBQUklW|BPUEVOU1NI)[\w+/=]{20,}",
    ),
}
"""The kinds of tokens in words, and the forms of each.

A form begins with letters that are searched first; its group, if it has one, must look random.
"""

# Lookbehinds and \b, which stand before the first letters of a form.
_NO_LETTERS: Final = re.compile(r"\(\?<=[^)]*\)|\\b")
# The fixed letters at the start of a form, up to its first class or repeat: str.find of these is far faster than the
# expression.
_FORMS: Final = [
    (re.sub(r"\\(.)", r"\1", letters[0]), kind, re.compile(form, re.ASCII))
    for kind, forms in _KINDS.items()
    for form in forms
    if (letters := re.match(r"(?:[\w /:-](?![*+?{])|\\\.)+", _NO_LETTERS.sub("", form))) is not None
]


# ---- the names of passwords, keys and tokens -------------------------------------------------------------------------

# Names are read word by word, so that `hf_token` names a secret, and `tokenizer` and `num_tokens` do not.
# Words that name a secret wherever they are in a name, and the last words of the name of a password.
_WORDS: Final = _set_of("password passwd passphrase passcode pwd secret apikey credential credentials")
_PASSWORDS: Final = (_WORDS - {"apikey"}) | {"pw", "passwort"}
_SERVICES: Final = _set_of(
    """wandb openai anthropic hf huggingface comet neptune stripe aws azure google github gitlab openrouter gemini
    mistral cohere pinecone groq replicate together deepl mapbox twilio sendgrid mailgun datadog sentry"""
)
# Words before `key` in names of secrets: `api_key`; `sort_key` is not one.
_KEYS: Final = _SERVICES | _set_of(
    """api access private secret auth account signing encryption license master session shared client server storage
    ssh fernet"""
)
# Words before `token` in names of language models, which are not secrets: `pad_token`, `last_token`.
_WORDS_OF_MODELS: Final = _set_of(
    """pad eos bos unk sep cls mask image audio video special stop start end begin next last first prompt per max min
    num n each text vision class think every new line separator blank null"""
)
# Words before `pass` in names of a pass over data: `forward_pass`; `db_pass` is a password.
_NO_PASS: Final = _set_of(
    """forward backward first second third last next single multi two one num n by all full low high band test max min
    opt compiler render a the this per each every"""
)


def names_a_secret(name: str) -> bool:
    """Return whether the value of this name is a password, a key or a token.

    >>> [name for name in ("hf_token", "wandb.apiKey", "tokenizer", "pad_token", "token_file") if names_a_secret(name)]
    ['hf_token', 'wandb.apiKey']
    >>> [name for name in ("DB_PASS", "--pass", "forward_pass", "pass") if names_a_secret(name)]
    ['DB_PASS', '--pass']
    """
    return _kind_of_name(name) is not None


def may_have_entries(name: str) -> bool:
    """Return whether a dict of this name may be no secret: a module ``token`` of a model, but not ``credentials``.

    >>> [name for name in ("token", "api_key", "password", "credentials", "secret_token") if may_have_entries(name)]
    ['token', 'api_key']
    """
    # A key or a token looks random, so it differs from the words beside it; a password may be a word like any other.
    return _kind_of_name(name) == KEY and _WORDS.isdisjoint(_words_of(name))


def _words_of(name: str) -> list[str]:
    """Return the words of a name in small letters, without numbers at its end."""
    # `apiKey` and `api-key` become `api key`; a number at the end counts copies: `API_KEY_2`.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", " ", name).lower().split()
    while words and words[-1].isdigit():
        words.pop()
    return words or [""]


def _kind_of_name(name: str) -> str | None:
    """Return whether a name is that of a password, or of a key or token; None of other names."""
    words = _words_of(name)
    last, before = words[-1], (words[-2:-1] or [""])[0]
    if last in _PASSWORDS or last.endswith(("password", "passwords")):  # PGPASSWORD is one word
        return PASSWORD
    if last == "pass" and before not in _NO_PASS and (before or name.startswith("-")):
        return PASSWORD
    if last == "apikey" or (last == "key" and before in _KEYS):
        return KEY
    return KEY if last == "token" and before not in _WORDS_OF_MODELS else None


# ---- what values look like -------------------------------------------------------------------------------------------

# Values that stand for a secret written elsewhere: ${HF_TOKEN}, <password>, {{ key }}, ***, "your-key", "changeme".
_PLACEHOLDER: Final = re.compile(
    r"^\$\w|\$[({]|^[{<].*[}>]$|\{[\w.\[\]]*\}|[{}]{2}|\*{3}|<\w|%[(s]|\.\.\.|x{4}|your|example|change.?me|dummy|fake"
    r"|placeholder|redacted"
    r"|^(?:my|the|a|some|test)?[-_]?(?:user|pass|password|passwd|pwd|secret|token|api[-_]?key|key|test)?[-_]?\d{0,4}$",
    re.IGNORECASE | re.ASCII,
)


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
    if not is_marker and (names_a_secret(name) or not _WORDS.isdisjoint(_words_of(name))):
        return True
    return isinstance(value, str) and bool(secrets_in(value))


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


def _changes(run: str) -> int:
    """Return how often a word changes between digits, capital and small letters; 0 without a change to a digit."""
    kinds = ["digit" if character.isdigit() else "upper" if character.isupper() else "lower" for character in run]
    return 0 if "digit" not in kinds or len({*kinds}) == 1 else sum(a != b for a, b in pairwise(kinds))


def _is_value(value: str, kind: str) -> bool:
    if _PLACEHOLDER.search(value) or re.search(r"\s", value):
        return False
    if kind == PASSWORD:  # people add a digit to a word, which prose does not; a value with a slash is a path
        kinds = [any(map(test, value)) for test in (str.isalpha, str.isdigit)]
        return looks_random(value) or (all(kinds) and "/" not in value)
    return looks_random(value)


# ---- the search in a text --------------------------------------------------------------------------------------------

# In small letters: every name of a secret has one of them, so the expressions below run only where one is found.
_SEARCHED: Final = ("pass", "pw", "secret", "credential", "token", "key")
# Not lower(), which makes two characters of the Turkish İ: places would not be those in the text.
_SMALL: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# The characters of a name before the word that was found, and from that word on.
_NAME_BEFORE: Final = re.compile(r"[\w.-]*\Z", re.ASCII)
_REST_OF_NAME: Final = re.compile(r"[\w.-]{0,60}", re.ASCII)
# Between a name and its value: the end of quotes, a sign of assignment in Python, YAML, JSON, Markdown or on a command
# line, perhaps a call around the value, and then the value, in quotes or bare.
_ASSIGNED: Final = re.compile(
    r"""(?P<closed>\\?["'])?\]?[^\S\n]*
    (?: :[^\S\n]*[A-Za-z][\w.\[\]|\x20]{0,40}=(?!=)  # a type: api_key: str = "..."
      | :=|==?|:
      | (?(closed)[,\x20][^()]{0,200}?\b(?:default|value)["']?[^\S\n]*[=:]|>)  # "--api-key", default=; <password>
      | (?(closed),|\|)
      | (?P<flag>[^\S\n])
    )[^\S\n]*
    (?: [\w.]{0,40}(?:Field|Option|Argument|SecretStr)\(\s*(?:default[^\S\n]*=[^\S\n]*)? | \(\s* )?
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


def secrets_in(text: str, *, bare: bool = True, assignments: bool = True) -> list[Found]:
    """Return the secrets in a text, in their order.

    >>> [kind for _, _, kind in secrets_in('api_key = "9f8e7d6c5b4a39281706"; num_tokens = 100; pad_token = "<pad>"')]
    ['a key or a token']

    Args:
        text: any text.
        bare: whether a value may stand without quotes, as in YAML; in Python that is the name of a variable.
        assignments: whether to look for values by their names too; not where the bytes are not text.
    """
    found = [*_with_a_form(text), *_in_addresses(text), *(_assigned(text, bare) if assignments else ())]
    kept: list[Found] = []
    for one in sorted(found):  # without a finding that overlaps an earlier one
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept


def _with_a_form(text: str) -> Iterator[Found]:
    for beginning, kind, form in _FORMS:
        for start in _places(text, beginning):
            # The lookbehind and the \b of a form are checked here, because match() sees the text before `start`.
            match = form.match(text, start)
            if match is not None and (not form.groups or _is_value(match[1], KEY)):
                yield Found(*match.span(form.groups), kind)  # of the group in a form, or of all


def _in_addresses(text: str) -> Iterator[Found]:
    if "://" in text:
        for match in _ADDRESS.finditer(text):
            user, _, password = match[1].partition(":")
            # A user alone before the @ is a secret only if it looks like a token.
            if not _PLACEHOLDER.search(password) if password else looks_random(user):
                yield Found(*match.span(1), ADDRESS)


def _assigned(text: str, bare: bool) -> Iterator[Found]:
    lower = text.lower() if text.isascii() else text.translate(_SMALL)
    for start in (place for word in _SEARCHED for place in _places(lower, word)):
        rest = _REST_OF_NAME.match(text, start)
        assert rest is not None, "a word is there"
        assigned = _ASSIGNED.match(text, rest.end())
        if assigned is None:  # the most frequent case, so it is sorted out before the name is read
            continue
        # The word that was found may be in the middle of a name: `_KEY` in `OPENAI_KEY_2`.
        name_before = _NAME_BEFORE.search(text, max(start - 60, 0), start)
        assert name_before is not None, "it matches an empty text"
        name, before = name_before[0] + rest[0], text[max(start - 60, 0) : name_before.start()]
        kind = _kind_of_name(name)
        group = "quoted" if assigned["quoted"] else "bare"
        if kind is not None and _gives_a_value(assigned, name, before, bare) and _is_value(assigned[group], kind):
            yield Found(*assigned.span(group), kind)


def _gives_a_value(assigned: re.Match[str], name: str, before: str, bare: bool) -> bool:
    """Return whether what stands behind a name is its value, and not prose or the name of a variable."""
    if assigned["flag"]:  # without a sign, only `--password value` and `set PASSWORD value` are assignments
        return name.startswith("--") or _SETS.search(before) is not None
    if assigned["quoted"]:
        return True
    # In code a value without quotes is an expression, except in a comment, in the query of an address (?token=...), and
    # in a connection string ("Password=...;Server=db").
    is_text = bare or "#" in before.rpartition("\n")[2] or before.endswith(("?", "&", ";", '"'))
    return is_text and not _IS_NAME.fullmatch(assigned["bare"])


def _places(text: str, word: str) -> Iterator[int]:
    """Yield each place of a word in a text."""
    # str.find() per word is ten times as fast as one expression of all words.
    start = text.find(word)
    while start >= 0:
        yield start
        start = text.find(word, start + len(word))


# ---- texts and command lines without them ----------------------------------------------------------------------------

# `--name=value`, and `+name=value` or `name:=value` as Hydra and others write it.
_ARGUMENT: Final = re.compile(r"(?P<name>[-+~]*[A-Za-z][\w.@/-]*)(?P<sign>=|:=)(?P<value>.*)", re.DOTALL | re.ASCII)
_FLAG: Final = re.compile(r"--?[A-Za-z][\w.-]*", re.ASCII)


def redacted(text: str, *, bare: bool = True) -> str:
    """Return a text with ``***`` in the place of secrets.

    >>> redacted('login(token="hf_abcdefghijklmnopqrstuv")')
    'login(token="***")'
    >>> redacted("https://me:hunter2@example.com/x.git")
    'https://***@example.com/x.git'

    Args:
        text: a line of a shell, a cell of a notebook.
        bare: whether a value may stand without quotes: in Python, that is the name of a variable.
    """
    parts, done = [], 0
    for start, end, _ in secrets_in(text, bare=bare):
        parts += [text[done:start], HIDDEN]
        done = end
    return "".join([*parts, text[done:]])


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line with ``***`` in the place of secrets, by the names of its options or by their form.

    >>> redacted_arguments(["train.py", "--token", "abc", "--password=x", "wandb.api_key=y", "--num_tokens", "5"])
    ['train.py', '--token', '***', '--password=***', 'wandb.api_key=***', '--num_tokens', '5']
    """
    shown: list[str] = []
    option = ""
    for argument in arguments:
        match = _ARGUMENT.fullmatch(argument)
        is_option = _FLAG.fullmatch(argument) is not None
        if not is_option and _is_secret_argument(option, argument):
            shown.append(HIDDEN)
        elif match is not None and _is_secret_argument(match["name"], match["value"]):
            shown.append(match["name"] + match["sign"] + HIDDEN)
        else:
            shown.append(redacted(argument))
        option = argument if is_option else ""
    return shown


def _is_secret_argument(name: str, value: str) -> bool:
    # `$NAME`, `%NAME%` and `{name}` stand for a value elsewhere; `<pad>` and `[MASK]` are tokens of tokenizers.
    if re.fullmatch(r"[$<%{\[].*|", value, re.DOTALL):
        return False
    return names_a_secret(name) or (_words_of(name)[-1] in _SERVICES and looks_random(value))  # --wandb 9f8e...


# ---- files that must not be copied -----------------------------------------------------------------------------------

_NAMES: Final = """
.env .env.* *.env .envrc *.pem *.key *.p12 *.pfx *.pkcs12 *.jks *.keystore *.kdbx *.ppk *.ovpn *.tfstate
.netrc _netrc .pypirc .npmrc .git-credentials .pgpass .my.cnf .htpasswd .dockercfg .boto .s3cfg .vault-token
credentials.json *-credentials.json *_credentials.json client_secret*.json application_default_credentials.json
service-account*.json service_account*.json serviceaccount*.json kaggle.json kubeconfig *.kubeconfig
secret.yaml secret.yml secret.toml secret.json secret.ini
secrets.yaml secrets.yml secrets.toml secrets.json secrets.ini
id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk *_rsa *_ed25519
"""
_PATHS: Final = """
.ssh/* .gnupg/* .aws/credentials .kube/config .docker/config.json .azure/* .huggingface/token huggingface/token
.config/gcloud/* .config/gh/hosts.yml
"""
# Ends of names that make a secret name harmless: `.env.example`, `id_rsa.pub`.
_SAMPLES: Final = (".example", ".sample", ".template", ".dist", ".pub")
# Files in which the word after `password =` is the name of a variable, or prose, unless it stands in quotes.
_WITH_VARIABLES: Final = _set_of(
    """.py .pyi .pyx .ipynb .js .jsx .ts .tsx .c .cc .cpp .cu .cuh .h .hpp .java .kt .rs .go .jl .m .r .scala .rb .lua
    .swift .cs .php .md .rst .tex .html .css .sql .proto"""
)
# All patterns in one expression, for speed: a repository may have 20,000 new files.
_NAME: Final = re.compile("|".join(map(translate, _NAMES.split())))
_PATH: Final = re.compile("|".join(f"(?:.*/)?{translate(pattern)}" for pattern in _PATHS.split()))
_EXAMPLE: Final = re.compile(r"@(?:[\w-]+\.)?example\.(?:com|org|net)\b", re.ASCII)
_LOOKED_AT: Final = 8192  # first bytes that are searched for a NUL, which makes a file binary; git searches 8000
_PIECE: Final = 500_000  # bytes that are searched at once: a regular expression holds the GIL, and the training waits
_OVERLAP: Final = 4096  # longer than any secret except private keys, which their first line gives away


def reason_to_leave_out(path: str, content: bytes | None) -> str | None:
    """Return why a file is not to be copied, in words; None if it may be.

    >>> reason_to_leave_out("config/.env", None)
    'its name is that of a secret file'
    >>> reason_to_leave_out("train.py", b"import torch\\nkey = 'AKIAIOSFODNN7EXAMPL3'")
    'it holds what looks like a key of AWS (line 2)'
    >>> reason_to_leave_out("train.py", b"token = tokenizer.encode(text)")

    Args:
        path: its path in the repository, with ``/``.
        content: what it holds; None judges the name alone.
    """
    whole = path.lower()
    name = whole.rpartition("/")[2]
    if not name.endswith(_SAMPLES) and (_NAME.match(name) or _PATH.match(whole)):
        return "its name is that of a secret file"
    if content is None:
        return None
    is_text = holds_text(content)
    bare = PurePosixPath(path).suffix.lower() not in _WITH_VARIABLES
    lines = 0
    for start in range(0, len(content), _PIECE):  # latin-1 maps each byte to a character; secrets are ASCII
        text = content[start : start + _PIECE + _OVERLAP].decode("latin-1")
        found = [one for one in secrets_in(text, bare=bare, assignments=is_text) if not _is_an_example(text, one)]
        if found:
            where = f" (line {lines + text.count(chr(10), 0, found[0].start) + 1})" if is_text else ""
            return f"it holds what looks like {found[0].kind}{where}"
        # Without the overlap, whose lines are counted with the next piece.
        lines += text.count("\n", 0, _PIECE)
    return None


def holds_text(content: bytes) -> bool:
    """Return whether a file is one of text: without a NUL at its beginning, as git has it."""
    return b"\0" not in content[:_LOOKED_AT]


def _is_an_example(text: str, found: Found) -> bool:
    """Return whether it is an address such as ``https://me:hunter2@example.com``, of which documentation is full."""
    is_at_example = _EXAMPLE.match(text, found.end) is not None
    return found.kind == ADDRESS and is_at_example and not looks_random(text[found.start : found.end])
