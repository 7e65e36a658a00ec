"""One trial's training: data, models, trainer, checkpoints. Knows nothing of Ray and works alone, as in a notebook.

from tuner.train import Trainer
from tuner.trial import ImageClassifier

trainer = Trainer(ImageClassifier(weights=None), {"lr": 1e-3}, epochs=3, seed=0, split_seed=0)
while not trainer.finished:
    print(trainer.run_epoch())
"""

from tuner.train.data import Normalisation, Split, Splits, load_splits
from tuner.train.download import download_missing
from tuner.train.evaluation import evaluate, loss_and_accuracy, predict
from tuner.train.models import Network, build_network
from tuner.train.trainer import EpochResult, Trainer

__all__ = [
    "EpochResult",
    "Network",
    "Normalisation",
    "Split",
    "Splits",
    "Trainer",
    "build_network",
    "download_missing",
    "evaluate",
    "load_splits",
    "loss_and_accuracy",
    "predict",
]
