"""A run folder of a search over a cheap function, made without Ray."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.history.events_of_a_run import ended, event, reported, started
from tests.loop.simulation import Curve, build, drive, study
from tuner import ASHA, Budget, Random, Run, choice, load_run, loguniform, randint, uniform
from tuner.history.event_lines import Event, written
from tuner.history.run_info import FORMAT, write_info
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
    folder: Path,
    *,
    reports: int | None = None,
    curve: Curve = loss,
    saves: bool = True,
    more: Callable[[dict[str, Any]], dict[str, float]] = lambda config: {},
    **changes: Any,
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
    drive(build(declared, folder), curve, reports=reports, saves=saves, more=more)
    info = {"study": "simulated", "metric": "loss", "mode": declared.mode, "status": "finished", "started": "2026"}
    info |= {
        "space": space_record(declared.search_space),
        "rungs": [3],
        "forecast": declared.forecast,
        "budget": {"max_epochs": 9},
        "options": {},
        "limits": {},
        "second": None if declared.second is None else asdict(declared.second),
    }
    write_info(LocalFolder(folder), {**info, "format": FORMAT, "host": "elsewhere"})
    return load_run(folder)


def of_events(folder: Path, events: list[Event], **info: Any) -> Run:
    """A run with these events, with times of the test's own choosing; of a loss that is to be low."""
    (folder / "events").mkdir(parents=True)
    (folder / "events" / "000001.jsonl").write_bytes(b"".join(written(event) + b"\n" for event in events))
    told: dict[str, Any] = {"study": "told", "metric": "loss", "mode": "min", "status": "finished", "started": "2026"}
    told |= {"rungs": [], "budget": {"max_epochs": 3}, "host": "elsewhere"}
    write_info(LocalFolder(folder), {**told, **info, "format": FORMAT})
    return load_run(folder)


def gone_on_an_hour_later(folder: Path, *, killed: bool) -> Run:
    """A trial without checkpoints, of three epochs of 10 s: after 25 s its driver ended, and the next one began it anew.

    Drivers worked for 55 s, or 50 s if the first was killed, as its last event was after 20 s.
    """
    events = [event("study_started", 1000.0, trials=1), started(0, 1000.0)]
    events += [reported(0, 1, 1010.0, loss=3.0), reported(0, 2, 1020.0, loss=2.0)]
    events += [] if killed else [event("study_interrupted", 1025.0, reason="Ctrl-C")]
    events += [event("study_resumed", 4600.0, trials=1), started(0, 4600.0)]
    events += [reported(0, epoch, 4600.0 + 10 * epoch, loss=4.0 - epoch) for epoch in (1, 2, 3)]
    return of_events(folder, [*events, ended(0, "completed", 4630.0), event("study_ended", 4630.0, reason="trials")])
