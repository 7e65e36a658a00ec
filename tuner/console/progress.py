"""A search while it runs: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuner.results.events import Event
from tuner.results.records import RunRecord, TrialRecord, full_length
from tuner.results.text import best_so_far, duration, outcome, plural, settings, short

STYLES = {"running": "cyan", "paused": "blue", "completed": "green", "stopped": "yellow", "failed": "red"}
SHOWN_TRIALS = 12


@dataclass(frozen=True)
class Plan:
    """What a search set out to do."""

    study: str
    metric: str
    mode: str
    trials: int | None
    max_epochs: int


class Display(Protocol):
    """Follows a search from its first event to its last."""

    def __enter__(self) -> Display: ...
    def __exit__(self, *_: object) -> None: ...
    def on_event(self, event: Event) -> None: ...


def display(plan: Plan, stream: IO[str], *, quiet: bool, earlier: Iterable[Event] = ()) -> Display:
    """The display that fits the stream: nothing, a live table, or lines. `earlier` events are known but not shown."""
    if quiet:
        return Silence()
    progress, console = Progress(plan, earlier), Console(file=stream)
    return LiveTable(progress, console) if console.is_terminal else Lines(progress, stream)


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def on_event(self, event: Event) -> None:
        """Nothing."""


class Lines:
    """A line per trial that starts or ends, for logs and pipes."""

    def __init__(self, progress: Progress, stream: IO[str]) -> None:
        self._plan, self._stream, self._progress = progress.plan, stream, progress

    def __enter__(self) -> Lines:
        self._say(f"{self._plan.study}: starting Ray")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress.record.trials:
            self._say(self._progress.totals())

    def on_event(self, event: Event) -> None:
        """Print the line that the event is worth, if any."""
        self._progress.on_event(event)
        record, kind = self._progress.record, event["event"]
        if kind == "trial_started":
            again = f", going on from epoch {event['from_epoch']}" if event["from_epoch"] else ""
            self._say(f"trial {event['trial']} started{again}: {settings(event['config'])}")
        elif kind == "trial_ended":
            self._say(self._ended(record.trials[event["trial"]]))
        elif kind == "trial_lost":
            self._say(f"trial {event['trial']} lost its worker and starts again: {event['message']}")
        elif kind == "notice":
            self._say(f"note: {event['message']}")

    def _ended(self, trial: TrialRecord) -> str:
        found = self._progress.record.best_of(trial.trial)
        value = f", best {self._plan.metric} {short(found[1])}" if found else ""
        why = f" ({trial.message})" if trial.message else ""
        return (
            f"trial {trial.trial} {outcome(trial)} after {plural(trial.epoch, 'epoch')}{value}{why}; "
            f"best so far {self._best()}; {self._progress.eta()}"
        )

    def _best(self) -> str:
        best = self._progress.record.best_trial()
        found = best and self._progress.record.best_of(best.trial)
        return f"{short(found[1])} by {best.trial}" if best and found else "none"

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveTable:
    """A table that is drawn anew a few times a second, and stays when the search ends."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Take the event; the next drawing shows it. Notices are printed above the table."""
        self._progress.on_event(event)
        if event["event"] == "notice":
            self._live.console.print(Text(f"note: {event['message']}", style="yellow"))

    def _render(self) -> RenderableType:
        progress = self._progress
        if not progress.record.trials:
            return Text(f"{progress.plan.study}: starting Ray", style="dim")
        return Group(
            self._table(), progress.bar(), Text(progress.totals()), Text(f"best {best_so_far(progress.record)}")
        )

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("trial", "status", "epoch", self._progress.plan.metric, "time"):
            table.add_column(name, no_wrap=True)
        table.add_column("settings", no_wrap=True, overflow="ellipsis")
        rows = max(3, min(SHOWN_TRIALS, self._console.size.height - 8))
        for trial in self._progress.shown(rows):
            table.add_row(*self._cells(trial))
        return table

    def _cells(self, trial: TrialRecord) -> tuple[str | Text, ...]:
        best = self._progress.record.best_trial()
        found = self._progress.record.best_of(trial.trial)
        winner = best is not None and best.trial == trial.trial
        value = Text(short(found[1]) if found else "", style="bold green" if winner else "")
        since = 0.0 if trial.running_since is None else time.time() - trial.running_since
        status = Text(outcome(trial), style=STYLES.get(trial.status, ""))
        epochs = f"{trial.epoch}/{self._progress.full_length(trial)}"
        config = Text(settings(trial.config))  # a setting may look like rich's markup
        return trial.trial, status, epochs, value, duration(trial.running_seconds + since), config


class Progress:
    """The numbers that both displays show, from the events alone."""

    def __init__(self, plan: Plan, earlier: Iterable[Event] = ()) -> None:
        self.plan = plan
        self.record = RunRecord(plan.metric, plan.mode, earlier)
        self._ended_before = sum(1 for trial in self.record.trials.values() if not trial.live)
        self._begun = time.monotonic()

    def on_event(self, event: Event) -> None:
        """Fold the event in."""
        if event["event"] in ("study_started", "study_resumed"):
            self._begun = time.monotonic()  # the start of Ray says nothing of the pace
        self.record.apply(event)

    def shown(self, rows: int) -> list[TrialRecord]:
        """The trials worth a row: those that run or wait, the best, then the latest, in the order of their numbers."""
        best = self.record.best_trial()
        by_age = sorted(self.record.trials.values(), key=lambda t: -t.number)
        ranked = sorted(by_age, key=lambda t: (t is not best, t.status != "running", not t.live))
        return sorted(ranked[:rows], key=lambda t: t.number)

    def totals(self) -> str:
        """Trials by status, what early stopping saved, and the time left."""
        counts = self.record.counts()
        names = {
            "running": "running",
            "paused": "paused",
            "completed": "done",
            "stopped": "stopped early",
            "failed": "failed",
            "interrupted": "interrupted",
        }
        parts = [f"{counts[status]} {name}" for status, name in names.items() if counts[status]]  # type: ignore[index]
        planned = f" of {self.plan.trials}" if self.plan.trials else ""
        saved = self.saved_share()
        savings = f"; early stopping saved {saved:.0%} of the epochs" if saved else ""
        return f"{len(self.record.trials)}{planned} trials: {', '.join(parts)}{savings}; {self.eta()}"

    def saved_share(self) -> float:
        """Share of the ended trials' full length that early stopping saved; a completed trial is as long as it is."""
        trials = self.record.trials.values()
        trained = sum(trial.epoch for trial in trials if trial.status in ("completed", "stopped"))
        saved = sum(self.full_length(trial) - trial.epoch for trial in trials if trial.status == "stopped")
        return saved / (trained + saved) if saved else 0.0

    def eta(self) -> str:
        """Time left at the pace of the trials that ended since this search was started or resumed."""
        elapsed = time.monotonic() - self._begun
        ended = sum(1 for trial in self.record.trials.values() if not trial.live)
        if self.plan.trials is not None and ended >= self.plan.trials:
            return f"{duration(elapsed)} in all"
        if self.plan.trials is None or ended <= self._ended_before:
            return f"{duration(elapsed)} so far"
        left = elapsed * (self.plan.trials - ended) / (ended - self._ended_before)
        return f"about {duration(left)} left"

    def bar(self) -> RenderableType:
        """Trials ended, of those planned."""
        ended = sum(1 for trial in self.record.trials.values() if not trial.live)
        line = Table.grid()  # a bar alone would not end its line
        line.add_row(ProgressBar(total=self.plan.trials or max(1, len(self.record.trials)), completed=ended, width=60))
        return line

    def full_length(self, trial: TrialRecord) -> int:
        """Epochs of the trial unless it is stopped."""
        return full_length(trial.config, self.plan.max_epochs)
