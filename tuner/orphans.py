"""A program that another one started for an answer ends with it."""

from __future__ import annotations

import os
import sys
import threading


def end_with_the_input() -> None:
    """End this process once standard input ends, by a thread: who asked is gone, and nobody waits for the answer."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    while os.read(sys.stdin.fileno(), 1000):
        pass
    os._exit(1)
