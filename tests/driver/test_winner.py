"""A winner whose checkpoint was cleaned away keeps what best/ has of it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.loop.simulation import build, drive, study
from tuner import ImageClassifier, TrialError
from tuner.driver.winner import _score_on_worker, write_winner
from tuner.lifecycle.writing_best import NoNetworkError
from tuner.machine.hardware import this_machine
from tuner.storage.folder import LocalFolder
from tuner.study.resources import Resources
from tuner.worker.pickling import pickle_trial, sendable


def test_a_scored_winner_is_not_replaced_by_less(tmp_path: Path) -> None:
    loop, folder = build(study(), tmp_path), LocalFolder(tmp_path)
    drive(loop)
    loop.end()
    write_winner(loop.study, folder, loop.record, Resources(), 1, lambda: False)
    assert (tmp_path / "best" / "metrics.json").is_file()
    (tmp_path / "best" / "model.safetensors").write_bytes(b"weights")
    best = loop.record.best_trial()
    assert best is not None
    best.checkpoints.clear()
    write_winner(loop.study, folder, loop.record, Resources(), 1, lambda: False)
    assert (tmp_path / "best" / "model.safetensors").read_bytes() == b"weights"

    (tmp_path / "best" / "metrics.json").write_text(json.dumps({"trial": "another", "epoch": 1}))
    with pytest.raises(NoNetworkError, match=r"was not kept; best/ keeps the network of an earlier winner$"):
        write_winner(loop.study, folder, loop.record, Resources(), 1, lambda: False)
    assert (tmp_path / "best" / "model.safetensors").read_bytes() == b"weights"

    (tmp_path / "best" / "model.safetensors").unlink()
    write_winner(loop.study, folder, loop.record, Resources(), 1, lambda: False)
    assert json.loads((tmp_path / "best" / "metrics.json").read_text())["trial"] == best.trial


DETAILS = {"trial": "00000", "epoch": 1, "metrics": {}}  # which has no checkpoint


def scored(folder: Path, device: str = "cpu", threads: int = 1) -> None:
    trial = pickle_trial(ImageClassifier("digits", "resnet18", None))
    with pytest.raises(TrialError, match="00000"):
        _score_on_worker(trial, [], sendable({}), None, str(folder), 0, device, threads, DETAILS)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("device", "sees"), [("cpu", ""), ("cuda", "0")])
def test_a_winner_is_scored_with_the_gpus_of_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, sees: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    scored(tmp_path, device)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == sees


def test_a_winner_is_scored_by_the_threads_of_all_trials_but_no_more_than_the_machine_has(tmp_path: Path) -> None:
    for threads, used in ((1, 1), (10_000, this_machine().cpus)):
        scored(tmp_path, threads=threads)
        assert torch.get_num_threads() == used
