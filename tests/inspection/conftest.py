import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.results.simulated import simulated
from tuner import Run, load_run, uniform
from tuner.history.run_info import RUN_FILE, STUDY_FILE, write_info
from tuner.inspection import score, write_best
from tuner.storage.folder import LocalFolder
from tuner.train import Trainer, trainer_of
from tuner.trial import ImageClassifier

COLOURS = {"blue": (40, 60, 200), "green": (40, 190, 70), "red": (210, 50, 40)}
CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 16, "image_size": 12}


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> ImageClassifier:
    """60 small noisy images of three colours; a few are filed under a wrong class."""
    root, generator = tmp_path_factory.mktemp("colours"), np.random.default_rng(0)
    for name in COLOURS:
        (root / name).mkdir()
    for name, colour in COLOURS.items():
        for index in range(20):
            noisy = (np.array(colour) + generator.integers(-40, 41, (12, 12, 3))).clip(0, 255).astype(np.uint8)
            folder = "red" if name == "blue" and index % 2 else name
            Image.fromarray(noisy).save(root / folder / f"{name}{index}.png")
    return ImageClassifier(f"folder:{root}", weights=None)


@pytest.fixture(scope="session")
def trainer(colours: ImageClassifier) -> Trainer:
    """A trained one."""
    torch.set_num_threads(1)
    running = Trainer(colours, CONFIG, epochs=3, seed=0, split_seed=0)
    while not running.finished:
        running.run_epoch()
    return running


@pytest.fixture(scope="session")
def checkpoint(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the trained one saved."""
    folder = tmp_path_factory.mktemp("checkpoint")
    trainer.save(folder)
    return folder


@pytest.fixture(scope="session")
def finished(
    trainer: Trainer, colours: ImageClassifier, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A run whose winner is the trained one; of its data nothing is known any more, as no file declared its study."""
    found = simulated(tmp_path_factory.mktemp("a run"))
    assert found.best is not None
    scored = score(colours, CONFIG, checkpoint, split_seed=0)
    write_best(Path(found.path) / "best", colours, CONFIG, scored, {"trial": found.best.trial, "epoch": 3})
    return Run(found.folder)


def trained_run(folder: Path, trial: ImageClassifier, config: dict[str, Any], epochs: int = 2, **info: Any) -> Run:
    """A run whose winner is a trial that is trained here, with the study file that says where its data is."""
    torch.set_num_threads(1)
    space = {**config, "lr": uniform(config["lr"], 1.01 * config["lr"])}
    found = simulated(folder / "run", space=space, curve=lambda chosen, epoch: 1 / epoch)
    assert found.best is not None
    chosen = dict(found.best.config)
    running = trainer_of(trial, chosen, epochs=epochs, seed=0, split_seed=0)
    while not running.finished:
        running.run_epoch()
    running.save(folder / "checkpoint")
    (folder / "run" / STUDY_FILE).write_text(
        "from tuner import *\n"
        f"study = Study('photos', trial={trial!r}, space={config!r}, budget=Budget(max_epochs={epochs}), seed=0)\n"
    )
    plain = {"study_file": str(folder / "study.py"), "working_directory": str(folder), "options": {}, "seed": 0}
    write_info(LocalFolder(folder / "run"), {**json.loads((folder / "run" / RUN_FILE).read_text()), **plain, **info})
    scored = score(trial, chosen, folder / "checkpoint", split_seed=0)
    write_best(folder / "run" / "best", trial, chosen, scored, {"trial": found.best.trial, "epoch": epochs})
    return load_run(folder / "run")
