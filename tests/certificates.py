"""Certificates of an authority that a test makes itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def ray_tls(folder: Path) -> dict[str, str]:
    """Variables that give a Ray process on loopback TLS, with files that are made in the folder."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.2,IP:127.0.0.3\n"
    (folder / "names").write_text(names)
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    for command in (
        f"req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.crt",
        f"req {key} -subj /CN=localhost -keyout node.key -out node.csr",
        "x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out node.crt",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    files = {"SERVER_CERT": "node.crt", "SERVER_KEY": "node.key", "CA_CERT": "ca.crt"}
    return {"RAY_USE_TLS": "1"} | {f"RAY_TLS_{name}": str(folder / file) for name, file in files.items()}
