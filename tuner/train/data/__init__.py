"""A trial's images: how they are read, cut into splits, and brought to the device."""

from tuner.train.data.loading import load_splits
from tuner.train.data.normalisation import Normalisation
from tuner.train.data.splits import HeldSplit, Split, Splits, StreamedSplit

__all__ = ["HeldSplit", "Normalisation", "Split", "Splits", "StreamedSplit", "load_splits"]
