"""A look at image files before a search: `python -m tuner.train.data.looking`, its own process.

It decodes the images into the machine's cache, as the first trial would, and reports its findings. The process reads a
task as one line of JSON, answers by one line, and ends when its standard input ends: with its parent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import DataError, describe_error
from tuner.machine.child_process import end_with_the_input
from tuner.train.data.cutting import Cut, cut
from tuner.train.data.facts import DataFacts, data_facts
from tuner.train.data.loading import load_pool
from tuner.trial import ImageClassifier
from tuner.trial.earlier_pixels import scale_note
from tuner.trial.framing import Framing
from tuner.trial.splitting import Folds

WITH_NEW_PIXELS = "trials are trained with the new ones now; begin a new run for trials that are all alike"


def look(trial: ImageClassifier, *, seed: int, framing: Framing, before: bool = False) -> DataFacts | None:
    """The facts about the trial's images for the run; None if they aren't separate files.

    Args:
        trial: names the data and its cut
        seed: decides the cut
        framing: how the images are resized when they are decoded
        before: whether the run began with a version that read some images otherwise: a notice says which

    Raises:
        DataError: the data is missing, damaged, or too little to cut.
    """
    images = trial.image_files
    if images is None:
        return None
    pool, scheme = load_pool(trial, framing), Cut(seed, trial.validation, trial.group)
    rows = cut(pool, scheme, trial.source.name)
    facts = data_facts(pool, rows, scheme, images, known=trial.source != images)
    notice = scale_note(pool.files, pool.scale, WITH_NEW_PIXELS) if before else None
    return facts if notice is None else replace(facts, notices=(notice, *facts.notices))


def main() -> None:
    """Do the task in the line on standard input."""
    task = json.loads(sys.stdin.readline())
    end_with_the_input()
    try:
        answer = _answer(task)
    except DataError as error:
        answer = {"refused": str(error)}
    except Exception as error:
        answer = {"failed": describe_error(error)}
    print(json.dumps(answer), flush=True)


def _answer(task: Mapping[str, Any]) -> dict[str, Any]:
    trial = ImageClassifier(**{name: value for name, value in task["trial"].items() if name != "folds"})
    if folds := task["trial"].get("folds"):
        trial = replace(trial, validation=Folds(folds))
    found = look(trial, seed=task["seed"], framing=Framing(**task["framing"]), before=task.get("before", False))
    return {} if found is None else {"record": found.record(), "notices": found.notices}


if __name__ == "__main__":
    main()
