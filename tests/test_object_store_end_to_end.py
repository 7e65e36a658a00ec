"""A search whose runs lie on an object store at an endpoint of its own."""

import signal
from pathlib import Path

import pytest

from tests.commands import start, study_file, tuner
from tests.s3_server import s3_endpoint
from tests.searches import RESUMABLE, study, wait_for
from tuner.results import find_runs


@pytest.mark.ray
@pytest.mark.slow
def test_an_interrupted_run_on_an_object_store_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    body = study(RESUMABLE, "scheduler=NoEarlyStopping(), search=Random()", trials=1)
    study_file(tmp_path, body.replace('"simple"', '"größe"'))
    with s3_endpoint("bucket") as endpoint:
        storage = f"s3://bucket/my runs/?endpoint_override={endpoint}&scheme=http"
        command = ("run", "space.py", "--storage", storage, "--wandb", "off")
        search = start(*command, folder=tmp_path, EPOCH_SECONDS="1")

        def saved() -> bool:
            runs = find_runs(storage)
            return bool(runs) and runs[0].folder.child("checkpoints/00000").folders() != []

        try:
            wait_for(saved, seconds=120)
        finally:
            search.send_signal(signal.SIGINT)
            search.communicate(timeout=300)
        (run,) = find_runs(storage)
        assert run.status == "interrupted"
        went_on = tuner("resume", run.path, "--wandb", "off", folder=tmp_path)
        (run,) = find_runs(storage)
        assert (went_on.code, run.status) == (0, "finished"), went_on.err
        epochs = list(run.record.trials["00000"].epochs.values())
        assert [epoch.epoch for epoch in epochs] == list(range(1, 10))
        assert epochs[-1].metrics["first"] > 0  # the function was given the checkpoint
        assert run.info["report"] == run.folder.child("report.html").uri
        assert run.folder.exists("report.html")
