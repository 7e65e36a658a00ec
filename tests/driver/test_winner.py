"""A winner whose checkpoint was cleaned away keeps what best/ has of it."""

import json
import os
from pathlib import Path

import pytest
import torch

from tests.loop.simulation import build, drive, study
from tuner.driver.winner import _score_on_worker, write_winner
from tuner.lifecycle.writing_best import NoNetworkError
from tuner.machine.hardware import this_machine
from tuner.storage.folder import LocalFolder
from tuner.study.resources import Resources


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


@pytest.mark.parametrize(("device", "sees"), [("cpu", ""), ("cuda", "0")])
def test_a_winner_is_scored_with_the_gpus_of_a_trial(monkeypatch: pytest.MonkeyPatch, device: str, sees: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(EOFError):  # there is no trial
        _score_on_worker(b"", [], None, None, "", 0, device, torch.get_num_threads(), {})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == sees


def test_a_winner_is_scored_by_the_threads_of_all_trials_but_no_more_than_the_machine_has() -> None:
    before = torch.get_num_threads()
    try:
        for threads, used in ((1, 1), (10_000, this_machine().cpus)):
            with pytest.raises(EOFError):
                _score_on_worker(b"", [], None, None, "", 0, "cuda", threads, {})
            assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(before)
