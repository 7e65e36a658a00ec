"""A trial's images: where they are read, how they are cut into splits, and how they reach the device."""

from tuner.train.data.loading import load_splits
from tuner.train.data.normalisation import Normalisation
from tuner.train.data.splits import HeldSplit, Split, Splits, StreamedSplit

__all__ = ["HeldSplit", "Normalisation", "Split", "Splits", "StreamedSplit", "load_splits"]
