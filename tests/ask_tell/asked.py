"""Studies whose trials a test runs itself."""

from pathlib import Path
from typing import Any

from tuner import ASHA, Budget, External, NoEarlyStopping, Random, Search, Study, choice, uniform
from tuner.ask_tell import Answer, AskedTrial

PROMOTING = ASHA(grace_epochs=1, reduction_factor=3, rule="promote")


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "trial": External("curve"),
        "space": {"x": uniform(0, 1), "kind": choice(["a", "b"]), "y": uniform(0, 1).when(kind="b")},
        "metric": "loss",
        "mode": "min",
        "search": Random(),
        "scheduler": NoEarlyStopping(),
        "budget": Budget(trials=6, max_epochs=3),
        "warm_start": None,
    }
    return Study("asked", **{**settings, **changes})


def loss(config: dict[str, Any], epoch: int) -> float:
    return float(abs(config["x"] - 0.3) + config.get("y", 0.2) / 10 + 1 / epoch)


def epoch_of(search: Search, trial: AskedTrial, epoch: int, folder: Path | None = None) -> Answer:
    """Report an epoch, with a checkpoint that says which where there is a folder for it."""
    if folder is None:
        return search.report(trial, epoch, loss(trial.config, epoch))
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "epoch").write_text(str(epoch))
    return search.report(trial, epoch, {"loss": loss(trial.config, epoch)}, checkpoint=folder)


def train(search: Search, trial: AskedTrial, folder: Path | None = None) -> Answer:
    """Run a trial as a program does; the last answer."""
    answer: Answer = "continue"
    for epoch in trial.epochs_left:
        answer = epoch_of(search, trial, epoch, folder)
        if answer != "continue":
            break
    search.tell(trial)
    return answer


def train_all(search: Search, folder: Path | None = None) -> int:
    """Run trials until there are none left; how many were asked for."""
    asked = 0
    while (trial := search.ask()) is not None:
        asked += 1
        train(search, trial, folder)
    return asked
