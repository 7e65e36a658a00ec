"""What `tuner doctor` prints: a line for each finding, with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.errors import one_line
from tuner.foreign_text import printable
from tuner.results.text import plural

if TYPE_CHECKING:
    from tuner.doctor.findings import Finding


def line(finding: Finding) -> str:
    """The line of a finding: `failed     CPU: cache: there is no room; free some`."""
    fix = f"; {finding.fix}" if finding.fix else ""
    return printable(f"{finding.status:<10} {finding.where}: {finding.check}: {one_line(finding.said + fix)}")


def summary(findings: Sequence[Finding]) -> str:
    """The last line."""
    broken = sum(finding.status == "failed" for finding in findings)
    noticed = sum(finding.status == "notice" for finding in findings)
    if broken:
        return f"{plural(broken, 'check')} failed: searches won't work here until this is fixed"
    return f"searches will work here ({plural(noticed, 'notice') if noticed else 'nothing to fix'})"
