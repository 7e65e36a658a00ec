"""A run folder of a search over a cheap function, made without Ray."""

from pathlib import Path
from typing import Any

from tests.loop.simulation import Curve, build, drive, study
from tuner import ASHA, Budget, Random, choice, load_run, loguniform, randint, uniform
from tuner.results import Run
from tuner.results.run import FORMAT, write_info
from tuner.space import space_record
from tuner.storage.folder import LocalFolder

SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "kind": choice(["a", "b"]),
    "depth": randint(1, 9),
    "momentum": uniform(0, 1).when(kind="b"),
    "width": choice([16, 32, 64]),
}


def loss(config: dict[str, Any], epoch: int) -> float:
    if config["depth"] == 4:  # better than all others, and then fails
        return 0.0 if epoch == 1 else float("nan")
    return abs(config["lr"] - 0.01) * 10 + 1 / epoch


def simulated(
    folder: Path, *, reports: int | None = None, curve: Curve = loss, saves: bool = True, **changes: Any
) -> Run:
    declared = study(
        **{
            "space": SPACE,
            "search": Random(),
            "scheduler": ASHA(),
            "budget": Budget(trials=24, max_epochs=9),
            **changes,
        }
    )
    drive(build(declared, folder), curve, reports=reports, saves=saves)
    info = {"study": "simulated", "metric": "loss", "mode": declared.mode, "status": "finished", "started": "2026"}
    info |= {
        "space": space_record(declared.search_space),
        "rungs": [3],
        "budget": {"max_epochs": 9},
        "options": {},
        "limits": {},
    }
    write_info(LocalFolder(folder), {**info, "format": FORMAT, "host": "elsewhere"})
    return load_run(folder)
