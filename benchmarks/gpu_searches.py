"""Rows of `gpu.py` that are commands: whole searches under Ray, the doctor, and the tests that need a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import published
from benchmarks.gpu_record import TOLD, Figures, Sizes
from benchmarks.plain_loop import write_subset
from benchmarks.published import Outcome, Setting
from tuner import load_run
from tuner.errors import TunerError
from tuner.results.run import RecordedRun

ROOT = Path(__file__).resolve().parent.parent
STUDY = """\
from tuner import ASHA, Budget, ImageClassifier, NoEarlyStopping, Random, Study, choice, loguniform

study = Study(
    name="gpu",
    trial=ImageClassifier(data="fashion-mnist", model="resnet18", weights=None),
    space={{"lr": loguniform(1e-4, 1e-3), "batch_size": choice([64, 128])}},
    metric="val_accuracy",
    search=Random(),
    scheduler={scheduler},
    budget=Budget(trials={trials}, max_epochs={epochs}),
)
"""
PAUSED_AFTER = 0.1  # of the epochs that all trials would have
LOOK_SECONDS = 0.3


def setting_of(sizes: Sizes, **changes: Any) -> Setting:
    """The published search in full (or as far as is pretended), trials sharing the GPU."""
    setting = Setting(sizes.scale, sizes.images, sizes.trials, sizes.device, None, None if sizes.pretend else "auto")
    return replace(setting, **changes)


@contextmanager
def made_data(images: int) -> Iterator[Path]:
    """A folder with a Fashion-MNIST of images that are made up."""
    with tempfile.TemporaryDirectory() as folder:
        write_subset(None, Path(folder), images, max(100, images // 6))
        yield Path(folder)


# The published search


def published_search(setting: Setting, data: Path) -> Outcome:
    """By tuner with its defaults."""
    with tempfile.TemporaryDirectory() as folder:
        return published.default(setting, data, Path(folder), 0)


def plain_search(setting: Setting, data: Path) -> Outcome:
    """By the plain script."""
    with tempfile.TemporaryDirectory() as folder:
        return published.plain(setting, data, Path(folder), 0)


def figures_of(found: Outcome) -> Figures:
    """What a search took, in seconds, and reached."""
    return {
        "seconds": found.seconds,
        "first_epoch_began": found.began,
        "last_epoch_ended": found.epochs[-1].ended,
        "epochs": len(found.epochs),
        "trials_at_once": found.at_once,
        "gpu_utilisation": found.gpu_utilisation,
        "best": found.best,
        "test_accuracy": found.test_accuracy,
    }


def told_of(found: Outcome) -> str:
    """A search in a few words."""
    return f"{found.seconds:.1f} s, {len(found.epochs)} epochs, {found.at_once:.1f} trials at once"


def search_published(sizes: Sizes, figures: Figures) -> None:
    """The search in full, and how long the plain script would take for as many epochs, from a short one."""
    with made_data(sizes.images) as data:
        ours = published_search(setting_of(sizes), data)
        figures |= figures_of(ours)
        figures[TOLD] = told_of(ours)
        short = setting_of(sizes, scale=sizes.plain_scale, trials=sizes.plain_trials)
        plain = plain_search(short, data)
    training = sum(epoch.seconds for epoch in plain.epochs)
    whole = plain.seconds - training + len(ours.epochs) * training / len(plain.epochs)
    figures |= {"plain_short": figures_of(plain), "plain_seconds_extrapolated": whole, "times": whole / ours.seconds}
    figures[TOLD] += f"; the plain script {whole:.0f} s (from {len(plain.epochs)} epochs): {figures['times']:.1f} times"


def search_published_alone(sizes: Sizes, figures: Figures) -> None:
    """The search with a GPU for each trial, as without `--gpus-per-trial`."""
    with made_data(sizes.images) as data:
        found = published_search(setting_of(sizes, gpus_per_trial=None), data)
    figures |= figures_of(found)
    figures[TOLD] = told_of(found)


def search_plainly(sizes: Sizes, figures: Figures) -> None:
    """The plain script in full."""
    with made_data(sizes.images) as data:
        found = plain_search(setting_of(sizes), data)
    figures |= figures_of(found)
    figures[TOLD] = told_of(found)


def search_real_images(sizes: Sizes, figures: Figures) -> None:
    """Both searches on images of Fashion-MNIST: the accuracy of their winners."""
    if not sizes.pretend and not (sizes.data / "FashionMNIST").is_dir():
        raise FileNotFoundError(f"Fashion-MNIST is needed, got none in {sizes.data}; make it by --pack {sizes.data}")
    with made_data(sizes.images) if sizes.pretend else unpacked(sizes.data, sizes.real_images) as data:
        found = {}
        for name, search in (("tuner", published_search), ("plain", plain_search)):
            found[name] = search(setting_of(sizes, images=sizes.real_images), data)
            figures[name] = figures_of(found[name])
            told = [f"{one} {was.test_accuracy:.4f} ({told_of(was)})" for one, was in found.items()]
            figures[TOLD] = f"test accuracy: {'; '.join(told)}"
    figures["accuracy_gained"] = found["tuner"].test_accuracy - found["plain"].test_accuracy


@contextmanager
def unpacked(packed: Path, images: int) -> Iterator[Path]:
    """A folder with the files of Fashion-MNIST."""
    with tempfile.TemporaryDirectory() as folder:
        published.write_data(packed, Path(folder), images)
        yield Path(folder)


# Trials that share the GPU


def study_in(folder: Path, sizes: Sizes, scheduler: str) -> Path:
    """A study file."""
    file = folder / "space.py"
    file.write_text(STUDY.format(scheduler=scheduler, trials=sizes.trials, epochs=sizes.epochs))
    return file


def share_options(sizes: Sizes, gpus: str) -> list[str]:
    """How trials share the GPU; where it is pretended, the CPUs."""
    if not sizes.pretend:
        return ["--gpus-per-trial", gpus]
    return ["--cpus-per-trial", "auto"] if gpus == "auto" else ["--gpus-per-trial", "0"]


def tuner_command(*words: str | Path) -> list[str]:
    """`python -m tuner …`."""
    return [sys.executable, "-m", "tuner", *map(str, words)]


def run_command(file: Path, data: Path, storage: Path, options: list[str]) -> list[str]:
    """`tuner run`, silent and with what it finds as JSON."""
    quiet = ["--no-history", "--wandb", "off", "--quiet", "--json"]
    return tuner_command("run", file, "--data-dir", data, "--storage", storage, *quiet, *options)


def pack_search(sizes: Sizes, figures: Figures) -> None:
    """Trials one after another, then as many at once as tuner finds; from the first one's start to the last's end."""
    with made_data(sizes.images) as data:
        for gpus in ("1", "auto"):
            with tempfile.TemporaryDirectory() as folder:
                file = study_in(Path(folder), sizes, "NoEarlyStopping()")
                command = run_command(file, data, Path(folder) / "runs", share_options(sizes, gpus))
                _, seconds, utilisation = published.run(command, setting_of(sizes))
                figures[gpus] = course(load_run(Path(folder) / "runs")) | {
                    "command_seconds": seconds,
                    "gpu_utilisation": utilisation,
                }
    figures["times"] = figures["1"]["seconds"] / figures["auto"]["seconds"]
    figures["failed_trials"] = sum(len(figures[gpus]["failures"]) for gpus in ("1", "auto"))
    figures[TOLD] = (
        f"{figures['1']['seconds']:.1f} s one after another, {figures['auto']['seconds']:.1f} s up to "
        f"{figures['auto']['at_once']} at once: {figures['times']:.2f} times as fast"
    )


def course(run: RecordedRun) -> Figures:
    """How a search went: its trials, the workers that they used, why some failed, how their steps were taken."""
    trials = run.record.trials.values()
    happened = Counter(event["event"] for event in run.events)
    times = [event["time"] for event in run.events if event["event"].startswith(("trial_", "epoch_"))]
    placed = [(event["host"], event["pid"]) for event in run.events if event["event"] == "trial_placed"]
    last = [trial.epochs[trial.epoch].metrics for trial in trials if trial.epochs]
    return {
        "seconds": max(times) - min(times),
        "trials": dict(Counter(trial.status for trial in trials)),
        "epochs": happened["epoch_reported"],
        "paused": happened["trial_paused"],
        "resumed": happened["trial_resumed"],
        "starts": len(placed),
        "workers": len(set(placed)),
        "at_once": most_at_once(run),
        "step_paths": dict(Counter(str(metrics.get("step_path")) for metrics in last)),
        "failures": [f"{trial.cause}: {str(trial.message)[:300]}" for trial in trials if trial.status == "failed"],
        "notices": [notice[:300] for notice in run.record.notices],
        "ended_by": run.end_reason,
    }


def most_at_once(run: RecordedRun) -> int:
    """The most trials that were on workers together."""
    running: set[str] = set()
    most = 0
    for event in run.events:
        if event["event"] == "trial_placed":
            running.add(event["trial"])
        elif event["event"] in ("trial_paused", "trial_ended", "trial_lost"):
            running.discard(event["trial"])
        most = max(most, len(running))
    return most


def pause_and_resume(gpus: str, sizes: Sizes, figures: Figures) -> None:
    """A search with ASHA, which pauses trials and gives their workers to others, that is paused itself and resumed."""
    with made_data(sizes.images) as data, tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        file = study_in(Path(folder), sizes, "ASHA(grace_epochs=1)")
        command = run_command(file, data, runs, share_options(sizes, gpus))
        environment = setting_of(sizes).environment
        with (Path(folder) / "said").open("w+") as said:
            driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)
            wait_for_epochs(driver, runs, max(1, round(PAUSED_AFTER * sizes.trials * sizes.epochs)))
            pause = tuner_command("pause", runs)
            done = subprocess.run(pause, env=environment, capture_output=True, text=True, check=False)
            driver.wait()
            said.seek(0)
            figures["first"] = course(load_run(runs)) | {"code": driver.returncode, "said": said.read()[-1000:]}
        figures["pause"] = {"code": done.returncode, "said": (done.stdout + done.stderr)[-500:]}
        begun = time.perf_counter()
        published.run(tuner_command("resume", runs, "--wandb", "off", "--quiet", "--json"), setting_of(sizes))
        figures["resume_seconds"] = time.perf_counter() - begun
        figures["whole"] = whole = course(load_run(runs))
    figures["failed_trials"] = len(whole["failures"])
    figures["reused_workers"] = whole["starts"] - whole["workers"]
    figures["paused_searches"] = int(str(figures["first"]["ended_by"]).startswith("paused"))
    figures[TOLD] = (
        f"paused after {figures['first']['epochs']} epochs, ended after {whole['epochs']} by '{whole['ended_by']}'; "
        f"{whole['starts']} starts of trials on {whole['workers']} workers, up to {whole['at_once']} at once, "
        f"{whole['paused']} pauses, {whole['resumed']} of them ended, {len(whole['failures'])} trials failed; "
        f"steps: {whole['step_paths']}"
    )


def wait_for_epochs(driver: subprocess.Popen[bytes], runs: Path, count: int) -> None:
    """Until so many were reported, or the search ended."""
    while driver.poll() is None:
        with suppress(TunerError):  # there is no run yet
            if sum(event["event"] == "epoch_reported" for event in load_run(runs).events) >= count:
                return
        time.sleep(LOOK_SECONDS)


# The doctor and the tests


def examine(sizes: Sizes, figures: Figures) -> None:
    """What `tuner doctor` says of the machine."""
    from tuner.doctor.examination import examine_machine

    with tempfile.TemporaryDirectory() as folder:
        findings = examine_machine(folder, folder, only=sizes.checks)
    figures["findings"] = [
        f"{one.where}, {one.check}: {one.status}, {one.said}{f'; {one.fix}' if one.fix else ''}" for one in findings
    ]
    counts = Counter(one.status for one in findings)
    figures["failed_checks"] = counts["failed"]
    bad = [f"{one.check}: {one.said}" for one in findings if one.status in ("failed", "notice")]
    figures[TOLD] = ", ".join(f"{number} {status}" for status, number in counts.items()) + "".join(
        f"; {finding}" for finding in bad
    )


def look_first(sizes: Sizes, figures: Figures) -> None:
    """What a machine's first search does before it starts; its result is remembered for the searches of later rows."""
    from tuner.doctor.readiness import readiness

    begun = time.perf_counter()
    found = readiness(0 if sizes.pretend else 1)
    figures |= {"seconds": time.perf_counter() - begun, "off": found.off, "notices": found.notices}
    figures[TOLD] = f"{figures['seconds']:.0f} s; switched off: {', '.join(found.off) or 'nothing'}"


def run_gpu_tests(sizes: Sizes, figures: Figures) -> None:
    """`pytest -m gpu`, on the files that have such tests."""
    files = [
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        if "pytest.mark.gpu" in file.read_text()
    ]
    options = ["-m", "gpu", "-rfE", "--tb=line", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)", done.stdout)}
    figures |= {"files": files, "code": done.returncode, **counts}
    figures["failed_tests"] = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    figures["failures"] = [line[:300] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    figures[TOLD] = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    if not counts:
        raise RuntimeError(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
