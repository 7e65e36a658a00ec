"""Commands as a user can paste them into a shell, whatever a path has in it."""

import shlex


def command(*arguments: str) -> str:
    """`python -m tuner` with its arguments, quoted where need be."""
    return shlex.join(["python", "-m", "tuner", *arguments])
