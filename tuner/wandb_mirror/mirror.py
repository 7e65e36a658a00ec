"""Shows a run in Weights & Biases; an own process, started with `mirror_command`, reads the run folder.

It doesn't affect the search: it follows the events that the driver writes, and if a server is slow or dead, only the
display in W&B is missing. A trial is a W&B run of the study's project, in one group with the others of its search: its
configuration, its metrics by epoch, its status as a tag. One more run, the summary, has the table of trials, the plots,
the report and the winner as an artifact. What a server can't take is kept for `wandb sync`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from tuner.history.events import Event, EventFollower, finite
from tuner.history.logs import end_of_log
from tuner.history.records import CAUSES, STATUSES, RunRecord, TrialRecord
from tuner.history.scored import BEST
from tuner.history.similar_failures import failure_groups, place_of
from tuner.history.steered import Note
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run
from tuner.results.summaries import summary_of_run
from tuner.storage.folder import Folder, LocalFolder
from tuner.text import command, printable
from tuner.wandb_mirror.summary import add_winner, alert_about, contents

if TYPE_CHECKING:
    import wandb

WandbMode = Literal["online", "offline"]
FOLDER = "wandb"  # in the run folder
STATE = f"{FOLDER}/mirror.json"  # the service's pages read its `url`, too
POLL_SECONDS = 0.5
CALL_SECONDS = 20.0  # that a W&B run's start or end may wait for the server, unless WANDB_INIT_TIMEOUT says otherwise
OWN_TAGS = (*STATUSES, *CAUSES, BEST)
LONGEST_TAG = 64  # characters that W&B allows
_HASHTAG = re.compile(r"(?<!\S)#([^\W_][\w-]*)")
HOW_TO_SWITCH_ON = "W&B is off: `wandb login` shows searches online, --wandb offline keeps them for `wandb sync`"


def logged_in() -> bool:
    """Whether this user has an API key for W&B's server, found without the server or W&B's own package."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    file = os.environ.get("NETRC")
    for path in [Path(file)] if file else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            if netrc(path).authenticators(host):
                return True
        except (OSError, NetrcParseError):
            continue
    return False


def mirror_command(folder: Folder, mode: WandbMode) -> list[str]:
    """The command of the process that follows the run, to be started once run.json is there."""
    return [sys.executable, "-m", "tuner.wandb_mirror.mirror", folder.uri, mode]


class Mirror:
    """Sends a run's events to W&B, from where an earlier mirror of the run stopped."""

    def __init__(self, run: RecordedRun, mode: WandbMode, directory: Path) -> None:
        self._run, self._mode, self._directory = run, mode, directory
        self.gave_up = False  # whether the server couldn't be used
        self._record = RunRecord(run.metric, run.mode)
        self._shown: dict[str, wandb.Run] = {}
        self._alerted: set[str] = set()  # trials
        self._told = 0
        self._told_before, self._marked, self._url = self._read_state()
        self._epochs_told: dict[str, int] = {}

    def on_event(self, event: Event) -> None:
        """Take one event."""
        self._told += 1
        if self._record.apply(event) is not None:
            return
        kind, news = event["event"], self._told > self._told_before
        trial = self._record.trials.get(_named_trial(event))
        if trial is None:
            return
        if kind == "epoch_reported":
            self._tell_epoch(trial, event, news)
        elif news and kind == "trial_started":
            self._open(trial)
        elif news and kind == "trial_ended":
            self._close(trial)
        elif news and kind == "order_obeyed" and event["verb"] == "note":
            self._tell_notes(trial)

    def save_state(self) -> None:
        """Remember what W&B has received, for a mirror of the same run when it is resumed."""
        state = {"events": max(self._told, self._told_before), "best": self._marked, "url": self._url}
        self._run.folder.write(STATE, json.dumps(state).encode())

    def finish(self, run: RecordedRun) -> None:
        """End the open W&B runs, and write the summary; `run` is read again."""
        for trial_id in list(self._shown):
            self._close(self._record.trials[trial_id])
        self._mark_best()
        self._summarise(run)
        self.save_state()

    # Inside

    def _open(self, trial: TrialRecord) -> wandb.Run:
        """The trial's W&B run."""
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

    def _tell_epoch(self, trial: TrialRecord, event: Event, news: bool) -> None:
        """Send each epoch once: a trial that goes on from an earlier epoch repeats some, and W&B's rows stay."""
        epoch, told = event["epoch"], self._epochs_told.get(trial.trial, 0)
        self._epochs_told[trial.trial] = max(epoch, told)
        if news and epoch > told:
            metrics = {name: value for name, value in event["metrics"].items() if value is not None}
            self._open(trial).log({**metrics, "epoch": epoch}, step=epoch)

    def _tell_notes(self, trial: TrialRecord) -> None:
        """Send users' notes about a trial, which may have ended."""
        self._open(trial).notes = self._notes(trial)
        if trial.ended is not None:
            self._close(trial)

    def _mark_best(self) -> None:
        """Tag the winner, and remove the tag from an earlier one."""
        best = self._record.best_trial()
        winner = best.trial if best else None
        if winner == self._marked:
            return
        before, self._marked = self._marked, winner
        for name in (before, winner):
            if name is not None and name in self._record.trials:
                self._open(self._record.trials[name])
                self._close(self._record.trials[name])

    def _notes(self, trial: TrialRecord) -> str:
        return _written(self._record.steered.notes_of(trial.trial), f"seed {trial.seed}")

    def _close(self, trial: TrialRecord) -> None:
        shown = self._open(trial)
        status = "interrupted" if trial.status in ("running", "paused") else trial.status
        shown.summary.update(self._outcome(trial, status))
        shown.tags = self._tags(trial, status, shown.tags or ())
        if trial.status == "failed":
            self._alert(shown, trial)
        shown.finish(exit_code=1 if trial.status == "failed" else 0)
        del self._shown[trial.trial]

    def _outcome(self, trial: TrialRecord, status: str) -> dict[str, Any]:
        """How the trial ended; for one that was tried again, also that an earlier failure no longer applies."""
        found, failed = self._record.best_of(trial.trial), trial.status == "failed"
        outcome: dict[str, Any] = {
            "status": status,
            "cause": trial.cause,
            "message": trial.message,
            "failed_at": place_of(trial.traceback) or None if trial.traceback else None,
            "epochs": trial.epoch,
            "traceback": trial.traceback if failed else None,
            "output": printable(end_of_log(self._run.folder, trial.trial)) if failed else None,
        }
        outcome |= {"best_epoch": found[0], f"best_{self._run.metric}": found[1]} if found else {}
        return {name: value for name, value in outcome.items() if value is not None or trial.attempts.failed}

    def _tags(self, trial: TrialRecord, status: str, earlier: Sequence[str]) -> tuple[str, ...]:
        """Status, cause, who won, and what users' notes say as #word; tags that somebody gave it at W&B stay."""
        own = [status, *([trial.cause] if trial.cause else []), *([BEST] if trial.trial == self._marked else [])]
        given = [tag for tag in earlier if tag not in OWN_TAGS]
        return tuple(dict.fromkeys([*own, *hashtags(self._record.steered.notes_of(trial.trial)), *given]))

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

        group = "/".join(self._run.path.rstrip("/").split("/")[-2:])
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
            "group": group,
            "id": hashlib.sha256(f"{group}/{self._run.info['started']}/{key}".encode()).hexdigest()[:16],
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
                self._url = f"{shown.project_url}/groups/{quote(group, safe='')}" if shown.project_url else self._url
                return shown
        return wandb.init(mode="offline", **options)

    def _summarise(self, run: RecordedRun) -> None:
        """Write the W&B run for the whole search."""
        import wandb

        kept = ("metric", "mode", "seed", "search", "scheduler", "budget", "trial", "machine", "versions", "git_commit")
        config = {name: run.info.get(name) for name in kept}
        notes = run.record.steered.notes_of(None)
        shown = self._start(
            "summary", name=f"{run.title} summary", job_type="summary", config=config, notes=_written(notes)
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
        shown.tags = tuple(dict.fromkeys((run.status, *hashtags(notes))))
        shown.finish(exit_code=1 if run.status == "failed" else 0)

    def _read_state(self) -> tuple[int, str | None, str | None]:
        """How many events an earlier mirror sent, which trial it marked as the best, and where W&B shows the search."""
        try:
            state = json.loads(self._run.folder.read(STATE))
            best, url = state.get("best"), state.get("url")
            told = int(state["events"]), best if isinstance(best, str) else None
            return *told, url if isinstance(url, str) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return 0, None, None


def hashtags(notes: Iterable[Note]) -> list[str]:
    """The words of notes that begin with #, which become tags, without it."""
    return [word[:LONGEST_TAG] for note in notes for word in _HASHTAG.findall(note.text)]


def _written(notes: Iterable[Note], *lines: str) -> str:
    """The lines, then a line for each note."""
    return "\n".join([*lines, *(f"{note.by}: {note.text}" for note in notes)])


def _named_trial(event: Event) -> str:
    """The trial that an event, or a note, is about; "" for none."""
    arguments = event.get("arguments")
    named = arguments.get("trial") if isinstance(arguments, dict) else event.get("trial")
    return named if isinstance(named, str) else ""


def follow(path: str, mode: WandbMode) -> bool:
    """Mirror a run until standard input ends: the driver is done, or gone; returns whether W&B got everything."""
    run, ended = load_run(path), threading.Event()
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        directory = run.folder.path if isinstance(run.folder, LocalFolder) else Path(temporary)
        (directory / FOLDER).mkdir(exist_ok=True)
        mirror, follower = Mirror(run, mode, directory), EventFollower(run.folder)
        over = False
        while not over:
            over = ended.wait(POLL_SECONDS)  # checked before the last events are read
            events = follower.new()
            for event in events:
                mirror.on_event(event)
            if events:
                mirror.save_state()
        mirror.finish(load_run(path))
    return not mirror.gave_up


def _await_end(ended: threading.Event) -> None:
    sys.stdin.buffer.read()
    ended.set()


if __name__ == "__main__":
    os.nice(5)  # behind the trials; with 10 a machine full of other programs would leave it nothing
    sys.exit(0 if follow(sys.argv[1], "offline" if sys.argv[2] == "offline" else "online") else 1)
