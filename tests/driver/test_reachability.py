"""Addresses at which no cluster can be joined are refused at once, where Ray would try for minutes."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.certificates import ray_tls
from tests.commands import ROOT, environment, study_file, tuner
from tests.searches import CURVE, study
from tests.test_several_devices import ON_LOOPBACK
from tuner.driver.reachability import check_reachable
from tuner.errors import StudyError


@contextmanager
def grpc_server(files: dict[str, str] | None) -> Iterator[str]:
    """A server of the kind that Ray's processes are, which wants a certificate of its clients where it has TLS."""
    server = grpc.server(ThreadPoolExecutor(1))
    if files is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        key, own, authority = (
            Path(files[f"RAY_TLS_{name}"]).read_bytes() for name in ("SERVER_KEY", "SERVER_CERT", "CA_CERT")
        )
        credentials = grpc.ssl_server_credentials([(key, own)], authority, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def refused(address: str) -> str:
    with pytest.raises(StudyError) as error:
        check_reachable(address)
    return str(error.value)


def test_where_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    assert refused(address) == (
        f"--address needs a running Ray cluster, got '{address}', where nothing answers (Connection refused); "
        "start one with `ray start --head`, or leave --address out"
    )
    for wrong in ("no-such-host.invalid:6379", "127.0.0.1:99999", "a..b:6379"):
        assert f"got '{wrong}', where nothing answers (" in refused(wrong)
    for looked_up_by_ray in ("auto", "ray://127.0.0.1:10001"):
        check_reachable(looked_up_by_ray)


def test_one_side_alone_has_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    files = ray_tls(tmp_path)
    with grpc_server(files) as with_tls, grpc_server(None) as plain:
        check_reachable(plain)
        assert refused(with_tls).startswith(
            f"a Ray cluster with TLS needs TLS on this side, too, got '{with_tls}' and no RAY_USE_TLS; set RAY_USE_TLS=1"
        )
        monkeypatch.setenv("RAY_USE_TLS", "1")
        check_reachable(with_tls)
        assert refused(plain) == (
            f"RAY_USE_TLS=1 needs a Ray cluster with TLS, got '{plain}', which has none; start its nodes with the same "
            "variables, or unset RAY_USE_TLS"
        )


def test_a_server_that_says_nothing_is_left_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.driver.reachability.SECONDS", 0.2)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        check_reachable(f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_on_a_cluster_with_tls(tmp_path: Path) -> None:
    variables = {**ray_tls(tmp_path), **ON_LOOPBACK}
    study_file(tmp_path, study(CURVE, trials=4))
    command = [sys.executable, "-m", "tests.two_nodes"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(**variables), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nodes:
        assert nodes.stdin is not None
        assert nodes.stdout is not None
        address = nodes.stdout.readline().strip()
        command = ["run", "space.py", "--address", address, "--wandb", "off", "--json"]
        finished = tuner(*command, folder=tmp_path, **variables)
        without = tuner(*command, folder=tmp_path, **ON_LOOPBACK)
        nodes.stdin.close()
    assert finished.code == 0, finished.err
    assert sum(finished.json["trials"][status] for status in ("completed", "stopped")) == 4
    assert (without.code, "a Ray cluster with TLS needs TLS on this side, too" in without.err) == (2, True), without.err
