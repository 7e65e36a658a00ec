"""One trial's training: data, models, trainer, checkpoints. Knows nothing of Ray and works alone, as in a notebook.

from tuner.train import Trainer
from tuner.trial import ImageClassifier

trainer = Trainer(ImageClassifier(weights=None), {"lr": 1e-3}, epochs=3, seed=0, split_seed=0)
while not trainer.finished:
    print(trainer.run_epoch())
"""

import tuner.train.without_compiler  # noqa: F401  # the first import of torchvision: see there
from tuner.train.cross_validation import CrossValidation
from tuner.train.data import HeldSplit, Normalisation, Split, Splits, StreamedSplit, load_splits
from tuner.train.download import download_missing
from tuner.train.epoch_result import EpochResult
from tuner.train.evaluation import Evaluator
from tuner.train.models import Network, build_network
from tuner.train.tasks import Metrics
from tuner.train.trainer import Trainer
from tuner.train.trainers import LoneHead, trainer_of

__all__ = [
    "CrossValidation",
    "EpochResult",
    "Evaluator",
    "HeldSplit",
    "LoneHead",
    "Metrics",
    "Network",
    "Normalisation",
    "Split",
    "Splits",
    "StreamedSplit",
    "Trainer",
    "build_network",
    "download_missing",
    "load_splits",
    "trainer_of",
]
