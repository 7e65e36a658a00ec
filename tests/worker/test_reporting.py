from dataclasses import replace
from pathlib import Path

from tests.worker.test_saving import ASSIGNMENT
from tuner.history.checkpoints import CheckpointStore
from tuner.storage.folder import LocalFolder
from tuner.worker.reporting import WorkerSession


def test_a_trial_goes_on_from_the_newest_whole_checkpoint_of_an_epoch_that_the_driver_knows(tmp_path: Path) -> None:
    """Epoch 3 was saved and never recorded: gone on from, it would be missing in the tables."""
    store = CheckpointStore(LocalFolder(tmp_path))
    for epoch in (1, 2, 3):
        store.write(ASSIGNMENT.trial, epoch, lambda folder, epoch=epoch: (folder / "epoch").write_text(str(epoch)))  # type: ignore[misc]
    for reported, expected in ((3, "3"), (2, "2"), (0, None)):
        session = WorkerSession(replace(ASSIGNMENT, run_uri=str(tmp_path), reported=reported))
        found = session.checkpoint()
        assert (found and (found / "epoch").read_text()) == expected
        session.close()
    (tmp_path / "checkpoints" / ASSIGNMENT.trial / "000002" / "files" / "epoch").write_text("9")
    session = WorkerSession(replace(ASSIGNMENT, run_uri=str(tmp_path), reported=2))
    assert [path.name for path in session.checkpoints()] == ["files"]
    found = session.checkpoint()
    assert found is not None
    assert (found / "epoch").read_text() == "1"
    assert session.notes[0].startswith("a checkpoint is skipped: a checkpoint must be complete, got checkpoints/00003/")
    (found / "epoch").write_text("the function's own copy")
    assert (store.fetch(ASSIGNMENT.trial, 1, tmp_path / "copy") / "epoch").read_text() == "1"
    session.close()
