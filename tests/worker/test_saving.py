import json
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner.history.checkpoints import CheckpointStore
from tuner.storage.folder import LocalFolder
from tuner.train.checkpoint import Checkpoint, read_checkpoint
from tuner.worker import saving
from tuner.worker.assignment import Assignment
from tuner.worker.saving import BackgroundWriter, SavingPolicy

ASSIGNMENT = Assignment(
    trial="00003",
    config={},
    seed=0,
    epochs=9,
    save_epochs=[3],
    metric="val_accuracy",
    mode="max",
    study_seed=0,
    cpus=1,
    gpus=0,
    run_uri="runs/x",
)


def choices(assignment: Assignment, values: list[float]) -> list[str | None]:
    policy = SavingPolicy(assignment)
    return [policy.choose(epoch, {"val_accuracy": value}) for epoch, value in enumerate(values, start=1)]


def test_epochs_are_saved_that_may_win_or_that_the_trial_may_be_paused_at() -> None:
    values = [0.1, 0.3, 0.2, 0.25, 0.3, 0.4, 0.1, 0.1, 0.2]
    assert choices(ASSIGNMENT, values) == ["best", "best", "now", None, None, "best", None, None, "now"]


def test_the_last_epoch_is_saved_before_the_trial_ends_if_it_may_win() -> None:
    assert choices(ASSIGNMENT, [0.1 * epoch for epoch in range(9)])[-1] == "now"
    assert choices(replace(ASSIGNMENT, epochs=3, to_beat=0.25), [0.3, 0.2, 0.1]) == ["best", None, None]


def test_the_last_epoch_may_win_by_the_mean_of_the_last_ones_though_another_had_more() -> None:
    rising, noisy = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [0.5, 0.5, 0.6, 0.9, 0.7, 0.9, 0.7, 0.8, 0.7]
    assert choices(replace(ASSIGNMENT, to_beat=0.75), noisy)[-1] == "now"
    assert choices(replace(ASSIGNMENT, to_beat=0.85), rising)[-1] == "now"  # it need not be averaged with earlier ones
    assert choices(replace(ASSIGNMENT, to_beat=0.85), noisy)[-1] is None


def test_the_mean_of_values_whose_sum_is_no_number_is_taken() -> None:
    losses = replace(ASSIGNMENT, mode="min", to_beat=1.2e308)
    assert choices(losses, [1e300] * 4 + [1.5e308] * 5)[-1] is None
    assert choices(losses, [1e300] * 4 + [1.7e308, 1.7e308, 1.7e308, 1e308, 1.1e308])[-1] == "now"


def test_every_epoch_is_saved_first_while_the_node_is_about_to_go_but_for_a_last_one_that_cannot_win() -> None:
    policy = SavingPolicy(replace(ASSIGNMENT, to_beat=0.9), is_leaving=lambda: True)
    chosen = [policy.choose(epoch, {"val_accuracy": 0.1}) for epoch in range(1, ASSIGNMENT.epochs + 1)]
    assert chosen == ["now"] * (ASSIGNMENT.epochs - 1) + [None]


def test_what_a_finished_trial_has_beaten_is_not_saved() -> None:
    values = [0.1, 0.5, 0.3, 0.6]
    assert choices(replace(ASSIGNMENT, to_beat=0.5), values) == [None, "best", "now", "best"]
    losses = replace(ASSIGNMENT, mode="min", to_beat=0.2)
    assert choices(losses, values) == ["best", None, "now", None]


def test_a_minute_of_training_is_the_most_that_a_lost_worker_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "SAVE_AT_LEAST_EVERY_SECONDS", 0.0)
    assert choices(replace(ASSIGNMENT, to_beat=1.0), [0.5, 0.4, 0.3, 0.2]) == ["safety", "safety", "now", "safety"]


def checkpoint(epoch: int) -> Checkpoint:
    return Checkpoint({"w": torch.full((1000,), float(epoch))}, {}, {"epoch": epoch})


def test_a_checkpoint_that_was_written_takes_no_memory_any_more(tmp_path: Path) -> None:
    writer, given = BackgroundWriter(), checkpoint(1)
    held = weakref.ref(given.model["w"])
    writer.submit("00003", 1, given, str(tmp_path), {})
    del given
    assert writer.flush(10)
    assert held() is None


def test_a_checkpoint_is_written_behind_and_found_again(tmp_path: Path) -> None:
    writer = BackgroundWriter()
    for epoch in (2, 5):
        writer.submit("00003", epoch, checkpoint(epoch), str(tmp_path), {epoch: {"loss": 0.5}})
        assert writer.flush(10)
    assert writer.finished("00003") == [2, 5]
    assert writer.finished("00003") == writer.failures("00003") == []
    store = CheckpointStore(LocalFolder(tmp_path))
    assert store.epochs("00003") == [2, 5]
    assert read_checkpoint(store.fetch("00003", 5, tmp_path / "copy")).scalars == {"epoch": 5}
    assert store.reports("00003", 5) == {5: {"loss": 0.5}}


def test_the_newest_of_a_trial_replaces_what_isnt_begun_and_trials_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    write = saving._write

    def slow(*arguments: Any) -> str | None:
        begun.set()
        go_on.wait(300)
        return write(*arguments)

    monkeypatch.setattr(saving, "_write", slow)
    writer = BackgroundWriter()
    writer.submit("a", 1, checkpoint(1), str(tmp_path), {})
    assert begun.wait(300)
    for trial, epoch in (("a", 2), ("a", 3), ("b", 1)):
        assert writer.announce(trial)
        writer.submit(trial, epoch, checkpoint(epoch), str(tmp_path), {})
    assert not writer.announce("a", replaceable=True)  # what waits may be the winner's
    assert not writer.flush(0.01)
    go_on.set()
    assert writer.flush(10)
    assert (writer.finished("a"), writer.finished("b")) == ([1, 3], [1])


def test_a_checkpoint_that_cant_be_written_is_told_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where a folder must be")
    writer = BackgroundWriter()
    writer.submit("00003", 2, checkpoint(2), str(tmp_path), {})
    assert writer.flush(10)
    ((epoch, problem),) = writer.failures("00003")
    assert epoch == 2
    assert problem.startswith("the checkpoint of epoch 2 of trial 00003 could not be written: ")
    assert writer.finished("00003") == []


def test_orders_travel_as_plain_data() -> None:
    from dataclasses import asdict

    assert Assignment(**json.loads(json.dumps(asdict(ASSIGNMENT)))) == ASSIGNMENT


def test_an_announced_checkpoint_is_waited_for(tmp_path: Path) -> None:
    writer = BackgroundWriter()
    writer.announce("00003")
    assert not writer.flush(0.01)
    writer.submit("00003", 2, checkpoint(2), str(tmp_path), {})
    assert writer.flush(10)
