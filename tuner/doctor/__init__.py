"""Checks of this machine: each in its own process, with one line for each and what to do about it."""
