from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from tuner.storage.conditional import UnconditionalStore, _s3, _shared_credentials, create_object

CREDENTIALS = """
[default]
aws_access_key_id = USUAL
aws_secret_access_key = 50%
[other]
aws_access_key_id = OTHER
aws_secret_access_key = secret
aws_session_token = token
[single-sign-on]
sso_session = work
"""


def test_a_store_of_an_unknown_kind_has_no_conditional_writes() -> None:
    with pytest.raises(UnconditionalStore):
        create_object("hdfs://cluster/runs", "runs/one", b"1", LocalFileSystem())


def test_endpoint_region_and_account_are_those_of_the_uri() -> None:
    found = _s3("s3://me:a%2Fb@bucket/runs?endpoint_override=127.0.0.1:9000&scheme=http&region=eu-1", LocalFileSystem())
    assert found == {
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-1",
        "access_key_id": "me",
        "secret_access_key": "a/b",
    }


@pytest.mark.parametrize("endpoint", ["https://store.example", "store.example"])
def test_an_endpoint_speaks_https_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")  # obstore finds it by itself
    found = _s3(f"s3://bucket/runs?endpoint_override={endpoint}", LocalFileSystem())
    assert found == {"endpoint": "https://store.example", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("profile", "account"),
    [
        ("default", {"access_key_id": "USUAL", "secret_access_key": "50%"}),
        ("other", {"access_key_id": "OTHER", "secret_access_key": "secret", "session_token": "token"}),
        ("single-sign-on", {}),
        ("nowhere", {}),
    ],
)
def test_keys_come_from_the_shared_credentials_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, account: dict[str, str]
) -> None:
    (tmp_path / "credentials").write_text(CREDENTIALS)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", profile)
    assert _shared_credentials() == account


@pytest.mark.parametrize("content", [None, b"no sections", b"\xff\xfe"])
def test_a_credentials_file_that_is_missing_or_damaged_has_no_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "credentials").write_bytes(content)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert _shared_credentials() == {}
