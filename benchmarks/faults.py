"""What a search survives: faults done to real processes through the command line, and what was lost by each.

    python benchmarks/faults.py [--quick] [--full] [--only KIND …] [--times N] [--seed N]

Each fault hits a search of tiny trials at a moment drawn from the seed; then `tuner resume` goes on until the search is
done. Lost is a search that is not done then, or in which an epoch that was reported before is missing or changed, a
finished trial ran again, the number of trials is another, the winner or its checkpoint isn't there, or that printed a
traceback. The seeded simulation of tests/loop/test_faults.py covers the moments between; this covers processes, signals
and disks. `--quick` does one of each of a few kinds, `--full` has ResNet18 on digits where an image classifier is hit.
The last line is one JSON object: tried, survived, and the kinds that lost something.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.loop.invariants import faults_of_a_run  # noqa: E402
from tuner import load_study  # noqa: E402
from tuner.machine import this_machine  # noqa: E402
from tuner.results import Run, load_run  # noqa: E402
from tuner.results.checkpoints import CheckpointStore  # noqa: E402
from tuner.results.folder import LocalFolder  # noqa: E402

SCHEDULERS = (
    "ASHA(grace_epochs=2)",
    "ASHA(grace_epochs=2, rule='stop')",
    "HyperBand(grace_epochs=2)",
    "MedianStopping()",
)
SEARCHES = ("MultiFidelityGP()", "HyperOpt()", "BOHB()", "Optuna()", "Random()", "Grid()")
LONGEST = 240.0  # seconds that one command may take
MOST_RESUMES = 4
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # there Ray keeps to it, to be spared the firewall's questions

FUNCTION = """
import tempfile
import time
from pathlib import Path

import tuner
from tuner import *


def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 7):
        time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=(config["x"] - 3) ** 2 + 1 / epoch, checkpoint=folder)


study = Study(
    "faults", trial=train, space={{"x": randint(0, 50)}}, metric="loss", mode="min", search={search},
    scheduler={scheduler}, budget=Budget(trials=10, max_epochs=6), resources=Resources(cpus=1), warm_start=None,
)
"""
TINY = """
from tuner import *


def images():
    import torch

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2304) % 4
    images = torch.rand(2304, 1, 8, 8, generator=generator) * 0.9
    images[torch.arange(2304), 0, labels, labels] += 0.6
    return tuple((images[part], labels[part]) for part in (slice(2048), slice(2048, 2176), slice(2176, 2304)))


def network(config):
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))


study = Study(
    "faults", trial=ImageClassifier(images, network), space={"lr": loguniform(3e-4, 3e-3), "batch_size": 16},
    search=Random(), budget=Budget(trials=6, max_epochs=12), resources=Resources(cpus=1), warm_start=None,
)
"""
DIGITS = """
from tuner import *

study = Study(
    "faults", trial=ImageClassifier(data="digits", model="resnet18"),
    space={"lr": loguniform(3e-4, 3e-3), "image_size": 16},
    search=Random(), budget=Budget(trials=6, max_epochs=9), resources=Resources(cpus=1), warm_start=None,
)
"""
PHOTOS = """
from pathlib import Path

from tuner import *

study = Study(
    "faults", trial=ImageClassifier(data=f"folder:{Path(__file__).parent}/photos", model="resnet18", weights=None),
    space={"lr": loguniform(3e-4, 3e-3), "image_size": 16, "batch_size": 16},
    search=Random(), budget=Budget(trials=3, max_epochs=3), resources=Resources(cpus=1), warm_start=None,
)
"""


@dataclass
class Attempt:
    """One search, what is done to it, and what it has lost by that."""

    folder: Path
    draw: random.Random
    program: str
    storage: Path = field(init=False)
    hit: bool = True  # whether the fault came before all was over
    lost: list[str] = field(default_factory=list)
    before: dict[tuple[str, int], Any] = field(default_factory=dict)
    seconds_stopped: float = 5.0
    address: str | None = None  # of a cluster that the search joins

    def __post_init__(self) -> None:
        """The study's file is written."""
        self.storage = self.folder / "out"
        (self.folder / "space.py").write_text(self.program)

    @property
    def environment(self) -> dict[str, str]:
        """What commands of tuner find around them."""
        settings = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "TUNER_CACHE": str(self.folder / "c")}
        return {**os.environ, **settings, **(ON_LOOPBACK if self.address else {})}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command of tuner, in a session of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "err.txt").open("a"),
            text=True,
            start_new_session=True,
        )

    def run(self) -> subprocess.Popen[str]:
        """The search itself begins."""
        joined = ["--address", self.address] if self.address else []
        return self.start("run", "space.py", "--storage", str(self.storage), "--quiet", "--wandb", "off", *joined)

    def wait(self, process: subprocess.Popen[str], what: str, seconds: float = LONGEST) -> int | None:
        """Its exit code; where it doesn't come to its end that is a loss, and it is killed with its children."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.lost.append(f"{what} did not end within {seconds:.0f} s")
            kill(process.pid)
            process.wait()
            return None

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill -9 of a driver."""
        self.hit = self.hit and process.poll() is None
        send(process.pid, signal.SIGKILL)
        process.wait()

    def kill_workers(self, process: subprocess.Popen[str], most: int = 100) -> None:
        """Kill -9 of workers that run a trial."""
        workers = find(process, "ray::TrialRunner")
        for worker in self.draw.sample(workers, min(most, len(workers))):
            send(worker, signal.SIGKILL)

    def until(self, condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = LONGEST) -> bool:
        """Whether it came true before the process ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            if condition():
                return True
            time.sleep(0.02)
        return False

    def random_moment(self, process: subprocess.Popen[str]) -> bool:
        """Wait until some share of the epochs is reported, and a moment more."""
        epochs = self.draw.randint(1, 25)
        reached = self.until(lambda: self.count("epoch_reported") >= epochs, process)
        time.sleep(self.draw.random() * 0.1)
        return reached

    def count(self, *kinds: str) -> int:
        """Events of these kinds so far."""
        try:
            texts = [file.read_text(errors="replace") for file in self.storage.glob("*/*/events/*.jsonl")]
        except FileNotFoundError:  # the storage was only tried, and is gone again
            return 0
        return sum(text.count(f'"event":"{kind}"') for text in texts for kind in kinds)

    def remember(self) -> None:
        """What was reported up to now must be there in the end."""
        if self.count("study_started"):
            for trial in load_run(self.storage).record.trials.values():
                self.before |= {(trial.trial, epoch): told.metrics for epoch, told in trial.epochs.items()}

    def finish(self) -> None:
        """Go on until the search is done, then look at what there is."""
        self.remember()
        if not self.count("study_started"):  # it had not begun: it begins anew
            self.wait(self.run(), "run")
        for _ in range(MOST_RESUMES):
            if self.count("study_started") and self.is_done():
                break
            self.wait(self.start("resume", str(self.storage), "--quiet", "--wandb", "off"), "resume")
            self.remember()
        self.check()

    def is_done(self) -> bool:
        """Whether the run says so."""
        return load_run(self.storage).status == "finished"

    def check(self) -> None:
        """Note whatever was lost."""
        printed = (self.folder / "err.txt").read_text()
        if "Traceback" in printed:
            self.lost.append(f"a traceback: {printed.strip().splitlines()[-1]}")
        if not self.count("study_started"):
            self.lost.append("there is no run")
            return
        run = load_run(self.storage)
        if not self.is_done():
            self.lost.append(f"the run is {run.status}: {printed.strip().splitlines()[-1:]}")
            return
        study = load_study(self.folder / "space.py")
        self.lost += faults_of_a_run(Path(run.path), study, run.info["concurrency"])
        self.lost += self.missing(run)
        self.lost += wrong_winner(run)

    def missing(self, run: Run) -> Iterator[str]:
        """Epochs that were reported before a fault and aren't there, or not as they were; seconds may differ."""
        for (trial, epoch), metrics in self.before.items():
            known = run.record.trials[trial].epochs.get(epoch) if trial in run.record.trials else None
            if known is None or set(known.metrics) != set(metrics):
                yield f"epoch {epoch} of {trial} is gone"
            elif "loss" in metrics and known.metrics["loss"] != metrics["loss"]:
                yield f"epoch {epoch} of {trial} was {metrics}, is {known.metrics}"


def wrong_winner(run: Run) -> Iterator[str]:
    """Whether best/ holds the best trial with its weights."""
    folder, best = Path(run.path) / "best", run.record.best_trial()
    if best is None or not (folder / "metrics.json").is_file():
        yield "there is no winner"
    elif json.loads((folder / "metrics.json").read_text())["trial"] != best.trial:
        yield f"best/ is not {best.trial}"
    elif not ((folder / "model.safetensors").is_file() or (folder / "checkpoint").is_dir()):
        yield "the winner has no checkpoint"


# Processes


def descendants(pid: int) -> dict[int, str]:
    """Command lines of the live processes that a process has started, by id, its children's too."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = (int(state[1]), (entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    found: dict[int, str] = {}
    grown = {pid}
    while grown:
        grown = {child for child, (parent, _) in parents.items() if parent in grown}
        found |= {child: parents[child][1] for child in grown}
    return found


def kill(pid: int) -> None:
    """Kill -9 of a process and of all that it has started."""
    for each in [pid, *descendants(pid)]:
        send(each, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """A signal, if the process is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def find(process: subprocess.Popen[str], part: str) -> list[int]:
    """Processes of a search whose command line has this in it."""
    return [pid for pid, command in descendants(process.pid).items() if part in command]


# The faults: each begins a search, does something to it, and leaves it to `finish`.


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


def node_killed(attempt: Attempt) -> None:
    """One of two nodes dies with its workers: kill -9 of all its processes; the search goes on with the other one."""
    nodes = subprocess.Popen(
        [sys.executable, "-m", "tests.two_nodes"],
        cwd=ROOT,
        env={**attempt.environment, **ON_LOOPBACK},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert nodes.stdin is not None
    assert nodes.stdout is not None
    attempt.address = nodes.stdout.readline().strip()
    try:
        process = attempt.run()
        attempt.random_moment(process)
        raylets = [pid for pid, command in descendants(nodes.pid).items() if "raylet/raylet" in command]
        attempt.hit = len(raylets) == 2 and process.poll() is None
        kill(max(raylets))  # the one that joined the other
        attempt.wait(process, "the search of which a node was killed")
    finally:
        attempt.address = None
        kill(nodes.pid)
        nodes.communicate()


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
    """A disk of its own, in memory; raises OSError where this user may not mount one."""
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
    """A trial's newest checkpoint is cut, another one's flipped, between a kill and what follows."""
    driver_killed(attempt)
    if not attempt.count("checkpoint_saved"):
        return
    folder = Path(load_run(attempt.storage).path)
    store = CheckpointStore(LocalFolder(folder))
    newest = [(trial, store.epochs(trial)[-1]) for trial in store.trials() if store.epochs(trial)]
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
    "node of two killed": node_killed,
    "driver stopped": stopped,
    "disk full at the start": full_disk("start"),
    "disk full": full_disk("middle"),
    "disk full in the conclusion": full_disk("conclusion"),
    "image cache on a full disk": full_cache,
    "read-only storage": read_only,
    "checkpoint damaged": damaged_checkpoint,
    "two drivers": two_drivers,
}
FINISHED_INSIDE = tuple(kind for kind in KINDS if "disk" in kind or "read-only" in kind)
QUICK = ("driver killed", "driver killed in its conclusion", "worker killed past a rung", "Ctrl-C", "read-only storage")


def attempt_at(kind: str, number: int, seed: int, *, full: bool = False, quick: bool = False) -> Attempt:
    """Do it once, and go on until the search is done; its `lost` says what was lost."""
    draw = random.Random(f"{kind} {number} {seed}")
    scheduler, search = SCHEDULERS[number % len(SCHEDULERS)], SEARCHES[(number + seed) % len(SEARCHES)]
    if kind.endswith("past a rung"):
        scheduler = SCHEDULERS[0]
    image = PHOTOS if "cache" in kind else DIGITS if full else TINY
    program = image if kind.startswith("image") else FUNCTION.format(scheduler=scheduler, search=search)
    with tempfile.TemporaryDirectory(prefix="tuner-faults-", ignore_cleanup_errors=True) as folder:
        attempt = Attempt(Path(folder), draw, program, seconds_stopped=5 if quick else 60)
        KINDS[kind](attempt)
        if kind not in FINISHED_INSIDE:
            attempt.finish()
    return attempt


def hits(kind: str, times: int, seed: int, *, full: bool = False, quick: bool = False) -> list[Attempt]:
    """So many attempts that came in time; three times as many are made at most."""
    found: list[Attempt] = []
    for number in range(3 * times):
        attempt = attempt_at(kind, number, seed, full=full, quick=quick)
        found += [attempt] if attempt.hit else []
        if len(found) == times:
            break
    return found


def tried(kind: str, times: int, options: argparse.Namespace) -> dict[str, Any]:
    """A row of the table."""
    try:
        attempts = hits(kind, times, options.seed, full=options.full, quick=options.quick)
    except OSError as error:
        if "mounted" not in str(error):
            raise
        return {"kind": kind, "tried": 0, "survived": 0, "lost": [str(error)]}
    lost = [each for attempt in attempts for each in attempt.lost]
    survived = sum(not attempt.lost for attempt in attempts)
    return {"kind": kind, "tried": len(attempts), "survived": survived, "lost": lost}


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few kinds, once each")
    parser.add_argument("--full", action="store_true", help="ResNet18 on digits for image classifiers")
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--times", type=int, default=0, help="of each kind; 4 where left out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    machine = this_machine()
    print(f"{machine.processor}, {machine.cpus} CPUs, Python {platform.python_version()}, ray {version('ray')}")
    print(f"{'fault':40}{'tried':>6}{'survived':>10}  lost")
    rows = []
    for kind in options.only or (QUICK if options.quick else KINDS):
        row = tried(kind, options.times or (1 if options.quick else 4), options)
        rows.append(row)
        print(f"{kind:40}{row['tried']:6}{row['survived']:10}  {'; '.join(row['lost'][:3])}", flush=True)
    figures = {
        "tried": sum(row["tried"] for row in rows),
        "survived": sum(row["survived"] for row in rows),
        "losing": [row["kind"] for row in rows if row["survived"] < row["tried"]],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
