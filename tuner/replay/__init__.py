"""Trains a trial of a run once more, to see whether it gives the same curve. Starts no Ray."""

from tuner.replay.replayed import Replayed, ReplayedEpoch
from tuner.replay.replaying import replay
from tuner.replay.training_process import ReplayDied

__all__ = ["ReplayDied", "Replayed", "ReplayedEpoch", "replay"]
