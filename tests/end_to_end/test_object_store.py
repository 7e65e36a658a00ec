"""A search whose runs lie on an object store at an endpoint of its own."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.azure_server import azure_account
from tests.commands import start, study_file, tuner
from tests.s3_proxy import proxied
from tests.s3_server import s3_endpoint
from tests.searches import RESUMABLE, study, wait_for
from tuner import Budget, External, NoEarlyStopping, Random, Run, Search, Study, find_runs, uniform
from tuner.errors import RunFolderError


@contextmanager
def stored_in(kind: str) -> Iterator[str]:
    """The URI of a prefix in a store of a kind."""
    if kind == "Azure":
        with azure_account("bucket"):
            yield "abfs://bucket/my runs/"
    else:
        with s3_endpoint("bucket") as endpoint:
            yield f"s3://bucket/my runs/?endpoint_override={endpoint}&scheme=http"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["S3", "Azure"])
def test_an_interrupted_run_on_an_object_store_goes_on_from_its_checkpoints(tmp_path: Path, kind: str) -> None:
    body = study(RESUMABLE, "scheduler=NoEarlyStopping(), search=Random()", trials=1)
    # Azurite closes the connection when it lists many objects below a name with other letters
    study_file(tmp_path, body if kind == "Azure" else body.replace('"simple"', '"größe"'))
    with stored_in(kind) as storage:
        command = ("run", "space.py", "--storage", storage, "--wandb", "off")
        search = start(*command, folder=tmp_path, EPOCH_SECONDS="1")

        def saved() -> bool:
            runs = find_runs(storage)
            return bool(runs) and runs[0].folder.child("checkpoints/00000").folders() != []

        try:
            wait_for(saved)
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


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["gone for 30 s", "slow"])
def test_a_store_that_is_gone_or_slow_in_mid_run_loses_nothing(tmp_path: Path, trouble: str) -> None:
    study_file(tmp_path, study(RESUMABLE, "scheduler=NoEarlyStopping(), search=Random()", trials=3))
    with s3_endpoint("bucket") as endpoint, proxied(endpoint) as proxy:
        storage = f"s3://bucket/runs?endpoint_override={proxy.endpoint}&scheme=http"
        proxy.delay = 0.2 if trouble == "slow" else 0.0
        search = start("run", "space.py", "--storage", storage, "--wandb", "off", folder=tmp_path, EPOCH_SECONDS="1")
        try:
            wait_for(lambda: bool(find_runs(storage)) and find_runs(storage)[0].record.epochs() > 2)
            before = epochs_of(find_runs(storage)[0])
            if trouble == "gone for 30 s":
                proxy.gone = True
                time.sleep(30)
                proxy.gone = False
            _, told = search.communicate(timeout=400)
        finally:
            search.kill()
            search.communicate()
        assert "Traceback" not in told
        assert search.returncode == 0, told
        (run,) = find_runs(storage)
        assert run.status == "finished"
        assert run.info["sessions"] == 1
        assert before <= epochs_of(run)
        for trial in run.record.trials.values():
            assert (trial.status, list(trial.epochs), trial.losses) == ("completed", list(range(1, 10)), 0)
        print(f"{trouble}: {proxy.requests} requests, {run.record.active_seconds / 3:.1f} s a trial of 9 s")


def epochs_of(run: Run) -> set[tuple[str, int]]:
    return {(trial.trial, epoch) for trial in run.record.trials.values() for epoch in trial.epochs}


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_on_an_object_store_is_paused_and_stopped_by_orders(tmp_path: Path) -> None:
    study_file(tmp_path, study(RESUMABLE, "scheduler=NoEarlyStopping(), search=Random()", trials=60))
    with s3_endpoint("bucket") as endpoint:
        storage = f"s3://bucket/my runs/?endpoint_override={endpoint}&scheme=http"
        search = start("run", "space.py", "--storage", storage, "--wandb", "off", folder=tmp_path, EPOCH_SECONDS="1")
        try:
            wait_for(lambda: bool(find_runs(storage)) and find_runs(storage)[0].record.epochs() > 0)
            (run,) = find_runs(storage)
            paused = tuner("pause", run.path, "--json", folder=tmp_path)
            assert paused.code == 0, paused.err
            search.communicate(timeout=300)
            (run,) = find_runs(storage)
            assert run.status == "interrupted"
            before = run.record.epochs()
            search = start("resume", run.path, "--wandb", "off", folder=tmp_path, EPOCH_SECONDS="1")
            wait_for(lambda: find_runs(storage)[0].record.epochs() > before)
            stopped = tuner("stop", run.path, "--json", folder=tmp_path)
            assert stopped.code == 0, stopped.err
            search.communicate(timeout=300)
        finally:
            search.kill()
            search.communicate()
        (run,) = find_runs(storage)
        for trial in run.record.trials.values():
            assert list(trial.epochs) == list(range(1, trial.epoch + 1))
        assert (run.status, run.record.counts().get("running", 0)) == ("finished", 0)
        assert run.best is not None
        assert run.folder.exists("report.html")
        assert run.folder.files("inbox") == []


@pytest.mark.slow
def test_a_program_asks_for_trials_of_a_run_on_an_object_store_and_goes_on_after_its_end() -> None:
    declared = Study(
        name="asked",
        trial=External("furnace"),
        space={"x": uniform(0.0, 1.0)},
        metric="loss",
        mode="min",
        search=Random(),
        scheduler=NoEarlyStopping(),
        budget=Budget(trials=4, max_epochs=2),
    )
    with s3_endpoint("bucket") as endpoint:
        storage = f"s3://bucket/my runs/?endpoint_override={endpoint}&scheme=http"
        with Search(declared, storage=storage, concurrency=2) as search:
            trial, held = search.ask(), search.ask()
            assert trial is not None
            assert held is not None  # nothing is reported of it when the program ends
            search.report(trial, 1, {"loss": 1.0})
            with pytest.raises(RunFolderError, match=r"this very process drives.*take_over=True"):
                Search.resume(search.run.path, declared)
        with Search.resume(search.run.path, declared) as search:
            while (trial := search.ask()) is not None:
                for epoch in trial.epochs_left:
                    search.report(trial, epoch, {"loss": trial.config["x"]})
                search.tell(trial)
        (run,) = find_runs(storage)
        assert run.status == "finished"
        assert [(trial.status, trial.epoch) for trial in run.record.trials.values()] == [("completed", 2)] * 4
        assert run.folder.exists("report.html")
