from __future__ import annotations

import pytest

from train_manager.files.secrets import (
    reason_to_leave_out,
    redacted,
    redacted_arguments,
)

RANDOM = "9f8e7d6c5b4a392817"
HEX = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c"
NAMED = "its name is that of a secret file"


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "app/.env.local", "prod.env", ".envrc", "server.pem", "tls/Server.KEY", "store.p12", "store.pfx"),
        *("android.keystore", "id_rsa", "keys/id_ed25519", "deploy_rsa", ".netrc", ".pypirc", ".npmrc", ".pgpass"),
        *(".git-credentials", "credentials.json", "service-account-42.json", "client_secret_1.json", "secrets.toml"),
        *(".streamlit/secrets.toml", "kubeconfig", ".htpasswd", "vpn.ovpn", ".ssh/config", "home/.aws/credentials"),
        *("kaggle.json", "home/.docker/config.json", "cache/huggingface/token"),
    ],
)
def test_a_secret_file_is_known_by_its_name(path: str) -> None:
    assert reason_to_leave_out(path, None) == NAMED


@pytest.mark.parametrize(
    "path",
    [
        *("train.py", ".env.example", ".env.sample", "id_rsa.pub", "secrets.py", "tokenizer.json", "environment.yml"),
        *("config.json", "data/token", "keys.txt", "model.keras", "credentials.py", "tests/test_password.py"),
    ],
)
def test_any_other_name_is_no_reason(path: str) -> None:
    assert reason_to_leave_out(path, b"x = 1\n") is None


def test_the_reason_names_the_kind_and_the_line_but_not_the_secret() -> None:
    reason = reason_to_leave_out("train.py", f'import wandb\n\nAPI_KEY = "{RANDOM}"\n'.encode())

    assert reason == "it holds what looks like a key or a token (line 3)"


def test_a_word_without_quotes_counts_in_a_configuration_only() -> None:
    assert reason_to_leave_out("conf.yaml", b"password: hunter2") == "it holds what looks like a password (line 1)"
    assert reason_to_leave_out("train.py", b"password = hunter2") is None


def test_a_token_in_a_binary_file_is_found_without_a_line() -> None:
    content = b"\0\1\2" + b"ghp_" + b"a1B2" * 9 + b"\0"

    assert reason_to_leave_out("model.bin", content) == "it holds what looks like a token of GitHub"


# ---- texts and command lines -----------------------------------------------------------------------------------------


def test_only_the_value_is_replaced_in_a_text() -> None:
    text = f'login(token="{RANDOM}")  # then train\n!curl https://me:hunter2@host/x'

    assert redacted(text) == 'login(token="***")  # then train\n!curl https://***@host/x'


def test_a_private_key_is_replaced_as_a_whole() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIB\nAAKCAQEA\n-----END RSA PRIVATE KEY-----"

    assert redacted(f'key = """{key}"""\nx = 1') == 'key = """***"""\nx = 1'


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--token=abc"], ["--token=***"]),
        (["--token", "abc", "--lr", "0.1"], ["--token", "***", "--lr", "0.1"]),
        (["--hf-token", "abc"], ["--hf-token", "***"]),
        (["--password", "1234"], ["--password", "***"]),
        (["wandb.api_key=abc", "+auth_token=abc"], ["wandb.api_key=***", "+auth_token=***"]),
        (["https://me:hunter2@host/x"], ["https://***@host/x"]),
        (["--data", f"https://host/x?token={RANDOM}"], ["--data", "https://host/x?token=***"]),
        (["-c", f'login(token="{RANDOM}"); train()'], ["-c", 'login(token="***"); train()']),
        (["-H", f"Authorization: Bearer {RANDOM}"], ["-H", "Authorization: Bearer ***"]),
        (["ghp_" + "a1B2" * 9], ["***"]),
        (["--set", "api_key=abc", "-o", "--", "token=abc"], ["--set", "api_key=***", "-o", "--", "token=***"]),
        (["--wandb", HEX, f"--openai={HEX}"], ["--wandb", "***", "--openai=***"]),
    ],
)
def test_only_the_value_is_replaced_in_a_command_line(given: list[str], shown: list[str]) -> None:
    assert redacted_arguments(given) == shown


@pytest.mark.parametrize(
    "given",
    [
        ["train.py", "--tokenizer", "gpt2", "--num_tokens", "5", "--max-token=7"],
        ["--pad_token", "<pad>", "--mask-token=[MASK]"],
        ["--token", "$HF_TOKEN", "--password="],
        ["--token-file", "path", "--use-token"],
        ["--token", "--lr", "0.1"],
        ["--revision", HEX, f"commit={HEX}", "--wandb", "online"],
    ],
)
def test_a_command_line_without_secrets_stays_as_it_is(given: list[str]) -> None:
    assert redacted_arguments(given) == given


@pytest.mark.parametrize("before", [499_990, 2_000_000])
def test_a_secret_is_found_however_deep_it_lies(before: int) -> None:
    key = b"AKIAIOSFODNN7ABCDEFG"
    text = b"a line\n" * (before // 7)

    assert reason_to_leave_out("a.bin", bytes(before) + key) == "it holds what looks like a key of AWS"
    where = f"(line {before // 7 + 1})"
    assert reason_to_leave_out("a.txt", text + key) == f"it holds what looks like a key of AWS {where}"
