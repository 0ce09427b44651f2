"""What must not be copied into the record of a run: files with secrets, by name or by content, and parts of texts.

A file is left out as a whole, with the reason. In a command line, a cell of a notebook and the address of a remote only
the value gives way to ``***``, because the rest is needed to run it again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from pathlib import PurePosixPath
from typing import Final

from train_manager.files.secret_names import names_a_secret, names_a_service
from train_manager.files.secrets import ADDRESS, Found, looks_random, secrets_in

HIDDEN: Final = "***"

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
_CODE_OR_PROSE: Final = """
.py .pyi .pyx .ipynb .js .jsx .ts .tsx .c .cc .cpp .cu .cuh .h .hpp .java .kt .rs .go .jl .m .r .scala .rb .lua
.swift .cs .php .md .rst .tex .html .css .sql .proto
"""
"""Files in which the word after ``password =`` is the name of a variable, or prose, unless it stands in quotes."""

_WITH_VARIABLES: Final = frozenset(_CODE_OR_PROSE.split())
# All patterns in one expression, for speed: a repository may have 20,000 new files.
_NAME: Final = re.compile("|".join(map(translate, _NAMES.split())))
_PATH: Final = re.compile("|".join(f"(?:.*/)?{translate(pattern)}" for pattern in _PATHS.split()))
_LOOKED_AT: Final = 8192  # first bytes that are searched for a NUL, which makes a file binary; git searches 8000
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PIECE: Final = 500_000  # bytes that are searched at once
_OVERLAP: Final = 4096  # longer than any secret except private keys, which their first line gives away
# `--name=value`, and `+name=value` or `name:=value` as Hydra and others write it.
_ARGUMENT: Final = re.compile(r"(?P<name>[-+~]*[A-Za-z][\w.@/-]*)(?P<sign>=|:=)(?P<value>.*)", re.DOTALL | re.ASCII)
_FLAG: Final = re.compile(r"--?[A-Za-z][\w.-]*", re.ASCII)


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
    if _has_a_secret_name(path):
        return "its name is that of a secret file"
    if content is None:
        return None
    is_text = holds_text(content)
    bare = PurePosixPath(path).suffix.lower() not in _WITH_VARIABLES
    lines = 0
    for text in _texts(content):
        found = [one for one in secrets_in(text, bare=bare, assignments=is_text) if not _is_an_example(text, one)]
        if found:
            where = f" (line {lines + text.count(chr(10), 0, found[0].start) + 1})" if is_text else ""
            return f"it holds what looks like {found[0].kind}{where}"
        # Without the overlap, whose lines are counted with the next piece.
        lines += text.count("\n", 0, _PIECE)
    return None


def holds_text(content: bytes) -> bool:
    """Return whether a file is one of text: without a NUL at its beginning, as git has it, or in UTF-16."""
    return b"\0" not in content[:_LOOKED_AT] or content.startswith(_UTF_16)


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
    for start, end, kind in secrets_in(text, bare=bare):
        # An address keeps the @ that separates its credentials from the host.
        shown = HIDDEN if kind != ADDRESS or text[end : end + 1] == "@" else f"{HIDDEN}@"
        parts += [text[done:start], shown]
        done = end
    return "".join([*parts, text[done:]])


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line with ``***`` in the place of secrets, by the names of its options or by their form.

    >>> redacted_arguments(["train.py", "--token", "abc", "--password=x", "wandb.api_key=y", "--num_tokens", "5"])
    ['train.py', '--token', '***', '--password=***', 'wandb.api_key=***', '--num_tokens', '5']
    """
    shown: list[str] = []
    option = ""  # the option before the argument
    for argument in arguments:
        is_option = _FLAG.fullmatch(argument) is not None
        is_hidden = option and not is_option and _is_secret(option, argument)
        shown.append(_hide(argument) if is_hidden else _redact_argument(argument))
        option = argument if is_option else ""
    return shown


def _is_an_example(text: str, found: Found) -> bool:
    """Return whether it is an address such as ``https://me:hunter2@example.com``, of which documentation is full."""
    is_at_example = re.compile(r"@(?:[\w-]+\.)?example\.(?:com|org|net)\b", re.ASCII).match(text, found.end)
    return found.kind == ADDRESS and is_at_example is not None and not looks_random(text[found.start : found.end])


def _has_a_secret_name(path: str) -> bool:
    whole = path.lower()
    name = whole.rpartition("/")[2]
    if name.endswith(_SAMPLES):
        return False
    return _NAME.match(name) is not None or _PATH.match(whole) is not None


def _texts(content: bytes) -> Iterator[str]:
    """Yield a content as text, in pieces that overlap."""
    # In pieces, because a regular expression holds the GIL: the training runs between two of them.
    if content.startswith(_UTF_16):  # PowerShell writes UTF-16
        content = content.decode("utf-16", errors="replace").encode("latin-1", errors="replace")
    for start in range(0, len(content), _PIECE):  # latin-1 maps each byte to a character; secrets are ASCII
        yield content[start : start + _PIECE + _OVERLAP].decode("latin-1")


def _redact_argument(argument: str) -> str:
    match = _ARGUMENT.fullmatch(argument)
    if match is None or not _is_secret(match["name"], match["value"]):
        return redacted(argument)
    return match["name"] + match["sign"] + _hide(match["value"])


def _is_secret(name: str, value: str) -> bool:
    return names_a_secret(name) or (names_a_service(name) and looks_random(value))


def _hide(value: str) -> str:
    """Return ``***``, unless the value is harmless."""
    # `$NAME`, `%NAME%` and `{name}` stand for a value elsewhere; `<pad>` and `[MASK]` are tokens of tokenizers.
    return value if re.fullmatch(r"[$<%{\[].*|", value, re.DOTALL) else HIDDEN
