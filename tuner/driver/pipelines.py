"""Checks before the start that a study's trial can be run and that a pipeline can split its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuner.machine.hardware import this_machine
from tuner.worker.implementation import implementation_of

if TYPE_CHECKING:
    from tuner.study.declaration import Study


def check_splits(study: Study) -> None:
    """Raise StudyError if a trial's model can't be split into as many stages as it has devices.

    The model is that of a random configuration of the space; each `pipeline_split` is tried. StudyError is also raised
    if no implementation can run the trial.
    """
    implementation = implementation_of(study.declared_trial)
    if "pipeline" not in study.strategies:
        return
    config = study.search_space.sample(np.random.default_rng(study.seed))
    resources = study.resources.resolve(gpus_present=this_machine().gpus, uses_gpu=study.uses_gpu)
    splits = study.search_space.possible("pipeline_split") or [None]
    implementation.check_splits(study.declared_trial, config, stages=int(resources.devices), splits=splits)
