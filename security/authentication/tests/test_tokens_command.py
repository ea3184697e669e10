"""`vela tokens`."""

from __future__ import annotations

import os
import stat
import time

import jwt
import pytest
from click.testing import CliRunner

from security.authentication.tokens_command import command


def run(*arguments: str, **options):
    return CliRunner().invoke(command, arguments, **options)


def output_of(*arguments: str, **options) -> str:
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def refusal_of(*arguments: str, **options) -> str:
    result = run(*arguments, **options)
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line.startswith("vela: ")
    return line


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_signs_and_verifies(tmp_path, algorithm):
    path = tmp_path / "secret.key"
    output_of("create-secret-key", "-a", algorithm, "--output", str(path))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    made = output_of("create", "--secret-key", f"file://{path}", "--subject", "alice")
    assert jwt.decode(made, path.read_bytes(), [algorithm]) == {"sub": "alice"}
    assert jwt.get_unverified_header(made) == {"alg": algorithm}
    assert output_of("validate", "-sk", str(path), made) == '{"sub":"alice"}'
    assert output_of("show", made) == f'{{"alg":"{algorithm}"}}\n---\n{{"sub":"alice"}}'


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES512"])
def test_a_key_pair_signs_and_verifies(tmp_path, algorithm):
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    keys = ("--output-private-key", str(private), "--output-public-key", str(public))
    output_of("create-key-pair", "-a", algorithm, *keys)
    assert stat.S_IMODE(os.stat(private).st_mode) == 0o600
    made = output_of("create", "-pk", f"file://{private}", "-a", algorithm, "-s", "alice")
    assert output_of("validate", "-pk", str(public), "-a", algorithm, made) == '{"sub":"alice"}'
    other = tmp_path / "other"
    output_of("create-secret-key", "-o", str(other))
    assert "not valid" in refusal_of("validate", "-sk", str(other), made)


def test_a_secret_may_be_base64():
    secret = output_of("create-secret-key", "--base64")
    made = output_of("create", "-sk", secret, "-s", "alice", "-e", "5m")
    claims = jwt.decode(made, options={"verify_signature": False})
    assert 290 < claims["exp"] - time.time() <= 300
    assert '"exp":' in output_of("validate", "-sk", secret, made)


def test_a_token_may_come_from_anywhere(tmp_path):
    secret = output_of("create-secret-key", "-b")
    made = output_of("create", "-sk", secret, "-s", "alice")
    path = tmp_path / "token"
    path.write_text(made + "\n")
    assert "alice" in output_of("show", "--token-file", str(path))
    assert "alice" in output_of("show", "--stdin", input=made + "\n")
    assert "alice" in output_of("show", env={"TOKEN": made})
    assert "give the token" in refusal_of("show", env={"TOKEN": None})


def test_mistakes_are_told_in_one_line_without_secrets(tmp_path):
    secret = output_of("create-secret-key", "-b")
    made = output_of("create", "-sk", secret, "-s", "alice", "-e", "1s")
    told = [
        refusal_of("create", "-s", "alice"),
        refusal_of("create", "-s", "alice", "-sk", secret, "-e", "soon"),
        refusal_of("create", "-s", "alice", "-sk", "AAAA"),
        refusal_of("create", "-s", "alice", "-pk", secret),
        refusal_of("create", "-s", "alice", "-sk", secret, "--headers", "x"),
        refusal_of("validate", made),
        refusal_of("validate", "-sk", secret, made + "x"),
        refusal_of("validate", "-pk", secret, made),
        refusal_of("show", "x"),
        refusal_of("show", "-f", str(tmp_path / "missing")),
        refusal_of("create-secret-key", "-o", str(tmp_path / "missing" / "key")),
    ]
    assert not [line for line in told if secret in line or made in line]
