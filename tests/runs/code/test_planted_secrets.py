"""Tokens planted wherever a repository or a command may have them: none of them reaches the folder of the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.code.repositories import git, repository, write
from train_manager.runs.code.take import take_code_record

KEY = "a1B2c3D4e5F6g7H8i9J0"
TOKENS = {
    "remote": f"ghp_Remote{KEY}{KEY}",
    "push": f"Push{KEY}",
    "instead": f"Instead{KEY}",
    "submodule": f"Submodule{KEY}",
    "ignored": f"Ignored{KEY}",
    "tracked .env": f"TrackedEnv{KEY}",
    "new .env": f"NewEnv{KEY}",
    "script": f"Script{KEY}",
    "committed": f"Committed{KEY}",
    "staged": f"Staged{KEY}",
    "pem": f"Pem{KEY}",
    "large": f"Large{KEY}",
    "cell": f"Cell{KEY}",
    "helper": f"Helper{KEY}",
    "header": f"Header{KEY}",
    "query": f"Query{KEY}",
    "excluded": f"Excluded{KEY}",
}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A repository with a token in each place."""
    token = {name: text.encode() for name, text in TOKENS.items()}
    committed = {
        ".gitignore": b"ignored.py\n",
        "train.py": b"lr = 0.1\n",
        "cleaned.py": b'API_KEY = "' + token["committed"] + b'"\n',
        "gone.py": b'API_KEY = "' + token["committed"] + b'"\n',
        ".env": b"x=1\n",
        "large.txt": b"x\n" * 600_000,
    }
    code = repository(tmp_path / "code", committed)
    changed = {
        "train.py": b'lr = 0.2\nAPI_KEY = "' + token["script"] + b'"\n',
        "cleaned.py": b"API_KEY = None\n",  # its difference from the commit has the key
        ".env": b"TOKEN=" + token["tracked .env"] + b"\n",
        "prod.env": b"TOKEN=" + token["new .env"] + b"\n",
        "ignored.py": b'API_KEY = "' + token["ignored"] + b'"\n',
        "staged.py": b'API_KEY = "' + token["staged"] + b'"\n',
        "server.txt": b"-----BEGIN PRIVATE KEY-----\n" + token["pem"] + b"\n-----END PRIVATE KEY-----\n",
        "large.txt": b'API_KEY = "' + token["large"] + b'"\n' + b"x\n" * 600_000,
        ".git/info/exclude": b"excluded.py\n",
        "excluded.py": b'API_KEY = "' + token["excluded"] + b'"\n',
        "harmless.py": b'pad_token = "<pad>"\n',
    }
    write(code, changed)
    (code / "gone.py").unlink()
    git(code, "add", "staged.py")
    (code / "staged.py").write_text("API_KEY = None\n")
    for name, value in {
        "remote.origin.url": f"https://me:{TOKENS['remote']}@host.invalid/x.git",
        "remote.origin.pushurl": f"https://{TOKENS['push']}@host.invalid/x.git",
        "remote.query.url": f"https://host.invalid/x.git?private_token={TOKENS['query']}",
        f"url.https://me:{TOKENS['instead']}@host.invalid/.insteadOf": "https://host.invalid/",
        "submodule.inner.url": f"https://me:{TOKENS['submodule']}@host.invalid/y.git",
        "credential.helper": f"!echo password={TOKENS['helper']}",
        "http.extraHeader": f"Authorization: Bearer {TOKENS['header']}",
    }.items():
        git(code, "config", name, value)
    write(
        code,
        {
            ".gitmodules": f'[submodule "inner"]\n\tpath = inner\n\turl = https://me:{TOKENS["submodule"]}@host.invalid/y.git\n'.encode()
        },
    )
    return code


def found_in(folder: Path) -> list[tuple[str, str]]:
    """Return the tokens that some file of a folder has, or some name."""
    files = {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}
    return [
        (name, str(path.relative_to(folder)))
        for name, token in TOKENS.items()
        for path, content in files.items()
        if token.encode() in content or token in path.name
    ]


def test_no_planted_token_is_found_in_the_folder_of_the_training(planted: Path, tmp_path: Path) -> None:
    cells = [f'login(token="{TOKENS["cell"]}")', f"%env API_KEY={TOKENS['cell']}", f"!tool --token {TOKENS['cell']}"]

    take_code_record(planted, tmp_path / "train_dir", "run1", cells=cells, loaded=[planted / "ignored.py"])

    assert found_in(tmp_path / "train_dir") == []


def test_what_was_left_out_is_named_with_the_reason_and_the_rest_is_kept(planted: Path, tmp_path: Path) -> None:
    record = take_code_record(planted, tmp_path / "train_dir", "run1")

    left_out = {file["path"]: file["why"] for file in record["repositories"][0]["left_out"]}
    assert left_out == {
        ".env": "its name is that of a secret file",
        ".gitmodules": "it holds what looks like an address with a password (line 3)",
        "large.txt": "it holds what looks like a key or a token (line 1)",
        "prod.env": "its name is that of a secret file",
        "server.txt": "it holds what looks like a private key (line 1)",
        "train.py": "it holds what looks like a key or a token (line 2)",
    }
    kept = {file["path"] for file in record["repositories"][0]["files"] if file["status"] != "deleted"}
    assert kept == {"cleaned.py", "harmless.py", "staged.py"}
