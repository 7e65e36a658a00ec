"""Shows a run in Weights & Biases, in an own process that reads the run folder (see `following`).

A trial is a W&B run of the study's project, in one group with the others of its search: its configuration, its metrics
by epoch, its status as a tag. One more run, the summary, has the table of trials, the plots, the report and the winner
as an artifact. What a server can't take is kept for `wandb sync`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from tuner.history.events import finite
from tuner.history.records import CAUSES, STATUSES, TrialRecord
from tuner.history.scored import BEST
from tuner.history.similar_failures import failure_groups
from tuner.history.steered import hashtags
from tuner.mirrors.following import Mirror, follow, written
from tuner.mirrors.wandb_summary import add_winner, alert_about, contents
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run
from tuner.results.summaries import summary_of_run
from tuner.storage.folder import LocalFolder
from tuner.text import command

if TYPE_CHECKING:
    import wandb

CALL_SECONDS = 20.0  # that a W&B run's start or end may wait for the server, unless WANDB_INIT_TIMEOUT says otherwise
OWN_TAGS = (*STATUSES, *CAUSES, BEST)


class WandbMirror(Mirror["wandb.Run"]):
    """Sends a run's events to W&B."""

    folder = "wandb"

    def __init__(self, run: RecordedRun, mode: Literal["online", "offline"], directory: Path) -> None:
        super().__init__(run)
        self._mode, self._directory = mode, directory
        self._alerted: set[str] = set()  # trials

    def _open(self, trial: TrialRecord) -> wandb.Run:
        if trial.trial not in self._shown:
            shown = self._start(
                trial.trial,
                name=f"{self._run.title} {trial.trial}",
                job_type="trial",
                config=trial.config_in_json,
                notes=self._notes(trial),
            )
            shown.define_metric("epoch", hidden=True)
            shown.define_metric("*", step_metric="epoch")
            shown.define_metric(self._run.metric, step_metric="epoch", summary=self._run.mode)
            self._shown[trial.trial] = shown
        return self._shown[trial.trial]

    def _send_epoch(self, trial: TrialRecord, epoch: int, metrics: Mapping[str, Any]) -> None:
        self._open(trial).log({**metrics, "epoch": epoch}, step=epoch)

    def _send_notes(self, trial: TrialRecord) -> None:
        self._open(trial).notes = self._notes(trial)

    def _close(self, trial: TrialRecord) -> None:
        shown = self._open(trial)
        outcome = self._outcome(trial)
        shown.summary.update(outcome)
        shown.tags = self._tags(trial, outcome["status"], shown.tags or ())
        if trial.status == "failed":
            self._alert(shown, trial)
        shown.finish(exit_code=1 if trial.status == "failed" else 0)
        del self._shown[trial.trial]

    def _summarise(self, run: RecordedRun) -> None:
        import wandb

        kept = ("metric", "mode", "seed", "search", "scheduler", "budget", "trial", "machine", "versions", "git_commit")
        config = {name: run.info.get(name) for name in kept}
        notes = run.record.steered.notes_of(None)
        shown = self._start(
            "summary", name=f"{run.title} summary", job_type="summary", config=config, notes=written(notes)
        )
        summary = summary_of_run(run)
        shown.summary.update({"status": run.status, "wall_seconds": summary["wall_seconds"], **summary["trials"]})
        shown.summary.update({n: v for n, v in run.best_metrics.items() if finite(v)})
        if panels := contents(run):
            shown.log(panels)
        alert_about(shown, run)
        try:
            add_winner(shown, run)
        except wandb.errors.Error as error:
            print(f"W&B didn't accept the winner's checkpoint: {error}", flush=True)
        shown.tags = tuple(dict.fromkeys((run.status, *hashtags(note.text for note in notes))))
        shown.finish(exit_code=1 if run.status == "failed" else 0)

    # Inside

    def _tags(self, trial: TrialRecord, status: str, earlier: Sequence[str]) -> tuple[str, ...]:
        """Status, cause, who won, and what users' notes say as #word; tags that somebody gave it at W&B stay."""
        own = [status, *([trial.cause] if trial.cause else []), *([BEST] if trial.trial == self._marked else [])]
        noted = hashtags(note.text for note in self._record.steered.notes_of(trial.trial))
        given = [tag for tag in earlier if tag not in OWN_TAGS]
        return tuple(dict.fromkeys([*own, *noted, *given]))

    def _alert(self, shown: wandb.Run, trial: TrialRecord) -> None:
        """Let W&B alert its users of the first failure of each kind."""
        reason = next(group for group in failure_groups(self._record) if trial in group.trials)
        if reason.first is trial and trial.trial not in self._alerted:
            self._alerted.add(trial.trial)
            show = command("show", self._run.path, "--trial", trial.trial)
            shown.alert(f"Trial {trial.trial} has failed", f"{self._run.title}: {reason.described}\n{show}", "ERROR")

    def _start(self, key: str, **about: Any) -> wandb.Run:
        """Start a W&B run; if the server doesn't answer, this and all later ones are kept for `wandb sync`."""
        import wandb

        limit = float(os.environ.get("WANDB_INIT_TIMEOUT", CALL_SECONDS))
        settings = wandb.Settings(
            init_timeout=limit,
            finish_timeout=limit,
            finish_timeout_raises=False,
            silent=True,
            console="off",
            disable_git=True,  # the driver's process is what counts; run.json has its commit
            x_disable_stats=key != "summary",  # measuring the machine once is enough
        )
        options = {
            "project": os.environ.get("WANDB_PROJECT") or self._run.name,
            "group": self._group,
            "id": self._key(key),
            "dir": str(self._directory),
            "reinit": "create_new",
            "settings": settings,
            **about,
        }
        if self._mode == "online":
            try:
                shown = wandb.init(mode="online", resume="allow", **options)
            except (wandb.errors.CommError, wandb.errors.UsageError, TimeoutError) as error:
                print(f"W&B's server can't be used, so the rest is kept for `wandb sync`: {error}", flush=True)
                self._mode, self.gave_up = "offline", True
                if self._shown:  # the client keeps the id of the run that it failed to start
                    options["id"] += "-kept"
                else:
                    wandb.teardown()
            else:
                self._url = (
                    f"{shown.project_url}/groups/{quote(self._group, safe='')}" if shown.project_url else self._url
                )
                return shown
        return wandb.init(mode="offline", **options)


def _mirror(path: str, mode: str) -> bool:
    """Show the run; returns whether W&B got everything."""
    run = load_run(path)
    with tempfile.TemporaryDirectory() as temporary:
        directory = run.folder.path if isinstance(run.folder, LocalFolder) else Path(temporary)
        (directory / WandbMirror.folder).mkdir(exist_ok=True)
        return follow(run, lambda: WandbMirror(run, "offline" if mode == "offline" else "online", directory))


if __name__ == "__main__":
    sys.exit(0 if _mirror(*sys.argv[1:]) else 1)
