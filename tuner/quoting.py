"""Commands that a user can paste into a shell, also if a path has special characters."""

import os
import shlex


def command(*arguments: str) -> str:
    """`python -m tuner` with its arguments, quoted where necessary."""
    words = ["python", "-m", "tuner", *arguments]
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)
