"""Kinds of secrets, in files and elsewhere, and how many are found; what is missed is named here.

Each is made of parts as the test runs, so that no scanner of secrets takes this file for one that has them.
"""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from train_manager.files.secrets import looks_secret, reason_to_leave_out, redacted, redacted_arguments
from train_manager.runs.code.notebook import as_script
from train_manager.runs.record.environment import variables

HEX = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c"  # 40
MIXED = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5kM7n"
BASE64 = "k3J9dQ/2mX+7pLw4Zr8TbV1nYc6HsF0aGeUoIxKjRtMqPyWvDz5NhBlCfAuEi2S4gO7T1=="
UPPER = "A1B2C3D4E5F6G7H8I9J0"
UUID = "550e8400-e29b-41d4-a716-446655440000"
PASS = "hunter2x9"
PARTS = {
    "hex": HEX,
    "hex32": HEX[:32],
    "mixed": MIXED,
    "mixed6": MIXED[:6],
    "mixed24": MIXED[:24],
    "mixed30": MIXED[:30],
    "mixed32": MIXED[:32],
    "b64": BASE64,
    "upper": UPPER,
    "upper16": UPPER[:16],
    "uuid": UUID,
    "pass": PASS,
    "basic": b64encode(f"me:{PASS}".encode()).decode(),
    "letters": b64encode(b"user:letmeinplease").decode(),
    "begin": "-----BEGIN",
    "pem": b64encode(b"-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7").decode(),
    "sk": "sk_",
    "slack": "xoxb-",
    "gh": "ghp_",
    "aws": "AKIA",
    "google": "AIza",
    "words": "correct horse battery staple",
}

IN_FILES = """
run.sh | DB_PASS=<pass>
run.sh | export MYSQL_PASS='<pass>'
run.sh | python train.py --pass <pass>
run.sh | python train.py --db-password=<pass>
run.sh | wandb login <hex>
! run.sh | unzip -P <pass> x.zip
run.sh | huggingface-cli login --token hf_<mixed32>
! run.sh | curl -u me:<pass> https://host/x
run.sh | curl -H "Authorization: Basic <basic>" https://host
! run.sh | echo <pass> | docker login --password-stdin
run.sh | curl -H "Authorization: Bearer <mixed>" https://host
run.sh | curl -H "X-Api-Key: <mixed>" https://host
! run.sh | mysql -u root -p<pass> data
! run.sh | sshpass -p <pass> ssh me@host
! run.sh | redis-cli -a <pass> ping
run.sh | PGPASSWORD=<pass> psql
! run.sh | docker login -u me -p <pass>
run.sh | export AWS_SECRET_ACCESS_KEY=<mixed>
run.sh | wget "https://host/x?access_token=<mixed>"
train.py | parser.add_argument("--api-key", default="<mixed>")
train.py | parser.add_argument("--password", type=str, help="of it", default='<pass>')
train.py | parser.add_argument(\\n    "--token",\\n    type=str,\\n    default="<hex>",\\n)
train.py | @click.option("--password", default="<pass>")
train.py | api_key: str = Field(default="<mixed>")
train.py | password: str = typer.Option("<pass>")
train.py | api_key = os.environ.get("API_KEY", "<mixed>")
train.py | os.environ["WANDB_API_KEY"] = "<hex>"
train.py | wandb.login(key="<hex>")
train.py | openai.api_key = "sk-proj-<mixed>"
! train.py | password = "swordfish"
! train.py | PASSWORD = "<words>"
! train.py | db_password = "correct-horse-battery-staple"
train.py | password = "pa$$word1"
train.py | PASSWORD = (\\n    "<pass>"\\n)
! train.py | smtp.login("me@x.org", "<pass>")
train.py | subprocess.run(["wandb", "login", "<hex>"])
train.py | token = \"\"\"<mixed>\"\"\"
train.py | # password: <pass>
! train.py | GITHUB_PAT = "<mixed>"
! train.py | cookies = {"session": "<mixed>"}
! train.py | jwt.encode(x, "<mixed>")
! train.py | client.run("M<mixed24>.<mixed6>.<mixed30>")
! train.py | headers = {"Authorization": "Basic <letters>"}
! train.py | requests.get(url, auth=("me", "<pass>"))
train.py | conn = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=<b64>;EndpointSuffix=x"
train.py | conn = "Server=db;User Id=me;Password=<pass>;"
train.py | engine = create_engine("postgresql://me:<pass>@host/db")
train.py | MongoClient("mongodb+srv://me:<pass>@cluster0.mongodb.net")
train.py | redis.from_url("redis://:<pass>@host:6379")
train.py | SECRET_KEY = "django-insecure-8x!k2@p$r7^m=1(q+z%5v"
train.py | app.secret_key = b"<mixed>"
train.py | stripe.api_key = "<sk>test_<mixed24>"
train.py | endpoint_secret = "whsec_<mixed32>"
train.py | neptune.init_run(api_token="eyJhcGlfYWRkcmVz.<mixed>.<mixed>")
train.py | client_secret = "<mixed32>"
train.py | bot = Bot("1234567890:AA<mixed32>x")
train.py | sentry_sdk.init("https://<hex32>@o1.ingest.sentry.io/2")
train.py | requests.post("https://hooks.slack.com/services/T0/B0/<mixed24>")
train.py | requests.post("https://discord.com/api/webhooks/123456/<mixed>_<mixed>")
conf.yaml | password: <pass>
! conf.yaml | password:\\n  <pass>
! conf.yaml | api_key: >-\\n  <mixed>
! conf.yaml | db:\\n  password: swordfish
conf.yaml | - DB_PASSWORD=<pass>
! conf.yaml | - name: DB_PASSWORD\\n    value: <pass>
conf.yaml | auth: {user: me, password: <pass>}
conf.yaml | client-key-data: <pem>
conf.yaml | token: <mixed>
conf.json | {"password": "<pass>"}
! conf.json | {"auths": {"host": {"auth": "<basic>"}}}
conf.json | {"private_key": "<begin> PRIVATE KEY-----\\\\nMIIE"}
conf.json | {"heroku_api_key": "<uuid>"}
pom.xml | <password><pass></password>
app.properties | spring.datasource.password=<pass>
Dockerfile | ENV DB_PASSWORD <pass>
Dockerfile | ARG API_TOKEN=<mixed>
main.tf | id = "<aws><upper16>"
Makefile | TOKEN := <mixed>
Main.java | String password = "<pass>";
app.js | const apiKey = '<google><mixed>';
main.c | #define API_KEY "<mixed>"
setup.R | Sys.setenv(OPENAI_API_KEY = "<mixed>")
notes.txt | shopify shpat_<hex32>
notes.txt | do dop_v1_<hex32><hex32>
notes.txt | vault hvs.<mixed>
key.txt | <begin> OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXk
n.ipynb | "os.environ[\\\\"API_KEY\\\\"] = \\\\"<mixed>\\\\"\\\\n",
n.ipynb | "!wandb login <hex>\\\\n",
"""
"""What is marked is missed: values of an option of one letter, plain words, of other names, below, in base64."""

ARGUMENTS = """
--pass <pass>
--db-pass=<pass>
DB_PASS=<pass>
--password=swordfish
--pwd <pass>
! -p <pass>
! --user me:<pass>
--wandb <hex>
wandb.key=<hex>
--openai-api-key=<mixed>
--credentials <pass>
--access_key <upper>
-H 'Authorization: Basic <basic>'
-H 'X-Api-Key: <mixed>'
--conn 'Server=db;Password=<pass>;'
--config '{"password": "<pass>"}'
--url https://me:<pass>@host/x
! --url https://host/x?sig=<mixed>
--env API_KEY=<mixed>
-c 'wandb.login(key="<hex>")'
--dsn https://<hex32>@sentry.io/2
--key <sk>test_<mixed24>
"""
"""What is marked may be a port or a patience, a place in a file, and any number."""
VARIABLES = """
DB_PASS=<pass>
APP_PASSWORD=swordfish
APP_AUTH=Basic <basic>
APP_CONNECTION=Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey=<b64>;
APP_STORE=AccountName=a;AccountKey=<b64>;
APP_ID=<aws><upper16>
WANDB_KEY=<hex>
APP_STRIPE=<sk>test_<mixed24>
APP_HOOK=https://hooks.slack.com/services/T0/B0/<mixed24>
APP_DB=postgres://me:<pass>@host/db
"""
TEXTS = """
the key is <sk>test_<mixed24>
login with password: <pass>
Authorization: Basic <basic>
wandb login <hex>
AccountName=a;AccountKey=<b64>;
cannot connect to postgres://me:<pass>@host/db
DB_PASS=<pass>
KeyError: {'api_key': '<mixed>'}
"""
CELLS = """
!wandb login <hex>
%env DB_PASS=<pass>
"""


def filled(text: str) -> str:
    for name, part in PARTS.items():
        text = text.replace(f"<{name}>", part)
    return text


def lines_of(text: str) -> list[str]:
    return text.strip().split("\n")


def is_found_in_file(line: str) -> bool:
    name, _, content = line.partition(" | ")
    content = filled(content.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\"))
    return reason_to_leave_out(name, f"first line\n{content}\n".encode()) is not None


def is_hidden(shown: str) -> bool:
    prefixes = ("begin", "sk", "slack", "gh", "aws", "google", "mixed6")
    parts = [part for name, part in PARTS.items() if name not in prefixes]
    return not any(part in shown for part in [*parts, "swordfish"])


def hides_arguments(line: str) -> bool:
    return is_hidden(json.dumps(redacted_arguments(["train.py", *shlex.split(filled(line))])))


def hides_variable(line: str) -> bool:
    name, _, value = filled(line).partition("=")
    return is_hidden(json.dumps(variables({name: value}, ["*"]))) and looks_secret(name.lower(), value)


ELSEWHERE: list[tuple[str, Callable[[str], bool]]] = [
    *((line, hides_arguments) for line in lines_of(ARGUMENTS)),
    *((line, hides_variable) for line in lines_of(VARIABLES)),
    *((line, lambda line: is_hidden(redacted(filled(line)))) for line in lines_of(TEXTS)),
    *((line, lambda line: is_hidden(as_script([filled(line)]))) for line in lines_of(CELLS)),
]


SCANNED = """
key = "<aws><upper16>"
AccountKey=<b64_86>==
https://me:<pass>@host/x
token = "<gh><mixed36>"
token = "glpat-<mixed24>"
//registry.npmjs.org/:_authToken=<uuid>
sk-<mixed20>T3BlbkFJ<mixed20>
<begin> RSA PRIVATE KEY-----
pypi-AgEIcHlwaS5vcmc<mixed><mixed>
SG.<mixed22>.<mixed>xyz
<slack>1234567890-abcdefabcdef
https://hooks.slack.com/services/T0A/B0A/<mixed24>
<sk>live_<mixed24>
1234567890:AA<mixed33>
eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.<mixed>
"""


@pytest.mark.parametrize("line", lines_of(SCANNED))
def test_what_detect_secrets_finds_is_found(line: str) -> None:
    scan = pytest.importorskip("detect_secrets.core.scan")
    settings = pytest.importorskip("detect_secrets.settings")
    parts = {f"mixed{length}": MIXED[:length] for length in (20, 22, 33, 36)} | {
        "b64_86": (BASE64 * 2)[:70] + BASE64[:16]
    }
    for name, part in parts.items():
        line = line.replace(f"<{name}>", part)
    line = filled(line)
    with settings.default_settings():
        assert [*scan.scan_line(line)], "the other tool finds it"

    assert reason_to_leave_out("notes.txt", line.encode()) is not None


CODE_BASES = ("torch", "numpy", "matplotlib", "hypothesis", "sklearn", "pandas")
NOT_READ = (".so", ".pyc", ".npz", ".npy", ".gz")


def files_of(package: str) -> list[Path]:
    found = pytest.importorskip(package).__file__
    paths = (path for path in Path(found).parent.rglob("*") if path.is_file() and path.suffix not in NOT_READ)
    return [path for path in sorted(paths) if path.stat().st_size < 1_000_000][:1500]


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("package", CODE_BASES)
def test_fewer_than_one_file_in_a_hundred_of_foreign_code_is_left_out(package: str) -> None:
    files = files_of(package)
    left_out = [path for path in files if reason_to_leave_out(path.name, path.read_bytes())]

    assert len(left_out) < len(files) / 100


def test_of_88_kinds_in_files_66_are_found() -> None:
    kinds = lines_of(IN_FILES)

    assert len(kinds) == len({*kinds}) == 88
    assert [line for line in kinds if is_found_in_file(line.removeprefix("! ")) == line.startswith("! ")] == []
    assert sum(line.startswith("! ") for line in kinds) == 22


def test_of_42_kinds_elsewhere_39_are_found() -> None:
    assert len(ELSEWHERE) == 42
    assert [line for line, hides in ELSEWHERE if hides(line.removeprefix("! ")) == line.startswith("! ")] == []
    assert sum(line.startswith("! ") for line, _ in ELSEWHERE) == 3
