"""A program that is killed at any moment: nothing that was answered is lost, and the search goes on as it would have."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ask_tell.asked import PROMOTING, study, train_all
from tuner import Budget, Run, Search, load_run

DECLARED = study(scheduler=PROMOTING, budget=Budget(trials=12, max_epochs=9), seed=3)

PROGRAM = """
import os, sys
from pathlib import Path
from tests.ask_tell.asked import epoch_of
from tests.ask_tell.test_kills import DECLARED
from tuner import Search
from tuner.lifecycle import conclusion

conclusion.SECONDS_FOR_REPORT = float("inf")
folder = Path(sys.argv[1])
runs = folder / "runs"
search = Search.resume(runs, DECLARED) if runs.exists() else Search(DECLARED, storage=runs)
with search:
    while (trial := search.ask()) is not None:
        print("asked", trial.id, trial.from_epoch, flush=True)
        for epoch in trial.epochs_left:
            answer = epoch_of(search, trial, epoch, folder / "saved")
            print("answered", trial.id, epoch, answer, flush=True)
            if answer != "continue":
                break
        search.tell(trial)
print("over", flush=True)
"""


def killed_after(folder: Path, lines: int) -> list[list[str]]:
    """What the program printed until it was killed in the moment of so many lines, or had ended."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    said = []
    for line in program.stdout:
        said.append(line.split())
        if len(said) == lines:
            os.kill(program.pid, signal.SIGKILL)
            break
    rest = program.stdout.read()  # that it still could; its last line may be cut off
    said += [line.split() for line in rest[: rest.rfind("\n") + 1].splitlines() if line]
    program.wait(300)
    return said


def told(run: Run) -> dict[str, tuple[object, ...]]:
    """What a run came to: configurations, ends and decisions."""
    return {
        t.trial: (t.config, t.status, t.ended_by, [(e.epoch, e.metrics, e.decision) for e in t.epochs.values()])
        for t in run.record.trials.values()
    }


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 12))])
def test_a_search_that_is_killed_again_and_again_comes_to_the_same(tmp_path: Path, seed: int) -> None:
    with Search(DECLARED, storage=tmp_path / "whole") as undisturbed:
        train_all(undisturbed, tmp_path / "saved")
    generator = random.Random(seed)
    answers: dict[tuple[str, str], str] = {}
    for _ in range(40):
        said = killed_after(tmp_path, generator.randint(5, 14))
        answers |= {(words[1], words[2]): words[3] for words in said if words[0] == "answered" and len(words) == 4}
        if said[-1:] == [["over"]]:
            break
    run = left_run(tmp_path)
    assert run.status == "finished"
    assert told(run) == told(undisturbed.run)
    for (trial, epoch), answer in answers.items():
        assert run.record.trials[trial].epochs[int(epoch)].decision == answer


def left_run(folder: Path) -> Run:
    """The run that the program has left."""
    return load_run(folder / "runs")


@pytest.mark.parametrize("lines", [1, 2])
def test_what_was_answered_is_in_the_run_folder(tmp_path: Path, lines: int) -> None:
    said = killed_after(tmp_path, lines)
    run = left_run(tmp_path)
    assert run.status == "interrupted"
    for words in said:
        trial = run.record.trials[words[1]]
        assert words[0] == "asked" or int(words[2]) in trial.epochs
    with Search.resume(run.path, DECLARED) as search:
        last = search.run.record.trials[
            said[-1][1]
        ]  # it may have come further than its program, or an event, could say
        begun = said[-1][0] == "asked" and int(said[-1][2]) == last.epoch  # also one that had waited and goes on
        is_out = begun or not last.epochs or last.epochs[last.epoch].decision == "continue"
        again = search.ask()
        assert again is not None
        assert (again.id == said[-1][1]) is is_out
