"""The version of tuner, below all that tells it."""

__version__ = "0.2.0rc1"
