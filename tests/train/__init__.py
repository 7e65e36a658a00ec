"""Tests of one trial's training. Processes that they start import this package first, and so torch without its compiler."""

import tuner.train  # noqa: F401
