"""Records of long runs outlast the server; one that doesn't fit the log, or that others may have written, never counts."""

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.searches import wait_for
from tests.service.running import running, wait_until
from tests.service.submissions import ANNE, STUDY, submission
from tests.service.web.serving import Served, a_run, made
from tuner import Run
from tuner.history.event_reading import EventFollower
from tuner.history.events import EventLog
from tuner.history.records import RunRecord
from tuner.history.run_info import read_info, write_info
from tuner.service import kept_files as module
from tuner.service.kept_files import Records
from tuner.service.model import State
from tuner.service.service import Service
from tuner.service.web.viewed_runs import Runs
from tuner.storage.folder import LocalFolder


@pytest.fixture(autouse=True)
def short_runs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEWEST_EPOCHS", 1)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = made(tmp_path)
    yield found
    found.service.close()


def kept(served: Served) -> list[Path]:
    folder = served.service.folder.records
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []


def notices(served: Served, study: int) -> list[str]:
    """Of a run, as a server that was just started shows them."""
    with Runs(served.service).looking(study) as run:
        return list(run.record.notices)


def looked_at(served: Served, run: Run) -> int:
    """A study whose run was looked at once, so that its record is kept; with a notice that its log doesn't have."""
    study = served.study("anne", State.QUEUED, run)
    before = notices(served, study)
    wait_for(lambda: len(kept(served)) == 1)
    told = b'"run":[["from the record"' + (b"," if before else b"")
    change(kept(served)[0], lambda body: body.replace(b'"run":[[', told, 1))
    return study


def change(path: Path, by: Callable[[bytes], bytes]) -> None:
    """Write a record again with its new checksum."""
    body = by(path.read_bytes()[:-9])
    path.write_bytes(body + b"%08x\n" % zlib.crc32(body))


def test_a_run_that_was_looked_at_is_known_to_the_next_server(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    study = looked_at(served, run)
    assert "from the record" in notices(served, study)
    with Runs(served.service).looking(study) as again:
        assert {t.trial: t.status for t in again.record.trials.values()} == {
            t.trial: t.status for t in run.record.trials.values()
        }
        assert again.record.best_trial() == run.record.best_trial()
    assert Runs(served.service).get(study).record.notices == again.record.notices
    assert kept(served)[0].stat().st_mode & 0o777 == 0o600


def test_what_happens_to_the_run_later_is_seen(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    study = looked_at(served, run)
    looking = Runs(served.service)
    with looking.looking(study) as seen:
        first = seen.record
    log = EventLog(run.folder)
    log.append("notice", message="cleaned")
    log.close()
    with looking.looking(study) as seen:
        assert "cleaned" in seen.record.notices
        assert "from the record" not in seen.record.notices
        assert seen.record is not first
    assert "cleaned" not in first.notices  # who looks at it still has it as it was
    assert "from the record" not in notices(served, study)


def one_byte(served: Served, run: Run) -> None:
    segment = next(Path(run.path, "events").iterdir())
    content = bytearray(segment.read_bytes())
    place = content.index(b'"seed":') + 7  # of the first trial, which its checksum then doesn't fit
    content[place : place + 1] = b"7" if content[place : place + 1] != b"7" else b"8"
    segment.write_bytes(content)


def another_metric(served: Served, run: Run) -> None:
    info, _ = read_info(run.folder)
    write_info(run.folder, {**info, "metric": "other"})


def writable_by_others(served: Served, run: Run) -> None:
    kept(served)[0].chmod(0o620)


def in_a_folder_of_others(served: Served, run: Run) -> None:
    served.service.folder.records.chmod(0o777)


def a_link(served: Served, run: Run) -> None:
    path = kept(served)[0]
    path.rename(path.parent / "elsewhere")
    path.symlink_to("elsewhere")


def a_pipe(served: Served, run: Run) -> None:
    path = kept(served)[0]
    path.unlink()
    os.mkfifo(path, 0o600)


def cut_off(served: Served, run: Run) -> None:
    path = kept(served)[0]
    path.write_bytes(path.read_bytes()[:-100])


def one_trial_less(served: Served, run: Run) -> None:
    change(kept(served)[0], lambda body: b"\n".join(body.split(b"\n")[:-2]) + b"\n")


def empty(served: Served, run: Run) -> None:
    kept(served)[0].write_bytes(b"")


@pytest.mark.parametrize(
    "spoil",
    [
        *(one_byte, another_metric, writable_by_others, in_a_folder_of_others),
        *(a_link, a_pipe, cut_off, one_trial_less, empty),
    ],
    ids=lambda one: one.__name__,
)
def test_a_record_that_does_not_fit_or_that_others_may_have_written_counts_for_none(
    served: Served, tmp_path: Path, spoil: Callable[[Served, Run], None]
) -> None:
    run = a_run(tmp_path)
    study = looked_at(served, run)
    spoil(served, run)
    assert "from the record" not in notices(served, study)
    with Runs(served.service).looking(study) as again:
        assert len(again.record.trials) in (len(run.record.trials), len(run.record.trials) - 1)  # one by a byte


def stored(service: Service, run: Run) -> RunRecord | None:
    follower = EventFollower(run.folder)
    follower.skip()
    return service.records.find(follower.digest, run.metric, run.mode)


def test_a_study_that_ends_leaves_its_record_and_one_that_runs_leaves_none(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        study = service.submit(submission(STUDY.replace("trials=4", "trials=4000")), ANNE).id
        wait_for(lambda: (found := service.progress(study)) is not None and found.epochs > 3)
        with Runs(service).looking(study) as run:
            assert run.alive
        with Runs(service)._grown(study, run.folder).looking() as run:  # as where it isn't followed here
            assert run.record.epochs() > 3
        assert not service.folder.records.exists()
        service.finish(study, ANNE)
        wait_until(service, study, State.FINISHED)
        found = service.run(study)
        assert found is not None
        wait_for(lambda: stored(service, found) is not None)  # the log may have grown by a line since the first one
        record = stored(service, found)
        assert len(list(service.folder.records.iterdir())) == 1
    assert record is not None
    assert record.trials == found.record.trials
    assert record.ended == found.record.ended


def folded(folder: Path, trials: int = 1) -> tuple[RunRecord, EventFollower]:
    log = EventLog(LocalFolder(folder))
    for number in range(trials):
        trial = f"{number:05d}"
        log.append("trial_started", trial=trial, number=number, config={}, seed=number, from_epoch=0)
        log.append("epoch_reported", trial=trial, epoch=1, metrics={"loss": 0.5}, decision="continue")
    log.close()
    follower = EventFollower(LocalFolder(folder))
    return RunRecord("loss", "min", follower.new()), follower


def test_a_record_that_changed_while_it_was_written_is_not_kept(tmp_path: Path) -> None:
    record, follower = folded(tmp_path / "run")
    found = Records(tmp_path / "records")
    found.keep(record, follower.digest, lambda: False)
    assert found.find(follower.digest, "loss", "min") is None
    assert list((tmp_path / "records").iterdir()) == []
    found.keep(record, follower.digest, lambda: True)
    assert found.find(follower.digest, "loss", "min") is not None


def test_short_runs_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, follower = folded(tmp_path / "run", trials=3)
    monkeypatch.setattr(module, "FEWEST_EPOCHS", 4)
    Records(tmp_path / "records").keep(record, follower.digest, lambda: True)
    assert not (tmp_path / "records").exists()
    monkeypatch.setattr(module, "FEWEST_EPOCHS", 3)
    Records(tmp_path / "records").keep(record, follower.digest, lambda: True)
    assert len(list((tmp_path / "records").iterdir())) == 1


def test_where_the_disk_is_nearly_full_none_is_kept(tmp_path: Path) -> None:
    record, follower = folded(tmp_path / "run")
    Records(tmp_path / "records", free_bytes=2**60).keep(record, follower.digest, lambda: True)
    assert list((tmp_path / "records").iterdir()) == []


def test_those_used_last_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RECORDS", 2)
    found, digests = Records(tmp_path / "records"), []
    for number in range(3):
        record, follower = folded(tmp_path / f"run {number}", trials=number + 1)
        digests.append(follower.digest)
        if number == 2:
            assert found.find(digests[0], "loss", "min") is not None  # used again
        found.keep(record, follower.digest, lambda: True)
        for at, path in enumerate(sorted((tmp_path / "records").iterdir(), key=lambda path: path.stat().st_mtime_ns)):
            os.utime(path, (1000 * number + at, 1000 * number + at))
    assert [found.find(digest, "loss", "min") is not None for digest in digests] == [True, False, True]


def test_a_log_of_which_something_was_left_out_leaves_no_record(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    one_byte(served, run)
    study = served.study("anne", State.QUEUED, run)
    notices(served, study)
    notices(served, study)
    assert kept(served) == []
