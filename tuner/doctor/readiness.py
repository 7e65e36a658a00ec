"""Checks what training on this machine's GPUs relies on, before the first search there, and remembers the result.

It is remembered for GPU, driver and torch in `machine-KEY.json` in tuner's cache folder. If the cache can't be written,
the checks run before each search.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner.doctor.checks import BEFORE_A_SEARCH, CHECKS, Finding, Subject
from tuner.doctor.examination import Examination, at_once, on_gpu, perform, show_alone, show_alone_amd
from tuner.doctor.host import compiler
from tuner.errors import StudyError
from tuner.machine.cache_folder import default_folder
from tuner.machine.nvml import Gpu, read_gpus
from tuner.machine.techniques import TECHNIQUES

FORMAT = 1  # of the file, and of the set of checks
FIRST_LOOK = (
    "trying out what works on {} of this machine before the first search there; it takes about 20 s, and is remembered "
    "until GPU, driver or torch change"
)


@dataclass(frozen=True)
class Readiness:
    """What the machine's GPUs can do.

    Attributes:
        off: techniques that don't work here, each with why
        warnings: what else the user should know, in sentences
        refused: why no search can run on a GPU here, with what to do; None if it can
    """

    off: dict[str, str]
    warnings: tuple[str, ...] = ()
    refused: str | None = None

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Readiness:
        """The result of the findings: a broken technique isn't used, and only a GPU that can't train is refused."""
        bad = [(CHECKS[finding.check], finding) for finding in findings if finding.status in ("notice", "failed")]
        off = {check.technique: f"{found.where}: {found.said}" for check, found in reversed(bad) if check.technique}
        grave = [(check, found) for check, found in bad if found.status == "failed" and not check.technique]
        refused = [found for check, found in grave if check.needed]
        return cls(
            off=dict(sorted(off.items())),
            warnings=tuple(
                f"{found.where} failed a check, {found.check}: {found.said}; {found.fix}"
                for check, found in grave
                if not check.needed
            ),
            refused=_refusal(refused[0]) if refused else None,
        )

    @property
    def notices(self) -> list[str]:
        """What the user should know, in sentences."""
        return [
            f"training doesn't use {TECHNIQUES[technique]} on this machine ({why}); "
            "`python -m tuner doctor` checks it again"
            for technique, why in self.off.items()
        ] + list(self.warnings)

    def check(self) -> None:
        """Raise StudyError if no search can run on a GPU here."""
        if self.refused is not None:
            raise StudyError(f"{self.refused}; see `python -m tuner doctor`, and --gpus-per-trial 0 uses the CPU")


def _refusal(found: Finding) -> str:
    return f"a search on a GPU needs one that works, got {found.where}: {found.said}; {found.fix}"


Look = Callable[[], Sequence[Finding]]


def readiness(count: int, look: Look | None = None, tell: Callable[[str], None] = lambda _: None) -> Readiness:
    """The readiness of this machine with `count` GPUs: remembered, or found by checks that take about 20 s.

    `tell` gets a sentence for the user before these checks.
    """
    gpus = read_gpus()
    path = default_folder() / f"machine-{_key(gpus, count)}.json"
    remembered = _read(path)
    if remembered is not None:
        return remembered
    tell(FIRST_LOOK.format("the GPU" if count == 1 else f"the {count} GPUs"))
    found = Readiness.of((look or partial(examine_gpus, gpus, count))())
    if found.refused is None:  # a refusal isn't stored: the user will correct its cause
        _write(path, found)
    return found


def examine_gpus(gpus: Sequence[Gpu], count: int) -> list[Finding]:
    """Make the checks that matter to training, on one GPU of each kind."""
    kinds = {gpu.name: (number, show_alone(gpu)) for number, gpu in reversed(list(enumerate(gpus)))}
    each = sorted(kinds.values(), key=lambda kind: kind[0]) or [(0, show_alone_amd(0))] * min(count, 1)
    on_device = tuple(name for name in BEFORE_A_SEARCH if name != "compiler")
    plan = [Examination("this machine", ("compiler",))]
    for number, environment in each:
        plan += on_gpu(number, environment, on_device)
    return perform(plan, Subject("cuda"), lambda _: None, at_once=at_once(gpus))


def _key(gpus: Sequence[Gpu], count: int) -> str:
    """Changes with the GPUs, their driver and torch."""
    cards = sorted({(gpu.name, gpu.capability, gpu.driver) for gpu in gpus}) or count
    parts = FORMAT, cards, metadata.version("torch"), compiler(Subject()).status  # notices a newly installed compiler
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _read(path: Path) -> Readiness | None:
    """The stored result; None if there is none, or an invalid one."""
    try:
        known: Any = json.loads(path.read_text(encoding="utf-8"))
        off = {technique: str(why) for technique, why in known["off"].items() if technique in TECHNIQUES}
        warnings = tuple(map(str, known["warnings"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return Readiness(off, warnings)


def _write(path: Path, found: Readiness) -> None:
    beside = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps({"off": found.off, "warnings": found.warnings}), encoding="utf-8")
        beside.replace(path)
