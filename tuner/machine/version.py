"""The version of tuner, below all that tells it."""

__version__ = "0.1.0"
