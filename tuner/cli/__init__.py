"""The command line: each verb with its arguments and what it does, some of them together.

Progress goes to stderr, and so does what the user's own code prints; results go to stdout. Exit codes: 0 a winner, 1 no
trial succeeded (of `doctor`: a search won't work here), 2 bad input (nothing was started, nothing written), 130
interrupted.
"""

from tuner.cli.main import main

__all__ = ["main"]
