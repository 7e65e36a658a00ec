"""Searches whose workers can't use their GPU any more; the errors are raised as torch raises them."""

from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tests.searches import study
from tuner import load_run

pytestmark = pytest.mark.ray

SAID = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
BODY = f"""
import os
from pathlib import Path

def train(config):
    import torch

    starts = Path({{folder!r}})
    number = len(list(starts.iterdir()))
    (starts / f"{{{{number}}}}-{{{{os.getpid()}}}}").touch()
    tuner.report(loss=config["x"], off=os.environ["TUNER_SWITCHED_OFF"])
    if number == 0:
        raise torch.AcceleratorError("CUDA error: misaligned address\\n{SAID}")
    if number == 1:
        raise torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered\\n{SAID}")
    if number == 3:
        raise ValueError("a trial's own mistake")
"""


OFF = {"TUNER_SWITCHED_OFF": "graph"}  # reaches workers as the driver's environment does


@pytest.mark.slow
def test_a_worker_whose_gpu_is_unusable_is_replaced_and_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "starts").mkdir()
    body = BODY.format(folder=str(tmp_path / "starts"))
    space = study_file(tmp_path, study(body, "search=Random(), scheduler=NoEarlyStopping()", trials=4))
    finished = tuner("run", space, "--storage", "out", "--concurrency", "1", "--json", folder=tmp_path, **OFF)
    assert finished.code == 0, finished.err
    processes = [name.split("-")[1] for name in sorted(path.name for path in (tmp_path / "starts").iterdir())]
    first, second, third, fourth, fifth, sixth = processes  # the second was lost; an error on a used one is tried again
    assert len({first, second, third, fifth}) == 4
    assert (third, fifth) == (fourth, sixth)
    trials = load_run(tmp_path / "out").record.trials.values()
    assert [(trial.status, trial.losses) for trial in trials][:2] == [("failed", 0), ("completed", 1)]
    assert [trial.status for trial in trials].count("failed") == 1
    assert next(iter(trials)).message == (
        "AcceleratorError: CUDA error: misaligned address; set CUDA_LAUNCH_BLOCKING=1 to see which operation it was"
    )
    assert {epoch.metrics["off"] for trial in trials for epoch in trial.epochs.values()} == {"graph"}
