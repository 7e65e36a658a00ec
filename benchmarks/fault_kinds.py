"""Faults of a search: kills, signals, full disks. Each function begins a search, causes the fault, and leaves the rest
to `finish`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import fault_nodes, fault_storms
from benchmarks.fault_attempts import Attempt, commands, find, kill, send
from tuner import load_run
from tuner.history.checkpoints import CheckpointStore
from tuner.history.events import Event
from tuner.storage.folder import LocalFolder


def driver_killed(attempt: Attempt) -> None:
    """Kill -9 of the driver at a random moment."""
    process = attempt.run()
    attempt.random_moment(process)
    attempt.kill(process)


def driver_killed_early(attempt: Attempt) -> None:
    """Kill -9 of the driver before its first epoch."""
    process = attempt.run()
    time.sleep(attempt.draw.random() * 6)
    attempt.kill(process)


def driver_killed_in_conclusion(attempt: Attempt) -> None:
    """Kill -9 of the driver after its search: while tables, winner and report are written."""
    process = attempt.run()
    attempt.until(lambda: attempt.count("study_ended") > 0, process)
    time.sleep(attempt.draw.random() * attempt.draw.choice([0.02, 0.3, 1.0]))
    attempt.kill(process)


def driver_killed_twice(attempt: Attempt) -> None:
    """Kill -9 of the driver, then of the one that goes on."""
    driver_killed(attempt)
    attempt.remember()
    process = attempt.start("resume", str(attempt.storage), "--quiet", "--wandb", "off")
    sessions, epochs = attempt.count("study_resumed"), attempt.count("epoch_reported")
    attempt.until(lambda: attempt.count("study_resumed") > sessions, process)
    attempt.until(lambda: attempt.count("epoch_reported") > epochs + attempt.draw.randint(0, 5), process)
    attempt.kill(process)


def worker_killed(attempt: Attempt) -> None:
    """Kill -9 of a worker that runs a trial, twice."""
    process = attempt.run()
    for _ in range(2):
        attempt.random_moment(process)
        attempt.kill_workers(process, most=1)
    attempt.wait(process, "run")
    attempt.hit = attempt.count("trial_lost") > 0


def worker_killed_past_a_rung(attempt: Attempt) -> None:
    """Kill -9 of a worker whose trial was promoted."""
    process = attempt.run()
    attempt.until(lambda: attempt.count("trial_resumed") > 0, process)
    time.sleep(attempt.draw.random() * 0.3)
    attempt.kill_workers(process)
    attempt.wait(process, "run")
    attempt.hit = attempt.count("trial_lost") > 0


def signalled(number: signal.Signals, *, group: bool = False, times: int = 1) -> Callable[[Attempt], None]:
    """A signal to the driver, or to all of its process group, as a terminal or batch system sends it."""

    def fault(attempt: Attempt) -> None:
        process = attempt.run()
        attempt.random_moment(process)
        attempt.hit = process.poll() is None
        for _ in range(times):
            if process.poll() is None:
                (os.killpg if group else os.kill)(process.pid, number)
            time.sleep(0.5)
        code = attempt.wait(process, "the search that was told to end", 60)
        if code not in (None, 0, 130):
            attempt.lost.append(f"exit code {code} rather than 130")

    return fault


def interrupted_in_the_first_second(attempt: Attempt) -> None:
    """Ctrl-C while Python still loads the program."""
    process = attempt.run()
    time.sleep(0.05 + attempt.draw.random() * 0.95)
    os.killpg(process.pid, signal.SIGINT)
    attempt.wait(process, "the search that was told to end", 60)


def interrupted_while_scoring(attempt: Attempt) -> None:
    """Ctrl-C after the search, while its winner is scored."""
    process = attempt.run()
    attempt.until(lambda: attempt.count("study_ended") > 0, process)
    time.sleep(attempt.draw.random())
    attempt.hit = process.poll() is None
    if attempt.hit:
        os.killpg(process.pid, signal.SIGINT)
    attempt.wait(process, "the search that was told to end", 60)


def killed_of_ray(part: str) -> Callable[[Attempt], None]:
    """Kill -9 of one of Ray's own processes."""

    def fault(attempt: Attempt) -> None:
        process = attempt.run()
        attempt.random_moment(process)
        found = find(process, part)
        attempt.hit = bool(found)
        for pid in found:
            send(pid, signal.SIGKILL)
        attempt.wait(process, f"the search whose {part} was killed", 120)

    return fault


def stopped(attempt: Attempt) -> None:
    """The driver is stopped for a while (SIGSTOP), then goes on."""
    process = attempt.run()
    attempt.random_moment(process)
    send(process.pid, signal.SIGSTOP)
    time.sleep(attempt.seconds_stopped)
    send(process.pid, signal.SIGCONT)
    attempt.wait(process, "the search that was stopped for a while")


@contextmanager
def small_disk(folder: Path, megabytes: int = 8) -> Iterator[None]:
    """Its own disk, in memory; raises OSError if this user may not mount one."""
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mounting, check=False, capture_output=True).returncode:
        raise OSError("no disk can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def fill(folder: Path) -> None:
    """Take what is left of a disk."""
    try:
        with (folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"0" * 1024)
    except OSError:
        return


def full_disk(when: str) -> Callable[[Attempt], None]:
    """The disk of the run folder is full, and has room again before it is gone on with."""

    def fault(attempt: Attempt) -> None:
        with small_disk(attempt.storage):
            if when == "start":
                fill(attempt.storage)
            process = attempt.run()
            if when == "middle":
                attempt.random_moment(process)
            elif when == "conclusion":
                attempt.until(lambda: attempt.count("study_ended") > 0, process)
            fill(attempt.storage)
            attempt.wait(process, "the search on a full disk")
            (attempt.storage / "filler").unlink(missing_ok=True)
            attempt.finish()

    return fault


@contextmanager
def disk_that_loses_power(folder: Path, megabytes: int = 64) -> Iterator[Callable[[], None]]:
    """Its own disk, with ext4 in a file; yields what takes its power away, which leaves what had come to the file.

    Raises OSError if this user may not mount one.
    """
    folder.mkdir()
    image = folder.with_name("disk")
    with image.open("wb") as file:
        file.truncate(megabytes * 1_000_000)
    made = (
        shutil.which("mkfs.ext4") and not subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=False).returncode
    )
    if not made or not _mounted(image, folder):
        raise OSError("no disk can be mounted here")

    def cut() -> None:
        left = image.with_name("left")
        shutil.copyfile(image, left)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        if not _mounted(left, folder):
            raise OSError("the disk can't be mounted again")

    try:
        yield cut
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _mounted(image: Path, folder: Path) -> bool:
    return (
        subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=False, capture_output=True).returncode
        == 0
    )


def power_cut(attempt: Attempt) -> None:
    """The machine loses its power: at most two seconds of events are gone, and no trial begins again."""
    with disk_that_loses_power(attempt.storage) as cut:
        process = attempt.run()
        attempt.random_moment(process)
        time.sleep(attempt.draw.random() * 3)
        attempt.hit = process.poll() is None
        kill(process.pid)
        process.wait()
        before = events_of(attempt)
        cut()
        gone = before[len(events_of(attempt)) :]
        if gone and (seconds := before[-1]["time"] - gone[0]["time"]) > 2:
            attempt.lost.append(f"events of {seconds:.1f} s")
        saved = {event["trial"] for event in events_of(attempt) if event["event"] == "checkpoint_saved"}
        attempt.finish()
        again = [event for event in events_of(attempt)[len(before) - len(gone) :] if event["event"] == "trial_started"]
        attempt.lost += [
            f"{each['trial']} began again" for each in again if each["trial"] in saved and not each["from_epoch"]
        ]


def events_of(attempt: Attempt) -> list[Event]:
    """All events so far."""
    return load_run(attempt.storage).events if attempt.count("study_started") else []


def events_damaged(attempt: Attempt) -> None:
    """Somebody cuts off, empties or deletes the events while the search runs: the driver writes them again."""
    process = attempt.run()
    attempt.random_moment(process)
    attempt.remember()
    segment = max(attempt.storage.glob("*/*/events/*.jsonl"))
    size = segment.stat().st_size
    attempt.hit = process.poll() is None and not attempt.count("study_ended")
    attempt.draw.choice([lambda: os.truncate(segment, size // 2), lambda: os.truncate(segment, 0), segment.unlink])()
    attempt.wait(process, "the search whose events were damaged")
    if attempt.hit and not any("written again" in notice for notice in load_run(attempt.storage).record.notices):
        attempt.lost.append("nothing was said of the damaged events")


def take_photos(folder: Path) -> None:
    """A folder of images: two classes, a bright one and a dark one."""
    from PIL import Image

    for name, light in (("dark", 40), ("light", 200)):
        (folder / name).mkdir(parents=True)
        for number in range(40):
            Image.new("RGB", (16, 16), (light, light + number, light)).save(folder / name / f"{number}.png")


def full_cache(attempt: Attempt) -> None:
    """No room for decoded images: the search does without what it would have kept, or is refused in a sentence."""
    take_photos(attempt.folder / "photos")
    with small_disk(attempt.folder / "c"):
        fill(attempt.folder / "c")
        process = attempt.run()
        attempt.wait(process, "the search whose cache is full")
        (attempt.folder / "c" / "filler").unlink(missing_ok=True)
        attempt.finish()


def read_only(attempt: Attempt) -> None:
    """A storage that can't be written is refused in a sentence."""
    process = attempt.start("run", "space.py", "--storage", "/proc/nowhere", "--quiet")
    if attempt.wait(process, "run", 60) != 2:
        attempt.lost.append(f"exit code {process.returncode} rather than 2")


def damaged_checkpoint(attempt: Attempt) -> None:
    """The newest checkpoint of a trial that goes on is cut, another one's flipped, between a kill and what follows."""
    driver_killed(attempt)
    if not attempt.count("checkpoint_saved"):
        return
    run = load_run(attempt.storage)
    folder = Path(run.path)
    store = CheckpointStore(LocalFolder(folder))
    live = [trial for trial in store.trials() if store.epochs(trial) and run.record.trials[trial].live]
    newest = [(trial, store.epochs(trial)[-1]) for trial in live]
    attempt.hit = attempt.hit and bool(newest)
    for number, (trial, epoch) in enumerate(newest):
        for file in (folder / "checkpoints" / trial / f"{epoch:06d}" / "files").iterdir():
            content = bytearray(file.read_bytes())
            content[-1] ^= 0xFF
            file.write_bytes(content[: len(content) // 2] if number % 2 else bytes(content))


def two_drivers(attempt: Attempt) -> None:
    """A second driver of a run that has one is refused."""
    process = attempt.run()
    attempt.random_moment(process)
    second = attempt.start("resume", str(attempt.storage), "--quiet", "--wandb", "off")
    attempt.hit = process.poll() is None
    if attempt.wait(second, "the second driver") != 2 and attempt.hit:
        attempt.lost.append(f"the second driver ended with {second.returncode} rather than 2")
    attempt.wait(process, "run")


def pipes_as_files(attempt: Attempt) -> None:
    """Pipes lie where files of the run and of an older one should be: no command waits, and the search goes on."""
    older = attempt.storage / "older" / "1"
    older.mkdir(parents=True)
    os.mkfifo(older / "run.json")
    driver_killed(attempt)
    runs = [path.parent for path in attempt.storage.glob("*/*/run.json") if path.is_file()]
    attempt.hit = attempt.hit and bool(runs)
    for name in ("title.txt", "best/metrics.json", "inbox/pipe.json") if runs else ():
        (runs[0] / name).parent.mkdir(exist_ok=True)
        os.mkfifo(runs[0] / name)
    for verb in ("show", "report", "runs"):
        place = ["--storage", str(attempt.storage)] if verb == "runs" else [str(runs[0])] if runs else []
        attempt.wait(attempt.start(verb, *place), f"{verb} of a run with pipes", 120)


SPOILING = """
import builtins
import dataclasses
import json
import os
import resource

SPOIL = [
    lambda: setattr(builtins, "open", None),
    lambda: setattr(json, "dumps", lambda *_, **__: "{}"),
    lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
    lambda: resource.setrlimit(resource.RLIMIT_AS, (2**28, resource.getrlimit(resource.RLIMIT_AS)[1])),
    lambda: setattr(tuner, "report", None),
    os.environ.clear,
]


def train(config, well=train):
    well(config)
    SPOIL[config["x"] % len(SPOIL)]()


study = dataclasses.replace(study, trial=train)
"""


def spoiled_workers(attempt: Attempt) -> None:
    """Each trial leaves its process so that the next one there would fail."""
    with (attempt.folder / "space.py").open("a") as file:
        file.write(SPOILING)
    process = attempt.run()
    attempt.wait(process, "the search of trials that spoil their workers")
    if attempt.count_failed():
        attempt.lost.append("a trial failed")


def log_process_killed(attempt: Attempt) -> None:
    """Kill -9 of the processes that write the trials' logs, twice."""
    process = attempt.run()
    attempt.hit = False
    for _ in range(2):
        attempt.random_moment(process)
        workers = {str(each) for each in find(process, "ray::TrialRunner")}
        for pid, words in commands():
            if any(word.endswith("log_process.py") for word in words) and words[-1] in workers:
                send(pid, signal.SIGKILL)
                attempt.hit = True
    attempt.wait(process, "the search whose logs lost their writers")
    if attempt.count("trial_lost", "trial_retried") or attempt.count_failed():
        attempt.lost.append("a trial was lost with its log's process")


KINDS: dict[str, Callable[[Attempt], None]] = {
    "driver killed": driver_killed,
    "driver killed early": driver_killed_early,
    "driver killed in its conclusion": driver_killed_in_conclusion,
    "driver killed twice": driver_killed_twice,
    "worker killed": worker_killed,
    "worker killed past a rung": worker_killed_past_a_rung,
    "image worker killed": worker_killed,
    "image driver killed": driver_killed,
    "image driver killed in its conclusion": driver_killed_in_conclusion,
    "SIGTERM": signalled(signal.SIGTERM),
    "SIGTERM to the group": signalled(signal.SIGTERM, group=True),
    "SIGHUP": signalled(signal.SIGHUP),
    "Ctrl-C": signalled(signal.SIGINT, group=True),
    "Ctrl-C twice": signalled(signal.SIGINT, group=True, times=2),
    "Ctrl-C in the first second": interrupted_in_the_first_second,
    "image Ctrl-C while scoring": interrupted_while_scoring,
    "raylet killed": killed_of_ray("raylet/raylet"),
    "GCS server killed": killed_of_ray("gcs_server"),
    "node of two killed": fault_nodes.killed(2),
    "node of three killed": fault_nodes.killed(3),
    "node of three drained": fault_nodes.drained,
    "driver stopped": stopped,
    "disk full at the start": full_disk("start"),
    "disk full": full_disk("middle"),
    "disk full in the conclusion": full_disk("conclusion"),
    "image cache on a full disk": full_cache,
    "read-only storage": read_only,
    "checkpoint damaged": damaged_checkpoint,
    "two drivers": two_drivers,
    "FIFO": pipes_as_files,
    "truncated": events_damaged,
    "power": power_cut,
    "spot driver": fault_storms.driver_told_to_end,
    "spot nodes": fault_storms.nodes_drained,
    "spoiled worker": spoiled_workers,
    "log process": log_process_killed,
}
FINISHED_INSIDE = tuple(
    kind for kind in KINDS if "disk" in kind or kind == "read-only storage" or kind.startswith(("power", "spot"))
)
