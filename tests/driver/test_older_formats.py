from pathlib import Path

from tuner.history.checkpoints import CheckpointStore
from tuner.lifecycle.older_formats import bring_over_checkpoints
from tuner.storage.folder import LocalFolder


def saved(trial: str, epoch: int, path: str) -> dict[str, object]:
    return {"event": "checkpoint_saved", "trial": trial, "epoch": epoch, "path": path, "time": 1.0}


def test_checkpoints_of_format_1_are_found_where_they_lie_now(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    for name in (
        "00000/checkpoint_000002",
        "00001-resumed1/checkpoint_000000",
        "00001/saved_000005",
        "00002/saved_000001",
    ):
        (run / "tune" / name).mkdir(parents=True)
        (run / "tune" / name / "weights").write_text(name)
    outside.mkdir()
    (outside / "weights").write_text("somebody else's")
    events = [
        saved("00000", 3, "tune/00000/checkpoint_000002"),
        saved("00001", 4, "tune/00001-resumed1/checkpoint_000000"),
        saved("00001", 5, "tune/00001/saved_000005"),
        saved("00002", 1, "tune/00002/saved_000001"),
        {"event": "checkpoint_deleted", "trial": "00002", "epoch": 1, "time": 2.0},
        saved("00003", 1, "../outside"),
        saved("00003", 2, str(outside)),
        saved("00003", 3, "tune/00003/checkpoint_000009"),
    ]
    bring_over_checkpoints(LocalFolder(run), events)
    store = CheckpointStore(LocalFolder(run))
    assert [store.epochs(f"{number:05d}") for number in range(4)] == [[3], [4, 5], [], []]
    assert (store.fetch("00001", 4, tmp_path / "copy") / "weights").read_text() == "00001-resumed1/checkpoint_000000"
