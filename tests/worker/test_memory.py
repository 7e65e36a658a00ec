"""A worker that runs trial after trial holds no more memory after the twentieth than after the second."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.conftest import write_colours

TRIALS = """
import json, sys
from tests.worker.test_saving import ASSIGNMENT
from dataclasses import replace
from tuner.trial import ImageClassifier
from tuner.worker.classification import Classification
from tuner.worker.clean_process import clean_process

CONFIGS = [
    {"ema_decay": 0.9, "mixup": 0.2, "flip": 0.5, "precision": "bf16"},
    {"batch_size": 24, "optimizer": "sgd", "clip_norm": 1.0},
]

class Session:
    def __init__(self):
        self.notes = []
    def checkpoints(self):
        return []
    def is_leaving(self):
        return False
    def report_epoch(self, epoch, metrics, **checkpoint):
        pass

def resident():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))) * 1024

found = []
trial = ImageClassifier(f"folder:{sys.argv[1]}", "resnet18", weights=None)
for number in range(20):
    config = {"image_size": 12, "batch_size": 16} | CONFIGS[number % 2]
    assignment = replace(ASSIGNMENT, config=config, seed=number, epochs=1, gpus=0)
    with clean_process(seed=number, threads=1):
        Classification().train(trial, assignment, Session())
    found.append(resident())
print(json.dumps(found))
"""


@pytest.mark.slow
def test_memory_stays_within_a_twentieth_from_the_second_of_twenty_trials_on(tmp_path: Path) -> None:
    colours = write_colours(tmp_path / "colours")
    done = subprocess.run(
        [sys.executable, "-c", TRIALS, str(colours)], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout.splitlines()[-1])
    assert len(held) == 20
    assert max(held[2:]) <= 1.05 * held[1], held
