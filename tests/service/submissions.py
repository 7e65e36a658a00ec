"""Users and submissions that the tests of the service share."""

import json
from typing import Any

from tuner.service.bundles import of_json
from tuner.service.model import Role, Submission, User

ANNE = User(1, "anne", Role.SUBMITTER)
BERT = User(2, "bert", Role.SUBMITTER)
CHIEF = User(3, "chief", Role.ADMIN)
GUEST = User(4, "guest", Role.VIEWER)

STUDY = """\
import tuner

def train(config):
    for epoch in range(3):
        tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / (epoch + 1))

study = tuner.Study(
    "parabola",
    trial=train,
    space={"x": tuner.uniform(0, 1)},
    metric="loss",
    mode="min",
    search=tuner.Random(),
    scheduler=tuner.NoEarlyStopping(),
    warm_start=None,
    budget=tuner.Budget(trials=4, max_epochs=3),
)
"""


FURNACE: dict[str, Any] = {
    "name": "furnace",
    "trial": "furnace",
    "space": {"x": {"type": "uniform", "low": 0, "high": 1}},
    "metric": "loss",
    "mode": "min",
    "search": "Random",
    "scheduler": "NoEarlyStopping",
    "budget": {"trials": 6, "max_epochs": 3},
    "warm_start": None,
}


def furnace(**changes: Any) -> dict[str, Any]:
    """A study in JSON, whose trials workers ask for."""
    return FURNACE | changes


def external(study: dict[str, Any] | None = None, **changes: Any) -> Submission:
    return of_json(json.dumps(study or FURNACE).encode(), **changes)


def submission(text: str = STUDY, files: dict[str, bytes] | None = None, **changes: Any) -> Submission:
    return Submission(**{"main": "parabola.py", "files": {"parabola.py": text.encode(), **(files or {})}, **changes})
