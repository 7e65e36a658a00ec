"""Whether a pipeline can split a study's model, before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuner.machine import this_machine
from tuner.trial import ImageClassifier

if TYPE_CHECKING:
    from tuner.study import Study


def check_splits(study: Study) -> None:
    """Raise StudyError where a trial's model can't be split into as many stages as it has devices.

    A function's model is made once, with a random configuration of the space.
    """
    trial = study.declared_trial
    if "pipeline" not in study.strategies or not isinstance(trial, ImageClassifier):
        return
    from tuner.train.models import empty_network
    from tuner.train.parallel.pipeline import find_chain, split_at

    config = study.search_space.sample(np.random.default_rng(study.seed))
    chosen = trial.hyperparameters(config)
    network = empty_network(trial, channels=3, classes=10, config=chosen)
    resources = study.resources.resolve(gpus_present=this_machine().gpus, uses_gpu=study.uses_gpu)
    split_at(find_chain(network.module, trial.model_name), chosen["pipeline_split"], int(resources.devices))
