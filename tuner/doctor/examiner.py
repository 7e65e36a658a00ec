"""The process that makes the checks: it imports shared modules once, then makes each check in a fork of itself.

    python -m tuner.doctor.examiner '{"preload": ["torch"], "device": "cpu", "settings": {}, "checks": ["fp32"]}'

One line of JSON on stdout for each check, as soon as it is made.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from typing import Any, TextIO

from tuner.doctor.checks import CHECKS, Check, Finding, Subject
from tuner.machine.child_process import CrashedError, call_apart


def main(request: dict[str, Any], answers: TextIO) -> None:
    """Make the checks in their order; if one fails, those that need it are skipped."""
    for module in request["preload"]:
        with suppress(Exception):  # the check of that library says what is wrong with it
            importlib.import_module(module)
    subject, broken = Subject(request["device"], **request["settings"]), ""
    for check in (CHECKS[name] for name in request["checks"]):
        found = Finding("skipped", f"needs {broken}, which failed") if broken else examine(check, subject)
        if check.needed and found.status == "failed":
            broken = check.name
        print(json.dumps(found.record() | {"check": check.name}), file=answers, flush=True)


def examine(check: Check, subject: Subject) -> Finding:
    """Make one check in its own process."""
    try:
        found: Finding = call_apart(partial(resolve_name(check.function), subject), check.seconds)
    except (CrashedError, ImportError) as error:
        return Finding(check.severity, str(error), check.fix)
    return found


if __name__ == "__main__":
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with the answer
    main(json.loads(sys.argv[1]), stdout)
