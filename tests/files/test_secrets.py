from __future__ import annotations

import pytest

from train_manager.files.secrets import secrets_in

RANDOM = "9f8e7d6c5b4a392817"
FORMS = {
    "hf_" + "aB3" * 10: "a token of Hugging Face",
    "sk-proj-" + "aB3x" * 8: "a key of OpenAI, Anthropic or Stripe",
    "sk_live_" + "a1B2" * 6: "a key of OpenAI, Anthropic or Stripe",
    "ghp_" + "a1B2" * 9: "a token of GitHub",
    "github_pat_" + "a1B2" * 9: "a token of GitHub",
    "glpat-" + "a1B2" * 5: "a token of GitLab",
    "xoxb-1234567890-abcdef": "a token of Slack",
    "AKIA" + "A1B2" * 4: "a key of AWS",
    "AIza" + "a1B2c" * 7: "a key of Google",
    "pypi-" + "AgEI" * 12: "a token of PyPI",
    "npm_" + "a1B2" * 9: "a token of npm",
    "SG." + "a1B2" * 6 + "." + "a1B2" * 6: "a key of SendGrid",
    "dapi" + "a1b2" * 8: "a token of Databricks",
    "r8_" + "a1B2" * 9: "a token of Replicate",
    "nvapi-" + "a1B2" * 9: "a key of NVIDIA",
    "gsk_" + "a1B2" * 9: "a key of Groq",
    "wandb_v1_" + "a1B2" * 9: "a key of Weights & Biases",
    "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4": "a JSON web token",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----": "a private key",
}

HARMLESS = [
    "tokenizer = AutoTokenizer.from_pretrained('gpt2')",
    "num_tokens, max_token = 1024, 2048",
    'pad_token="<pad>"',
    'image_token = "IMG1CONTEXT2TOKEN3"',
    'tokenizer.add_special_tokens({"eos_token": "<|endoftext|>"})',
    'password=os.environ["PASSWORD_2"]',
    'api_key = os.getenv("OPENAI_API_KEY_2")',
    "token = get_token_v2(path4)",
    "secret = other.secret1",
    'password: "must have at least 8 characters"',
    "The password is asked for; see section 4.2 for tokens and keys.",
    'API_KEY = "your-api-key-here-0123456789"',
    'password = "${DB_PASSWORD_1}"',
    'password = "<password1>"',
    'token = "llama-3-8b-instruct-v2"',
    'secret_path = "vault/9f8e7d6c5b4a392817"',
    'url = "https://user:{password}@host"',
    'url = "https://user:password@host"',
    'headers = {"Authorization": f"Bearer {token}"}',
    'checksum = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"',
    '<div class="sk-estimator-doc-link sk-toggleable__content-2">',
    "def f(password: str = '', token: str | None = None): ...",
    "for token in tokens[:12345678]: ...",
    'token_id = "9f8e7d6c5b4a392817"',
]

PLANTED = [
    f'API_KEY = "{RANDOM}"',
    f"api_key: str = '{RANDOM}'",
    f'os.environ["WANDB_API_KEY"] = "{RANDOM}"',
    f'os.environ.setdefault("WANDB_API_KEY", "{RANDOM}")',
    f'{{"auth_token": "{RANDOM}"}}',
    f'os.environ[\\"API_KEY\\"] = \\"{RANDOM}\\"',  # as a cell of a notebook has it in its file
    f'login(token="{RANDOM}")',
    f"export AWS_SECRET_ACCESS_KEY={RANDOM}",
    f"secretKey: {RANDOM}",
    f"python train.py --api-key {RANDOM}",
    'password = "hunter2"',
    "db_password: hunter2",
    "PASSWD=tr0ub4dor&3",
    f"curl -H 'Authorization: Bearer {RANDOM}'",
    f"https://host/path?access_token={RANDOM}",
    "https://me:hunter2@host/x.git",
    f"https://{RANDOM}abc@host/x.git",
    'token = "550e8400-e29b-41d4-a716-446655440000"',
]


def found(text: str) -> list[str]:
    return [text[start:end] for start, end, _ in secrets_in(text)]


@pytest.mark.parametrize(
    ("secret", "kind"), FORMS.items(), ids=[f"{n} {kind}" for n, kind in enumerate(FORMS.values())]
)
def test_a_token_is_known_by_its_form(secret: str, kind: str) -> None:
    text = f'\nx = ("{secret}", 1)\n'

    assert [(text[start:end], kind) for start, end, kind in secrets_in(text)] == [(secret, kind)]


@pytest.mark.parametrize("line", PLANTED)
def test_a_value_is_known_by_its_name_or_its_place(line: str) -> None:
    (secret,) = found(f"import torch\n{line}\nx = 1\n")

    assert RANDOM in secret or secret in line.replace('"', "'")


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_no_secret_is_left_alone(line: str) -> None:
    assert found(f"import torch\n{line}\nx = 1\n") == []


def test_a_word_without_quotes_is_a_variable_where_that_is_said() -> None:
    assert secrets_in("password = hunter2", bare=False) == []


def test_a_token_in_the_query_of_an_address_is_found_in_code_too() -> None:
    text = f'get("https://host/x?size=1&access_token={RANDOM}")'

    assert [text[start:end] for start, end, _ in secrets_in(text, bare=False)] == [RANDOM]


@pytest.mark.parametrize("entries", ["Password=hunter2;Server=db", "Server=db;Password=hunter2"])
def test_a_password_in_a_connection_string_is_found_in_code_too(entries: str) -> None:
    text = f'connect("{entries}")'

    assert [text[start:end] for start, end, _ in secrets_in(text, bare=False)] == ["hunter2"]


@pytest.mark.parametrize("word", ["Bearer", "bearer", "BEARER", "Token", "Basic"])
def test_a_random_word_behind_the_words_of_a_header_is_found(word: str) -> None:
    assert found(f"curl -H 'Authorization: {word} {RANDOM}'") == [RANDOM]
    assert found(f"curl -H 'Authorization: {word} authentication-by-name'") == []


def test_a_letter_that_becomes_two_in_small_ones_moves_no_place() -> None:
    assert found('x = "İİİİ"\npassword = "hunter2"') == ["hunter2"]


def test_a_secret_within_another_is_told_once() -> None:
    assert found(f'token = "ghp_{"a1B2" * 9}"') == ["ghp_" + "a1B2" * 9]


def test_a_file_that_repeats_the_words_of_secrets_is_read_in_one_go() -> None:
    """A count of steps, not a time: an expression that goes back from each word would never end here."""
    assert found("password" * 20_000 + "=" * 20_000 + "token " * 20_000) == []
