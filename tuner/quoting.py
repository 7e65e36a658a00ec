"""Commands as a user can paste them into a shell, whatever a path has in it."""

import os
import shlex


def command(*arguments: str) -> str:
    """`python -m tuner` with its arguments, quoted where need be."""
    words = ["python", "-m", "tuner", *arguments]
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)
