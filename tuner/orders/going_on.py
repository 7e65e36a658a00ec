"""What a user types to go on with a run: a command, or a call if it was started from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.quoting import command

if TYPE_CHECKING:
    from tuner.results.run import Run


def going_on_by(run: Run, trials: int | None = None) -> str:
    """The command or call, with this many trials in total; None for the planned number."""
    from_python = run.info.get("study_file", "") is None
    if not from_python and not run.info["asked"]:
        return command("resume", run.path, *(("--trials", str(trials)) if trials else ()))
    more = f", trials={trials}" if trials else ""
    study = ", study=study" if from_python else ""
    return f"tuner.{'Search.' if run.info['asked'] else ''}resume({run.path!r}{study}{more})"
