"""Eight kinds of runs that reports and figures have to show, each written in moments without Ray: `KINDS`."""

import json
import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.loop.simulation import build, events_of, study
from tuner import ASHA, Budget, NoEarlyStopping, Random, Run, Study, choice, load_run, loguniform, randint, uniform
from tuner.history.event_lines import written
from tuner.history.logs import log_name
from tuner.history.run_info import FORMAT, write_info
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision
from tuner.space import space_record
from tuner.storage.folder import LocalFolder

Metrics = dict[str, float]
Train = Callable[[dict[str, Any], int, int], Metrics]  # of configuration, trial's number, and epoch; may raise
BEGUN = 1_790_000_000.0  # seconds since 1970
EPOCH_SECONDS = 12.0
STARTUP_SECONDS = 5.0
TRACEBACK = 'Traceback (most recent call last):\n  File "/home/a user/train.py", line 42, in train\n'
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
SEARCHED = {
    "lr": loguniform(1e-4, 1e-1),
    "optimizer": choice(["sgd", "adam"]),
    "momentum": uniform(0, 0.99).when(optimizer="sgd"),
    "weight_decay": loguniform(1e-6, 1e-2),
    "augmentation": choice([None, "flip", "randaugment"]),
    "batch_size": choice([16, 32, 64, 128, 256]),
}
LONG = "средняя_точность_на_проверочной_выборке_после_усреднения_по_всем_классам_и_повторам"


@dataclass(frozen=True)
class Noted:
    """A note that a user wrote while the search ran: about a trial, or about the run."""

    text: str
    trial: str | None = None


def accuracy(config: dict[str, Any], number: int, epoch: int) -> Metrics:
    """A fine-tuned classifier: best near lr 0.006 without augmentation, better with every epoch."""
    worth = 0.95 - 0.09 * math.log10(config["lr"] / 0.006) ** 2
    worth -= {None: 0.0, "flip": 0.01, "randaugment": 0.05}[config.get("augmentation")]
    worth -= 0.03 * (config.get("optimizer") == "adam") + 0.004 * abs(math.log2(config.get("batch_size", 64) / 64))
    shown = 0.1 + (max(worth, 0.15) - 0.1) * (1 - math.exp(-epoch / 4)) + 0.004 * math.sin(7 * number + epoch)
    return {
        "val_accuracy": shown,
        "val_loss": 1.6 * (1 - shown),
        "train_loss": 1.5 * (1 - shown) * math.exp(-epoch / 30),
        "learning_rate": config["lr"] * (1 + math.cos(math.pi * epoch / 27)) / 2,
        "seconds": EPOCH_SECONDS,
        "images_per_second": 40.0 * math.sqrt(config.get("batch_size", 64)),
        "memory_peak_bytes": 6e8 + 2.3e7 * config.get("batch_size", 64),
    }


def failing_at_times(config: dict[str, Any], number: int, epoch: int) -> Metrics:
    if number % 10 == 4 and epoch == 1:
        raise KeyError("label")
    if number % 10 == 7 and epoch == 2:
        raise FileNotFoundError(2, "No such file or directory", f"/data/train images/{number}.png")
    return accuracy(config, number, epoch)


def sixty_conditional(folder: Path) -> Run:
    """60 trials of a conditional space: 6 KeyErrors before an epoch, 6 FileNotFoundErrors after one; with a winner."""
    budget = Budget(trials=60, max_epochs=27)
    notes = [
        Noted("the old split, not comparable with spring's"),
        Noted("looks odd after epoch 3 #ask-anna", "00007"),
        Noted("learning rate like the paper's", "00002"),
    ]
    return scored(searched(folder, failing_at_times, notes=notes, space=SEARCHED, scheduler=ASHA(), budget=budget))


def two_trials(folder: Path, seed: int = 0) -> Run:
    """Two trials, too few for most figures."""
    return searched(folder, accuracy, space=SEARCHED, budget=Budget(trials=2, max_epochs=5), seed=seed)


def all_failed(folder: Path) -> Run:
    """Eight trials that fail before their first epoch ends: there is no winner."""

    def fail(config: dict[str, Any], number: int, epoch: int) -> Metrics:
        raise KeyError("label")

    return searched(folder, fail, space=SEARCHED, budget=Budget(trials=8, max_epochs=5), status="failed")


def interrupted(folder: Path) -> Run:
    """A search whose driver was ended in the middle, while trials ran."""
    return searched(
        folder,
        accuracy,
        space=SEARCHED,
        scheduler=ASHA(),
        budget=Budget(trials=40, max_epochs=27),
        reports=90,
        status="interrupted",
    )


def thousand_of_fifty(folder: Path) -> Run:
    """1,000 trials of 50 epochs each: takes some seconds."""
    space = {"lr": loguniform(1e-4, 1e-1), "batch_size": choice([16, 32, 64, 128, 256]), "dropout": uniform(0, 0.5)}
    return searched(
        folder, brief, space=space, search=Random(sobol=False), budget=Budget(trials=1000, max_epochs=50), at_once=8
    )


def one_hyperparameter(folder: Path) -> Run:
    """A space of one dimension: no contour, nothing to rank by two."""
    return searched(folder, accuracy, space={"lr": loguniform(1e-4, 1e-1)}, budget=Budget(trials=20, max_epochs=9))


def seven_decades(folder: Path) -> Run:
    """Losses from 1.7e-5 to 5.5e7."""

    def loss(config: dict[str, Any], number: int, epoch: int) -> Metrics:
        low = 1.7e-5 * (5.5e7 / 1.7e-5) ** (abs(math.log10(config["lr"]) + 3) / 3)
        return {"loss": low * (1 + 2 * math.exp(-epoch / 2)), "train_loss": low * 0.8}

    space = {"lr": loguniform(1e-6, 1.0), "depth": randint(1, 9)}
    return searched(folder, loss, space=space, metric="loss", mode="min", budget=Budget(trials=40, max_epochs=9))


def long_unicode(folder: Path) -> Run:
    """Names that are long, not Latin, or written from the right; values too."""
    space = {
        "скорость_обучения_последнего_слоя_после_размораживания": loguniform(1e-4, 1e-1),
        "معدل_التعلم": uniform(0, 1),
        "a_very_long_name_of_a_hyperparameter_that_nobody_would_type_but_a_generator_does": choice(
            ["データ拡張なし" * 6, "data augmentation with everything that torchvision has, in its default order"]
        ),
    }

    def train(config: dict[str, Any], number: int, epoch: int) -> Metrics:
        if number == 3:
            raise ValueError("значение вне допустимого диапазона: " + "очень" * 30)
        return {LONG: 1 - 0.5 / epoch - 0.3 * abs(config["معدل_التعلم"] - 0.4), "🎯": float(epoch)}

    return searched(
        folder,
        train,
        name="Тонкая настройка классификатора изображений на фотографиях растений 植物の写真",
        space=space,
        metric=LONG,
        budget=Budget(trials=12, max_epochs=4),
    )


KINDS: dict[str, Callable[[Path], Run]] = {
    one.__name__: one
    for one in (
        *(sixty_conditional, two_trials, all_failed, interrupted),
        *(thousand_of_fifty, one_hyperparameter, seven_decades, long_unicode),
    )
}
QUICK = tuple(name for name in KINDS if name != "thousand_of_fifty")


def searched(
    folder: Path,
    train: Train,
    *,
    name: str = "plants",
    notes: list[Noted] | None = None,
    status: str = "finished",
    at_once: int = 4,
    reports: int = 10**9,
    **changes: Any,
) -> Run:
    """A search of workers that train an epoch each in turn, told in times as real trials take."""
    settings: dict[str, Any] = {"metric": "val_accuracy", "mode": "max", "scheduler": NoEarlyStopping(), **changes}
    declared = study(**settings)
    loop = build(declared, folder, concurrency=at_once)
    _work(loop, train, reports)
    if loop.finished:
        loop.end()
    loop.close()
    _tell_times(folder, at_once, notes or [])
    _describe(folder, declared, name, status)
    return load_run(folder)


def scored(run: Run) -> Run:
    """The run with what a scored winner leaves in `best/`."""
    best = run.best
    assert best is not None
    metrics = {"test_accuracy": 0.936, "test_loss": 0.2}
    counts = [[48, 2, 0], [3, 45, 2], [0, 1, 49]]
    contents: dict[str, Any] = {
        "metrics": {"trial": best.trial, "metrics": metrics, "images": {"validation": 500, "test": 150}},
        "confusion_matrix": {"classes": ["daisy", "poppy", "rose"], "counts": counts},
        "mistakes": [{"index": 3, "label": "poppy", "predicted": "daisy", "confidence": 0.98, "image": PIXEL}],
    }
    for file, content in contents.items():
        run.folder.write(f"best/{file}.json", json.dumps(content).encode())
    return load_run(run.path)


# Inside


def _work(loop: SearchLoop, train: Train, reports: int) -> None:
    """Until the search ends, or after so many reports as a killed driver leaves it."""
    at: dict[str, int] = {}  # epochs of the trials that are on workers
    while not loop.finished and reports > 0:
        while (start := loop.next_action()) is not None:
            at[start.trial] = loop.record.trials[start.trial].epoch
        for trial in list(at):
            reports -= 1
            at[trial] += 1
            if reports < 0 or not _train_an_epoch(loop, train, trial, at[trial]):
                del at[trial]


def _train_an_epoch(loop: SearchLoop, train: Train, trial: str, epoch: int) -> bool:
    """Whether the trial goes on."""
    record = loop.record.trials[trial]
    try:
        metrics = train(record.config, record.number, epoch)
    except (KeyError, FileNotFoundError, ValueError) as error:
        said = "".join(traceback.format_exception_only(error))
        loop.folder.write(log_name(trial), f"2026-09-21T14:13:20Z epoch {epoch} | loading images\n".encode())
        loop.failed(trial, "error", said.strip(), TRACEBACK + said)
        return False
    return loop.report(trial, epoch, metrics, saves=False) is Decision.CONTINUE


def brief(config: dict[str, Any], number: int, epoch: int) -> Metrics:
    """The two metrics of `accuracy` that long searches are looked at by."""
    whole = accuracy(config, number, epoch)
    return {name: whole[name] for name in ("val_accuracy", "train_loss")}


def _tell_times(folder: Path, at_once: int, notes: list[Noted]) -> None:
    """Write the events again with the times of workers that need EPOCH_SECONDS an epoch; and the notes."""
    events, now = events_of(folder), BEGUN
    for event in events:
        now += {"epoch_reported": EPOCH_SECONDS, "trial_started": STARTUP_SECONDS}.get(event["event"], 0.0) / at_once
        event["time"] = now
    for count, note in enumerate(notes):
        about = {"trial": note.trial} if note.trial else {}
        order = {"order": f"note-{count}", "verb": "note", "arguments": {"text": note.text, **about}, "by": "anna"}
        events.insert(-1, {"event": "order_obeyed", "time": now, **order, "message": "noted"})
    for segment in (folder / "events").iterdir():
        segment.unlink()
    (folder / "events" / "000001.jsonl").write_bytes(b"".join(written(event) + b"\n" for event in events))


def _describe(folder: Path, declared: Study, name: str, status: str) -> None:
    """`run.json` as a driver writes it."""
    info: dict[str, Any] = {
        "study": name,
        "study_file": "/home/a user/study of plants.py",
        "metric": declared.metric,
        "mode": declared.mode,
        "status": status,
        "end_reason": "trials" if status == "finished" else None,
        "started": "2026-09-21T14:13:20+00:00",
        "ended": "2026-09-21T15:02:11+00:00",
        "command": ["tuner", "run", "study of plants.py"],
        "seed": 0,
        "trial": "<function train at 0x7f3a5c0d2e80>",
        "space": space_record(declared.search_space),
        "rungs": [3, 9] if isinstance(declared.scheduler, ASHA) else [],
        "budget": {"trials": declared.budget.trials, "max_epochs": declared.budget.max_epochs},
        "options": {},
        "limits": {},
        "resources": {"cpus": 4, "gpus": 1},
        "machine": {"cpus": 16, "memory_bytes": 25_276_510_208, "gpus": "NVIDIA H100 80GB HBM3"},
        "versions": {"ray": "2.60.0", "torch": "2.15.0"},
        "python": "3.11.9",
        "report": "/home/a user/runs/elsewhere/report.html",
        "format": FORMAT,
        "host": "elsewhere",
    }
    write_info(LocalFolder(folder), info)
