"""Azurite, Microsoft's emulator of Azure's Blob Storage, on this machine: a real server with accounts and signatures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

AZURITE = "azurite@3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # as its manual has it
SERVE = ("--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--blobHost", "127.0.0.1")


def azurite() -> str:
    """The program: that of this machine, else one that npm installs; the test is skipped where neither can be had."""
    found = shutil.which("azurite-blob")
    if found is not None:
        return found
    folder = Path(tempfile.gettempdir()) / f"tuner-{AZURITE}"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("needs Azurite: npm install --global azurite")
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", AZURITE]
        finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if finished.returncode:
            pytest.skip(f"needs Azurite, which npm could not install: {finished.stderr.strip()[-300:]}")
    return str(program)


@contextmanager
def azure_account(container: str) -> Iterator[dict[str, str]]:
    """Variables of the environment that name an account with one container; they are set inside."""
    program = azurite()
    with subprocess.Popen([program, *SERVE, "--blobPort", "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = next(found[1] for line in server.stdout if (found := re.search(r"listens on http://[\d.]+:(\d+)", line)))
        account = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in account.items():
                patch.setitem(os.environ, name, value)
            try:
                from tuner.storage.azure import AzurePlace

                AzurePlace.of(f"abfs://{container}").filesystem().create_dir(container)
                yield account
            finally:
                server.kill()
