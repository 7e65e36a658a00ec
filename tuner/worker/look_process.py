"""A separate process looks at the images of a study before its first trial, so that the driver loads no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tuner.errors import DataError
from tuner.machine.hardware import python_environment
from tuner.worker.implementation import DataLook

PROGRAM = "tuner.train.data.looking"


def look_apart(task: Mapping[str, Any]) -> DataLook | None:
    """The findings; None if the process died: the trials then show what is wrong.

    Args:
        task: "trial", the fields of an image classifier that name the data and its split; "seed" of the split; and
            "framing", the fields of the form that images are brought to; "before", whether an earlier version began the
            run, which read some images otherwise

    Raises:
        DataError: the data is missing, damaged, or too small to split.
    """
    with subprocess.Popen(
        [sys.executable, "-m", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=python_environment(),
        start_new_session=True,  # a terminal's Ctrl-C only goes to the driver, with which this process ends
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(dict(task), default=str)}\n".encode())
        process.stdin.flush()
        line = process.stdout.readline()
    answer: dict[str, Any] = json.loads(line) if line else {}
    if "refused" in answer:
        raise DataError(answer["refused"])
    return DataLook(answer["record"], tuple(answer["notices"])) if "record" in answer else None
