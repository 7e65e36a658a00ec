"""Whether a pipeline can split a study's model, before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuner.machine import this_machine
from tuner.space import Choice, GridSearch
from tuner.trial import ImageClassifier

if TYPE_CHECKING:
    from tuner.study import Study


def check_splits(study: Study) -> None:
    """Raise StudyError where a trial's model can't be split into as many stages as it has devices.

    A function's model is made once, with a random configuration of the space; each `pipeline_split` is tried.
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
    chain = find_chain(network.module, trial.model_name)
    domain = study.search_space.dimensions.get("pipeline_split")
    splits = domain.values() if isinstance(domain, Choice | GridSearch) else [chosen["pipeline_split"]]
    for split in splits:
        split_at(chain, split, int(resources.devices))
