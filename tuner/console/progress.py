"""A search while it runs: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuner.budget import Pace, limits_of
from tuner.console.charts import chart, sparkline
from tuner.foreign_text import printable
from tuner.history.events import Event, finite
from tuner.history.records import RunRecord, TrialRecord, full_length, saved_epochs
from tuner.results.text import best_so_far, duration, outcome, plural, settings, short

if TYPE_CHECKING:
    from tuner.study import Study

STYLES = {"running": "cyan", "paused": "blue", "completed": "green", "stopped": "yellow", "failed": "red"}
SHOWN_TRIALS = 12
SPARKLINE = 10  # characters
CURVE_HEIGHT, CURVE_NEEDS_HEIGHT = 4, 26  # lines: of the curve, and of a terminal that has room for it
_DEVICE_METRICS = ("device_utilisation", "memory_bytes", "images_per_second")


@dataclass(frozen=True)
class Plan:
    """What a search set out to do."""

    study: str
    metric: str
    mode: str
    trials: int | None
    max_epochs: int
    limits: Mapping[str, Any] = field(default_factory=dict)  # of the budget, by their names

    @classmethod
    def of(cls, study: Study) -> Plan:
        """What a study sets out to do."""
        return cls.within(vars(study.budget) | {"trials": study.trials}, study.name, study.metric, study.mode)

    @classmethod
    def within(cls, budget: Mapping[str, Any], study: str, metric: str, mode: str) -> Plan:
        """What a search sets out to do within a budget, given by its fields."""
        return cls(study, metric, mode, budget.get("trials"), budget.get("max_epochs") or 1, dict(budget))


class Display(Protocol):
    """Follows a search from its first event to its last."""

    def __enter__(self) -> Display: ...
    def __exit__(self, *_: object) -> None: ...
    def on_event(self, event: Event) -> None: ...


def display(
    plan: Plan, stream: IO[str], *, quiet: bool, earlier: Iterable[Event] = (), opening: str = "starting Ray"
) -> Display:
    """The display that fits the stream: nothing, a live table, or lines.

    `earlier` events are known but not shown; `opening` says what is done before the first trial is there.
    """
    if quiet:
        return Silence()
    progress, console = Progress(plan, earlier), Console(file=stream)
    return LiveTable(progress, console, opening) if console.is_terminal else Lines(progress, stream, opening)


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

    def __init__(self, progress: Progress, stream: IO[str], opening: str = "starting Ray") -> None:
        self._plan, self._stream, self._progress, self._opening = progress.plan, stream, progress, opening

    def __enter__(self) -> Lines:
        self._say(f"{self._plan.study}: {self._opening}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress.record.trials:
            self._say(self._progress.totals())

    def on_event(self, event: Event) -> None:
        """Print the line for the event, if it has one."""
        if not self._progress.on_event(event):
            return
        record, kind = self._progress.record, event["event"]
        if kind == "trial_started":
            again = f", going on from epoch {event['from_epoch']}" if event.get("from_epoch") else ""
            self._say(f"trial {event['trial']} started{again}: {settings(event['config'])}")
        elif kind == "trial_ended":
            self._say(self._ended(record.trials[event["trial"]]))
        elif kind == "trial_lost":
            again = "another worker goes on from its last checkpoint, if there is one"
            self._say(f"trial {event['trial']} lost its worker; {again}: {event['message']}")
        elif kind == "trial_retried":
            alone = ", alone on its device" if event.get("alone") else ""
            self._say(f"trial {event['trial']} failed and is tried again{alone}: {event['message']}")
        elif kind == "retry_requested":
            self._say(f"failed trials run again: {', '.join(event['trials'])}")
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
        print(printable(line), file=self._stream, flush=True)


class LiveTable:
    """A table that is drawn anew a few times a second, and stays when the search ends."""

    def __init__(self, progress: Progress, console: Console, opening: str = "starting Ray") -> None:
        self._progress, self._console, self._opening = progress, console, opening
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Take the event; the next drawing shows it. Notices are printed above the table."""
        if self._progress.on_event(event) and event["event"] == "notice":
            self._live.console.print(Text(printable(f"note: {event['message']}"), style="yellow"))

    def _render(self) -> RenderableType:
        progress = self._progress
        if not progress.record.trials:
            return Text(printable(f"{progress.plan.study}: {self._opening}"), style="dim")
        parts = [self._table(), *self._curve(), progress.bar(), Text(progress.totals())]
        use = progress.device_use()
        parts += [Text(use, style="dim")] if use else []
        return Group(*parts, Text(printable(f"best {best_so_far(progress.record)}")))

    def _curve(self) -> list[RenderableType]:
        """The best value so far against the epochs trained, where there is room and something to see."""
        bests = self._progress.bests
        if len(set(bests)) < 2 or self._console.size.height < CURVE_NEEDS_HEIGHT:
            return []
        width = min(60, self._console.size.width - 24)
        lines = chart(bests, width, CURVE_HEIGHT)
        label = printable(f"{self._progress.plan.metric}, best so far")
        ends = {0: short(max(bests)), CURVE_HEIGHT - 1: short(min(bests))}
        drawn = [Text(f"{line.ljust(width)} {ends.get(row, '')}", style="cyan") for row, line in enumerate(lines)]
        return [Text(label, style="dim"), *drawn]

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("trial", "status", "epoch", self._progress.plan.metric, "curve", "time"):
            table.add_column(Text(printable(name)), no_wrap=True)
        table.add_column("settings", no_wrap=True, overflow="ellipsis")
        rows = max(3, min(SHOWN_TRIALS, self._console.size.height - 9))
        for trial in self._progress.shown(rows):
            table.add_row(*self._cells(trial))
        return table

    def _cells(self, trial: TrialRecord) -> tuple[str | Text, ...]:
        best = self._progress.record.best_trial()
        found = self._progress.record.best_of(trial.trial)
        winner = best is not None and best.trial == trial.trial
        value = Text(short(found[1]) if found else "", style="bold green" if winner else "")
        since = 0.0 if trial.running_since is None else max(0.0, time.time() - trial.running_since)
        status = Text(printable(outcome(trial)), style=STYLES.get(trial.status, ""))
        epochs = f"{trial.epoch}/{self._progress.full_length(trial)}"
        config = Text(printable(settings(trial.config)))  # a setting may look like rich's markup
        seconds = duration(trial.running_seconds + since)
        return trial.trial, status, epochs, value, self._progress.sparkline(trial), seconds, config


class Progress:
    """The numbers that both displays show, from the events alone."""

    def __init__(self, plan: Plan, earlier: Iterable[Event] = ()) -> None:
        self.plan = plan
        self.record = RunRecord(plan.metric, plan.mode)
        self.bests: list[float] = []  # the best value so far, after each report
        self._range: tuple[float, float] | None = None  # of all values reported
        self._epochs_before = 0
        self._begun = time.time()
        for event in earlier:
            self.on_event(event)

    def on_event(self, event: Event) -> bool:
        """Fold the event in; whether it could be used."""
        if self.record.apply(event) is not None:
            return False
        if event["event"] in ("study_started", "study_resumed"):
            self._begun = event["time"]  # the start of Ray says nothing of the pace
            self._epochs_before = self.record.epochs()
        if event["event"] == "epoch_reported":
            self._see(event["metrics"].get(self.plan.metric))
        return True

    def _see(self, value: object) -> None:
        if isinstance(value, int | float) and finite(value):
            low, high = self._range or (value, value)
            self._range = min(low, value), max(high, value)
            better = max if self.plan.mode == "max" else min
            self.bests.append(better(self.bests[-1], value) if self.bests else value)

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
        saved = saved_epochs(trials, self.plan.max_epochs)
        return saved / (trained + saved) if saved else 0.0

    def eta(self) -> str:
        """Time left at the pace of the epochs that were trained since this search was started or resumed."""
        if self.record.ended is not None:
            return f"{duration(self.record.wall_seconds)} in all"
        elapsed = max(0.0, time.time() - self._begun)
        ended = sum(1 for trial in self.record.trials.values() if not trial.live)
        if self.plan.trials is not None and ended >= self.plan.trials:
            return f"{duration(elapsed)} in all"
        left = self._seconds_left(elapsed)
        return f"{duration(elapsed)} so far" if left is None else f"about {duration(left)} left"

    def _seconds_left(self, elapsed: float) -> float | None:
        """Until the first limit, of those whose time can be estimated."""
        epochs = self.record.epochs()
        trained = epochs - self._epochs_before
        pace = Pace(self.record.wall_seconds, epochs, elapsed / trained if trained else None, self._epochs_left)
        limits = limits_of({**self.plan.limits, "trials": self.plan.trials})
        left = [limit.seconds_left(value, pace) for limit, value in limits if limit.seconds_left is not None]
        return min((max(0.0, seconds) for seconds in left if seconds is not None), default=None)

    def _epochs_left(self, planned: int) -> float:
        """What trials that haven't ended will train, if they are as long as those that have, on average."""
        trials = self.record.trials.values()
        ended = [trial.epoch for trial in trials if not trial.live and trial.epochs]
        length = sum(ended) / len(ended) if ended else self.plan.max_epochs
        begun = sum(max(0.0, length - trial.epoch) for trial in trials if trial.live)
        return begun + length * max(0, planned - len(trials))

    def sparkline(self, trial: TrialRecord) -> str:
        """The trial's values by epoch, as high as they are among all that were reported."""
        if self._range is None:
            return ""
        told = (epoch.metrics.get(self.plan.metric) for epoch in trial.epochs.values())
        values = [float(value) for value in told if value is not None and finite(value)]
        return sparkline(values, *self._range, SPARKLINE)

    def device_use(self) -> str:
        """What the running trials said last of their devices: how many, utilisation, memory, images a second."""
        running = [trial.metrics() for trial in self.record.trials.values() if trial.status == "running"]
        told = {name: [float(m[name]) for m in running if finite(m.get(name))] for name in _DEVICE_METRICS}
        parts = []
        if told["device_utilisation"]:
            values = told["device_utilisation"]
            parts.append(f"devices {sum(values) / len(values):.0%} busy")
        memory = told["memory_bytes"]
        parts += [f"{sum(memory) / 1e9:.1f} GB of memory"] if memory else []
        speed = told["images_per_second"]
        parts += [f"{sum(speed):,.0f} images/s"] if speed else []
        return f"{plural(len(running), 'trial')} running: {', '.join(parts)}" if parts else ""

    def bar(self) -> RenderableType:
        """Trials ended, of those planned."""
        ended = sum(1 for trial in self.record.trials.values() if not trial.live)
        line = Table.grid()  # a bar alone would not end its line
        line.add_row(ProgressBar(total=self.plan.trials or max(1, len(self.record.trials)), completed=ended, width=60))
        return line

    def full_length(self, trial: TrialRecord) -> int:
        """Epochs of the trial unless it is stopped."""
        return full_length(trial.config, self.plan.max_epochs)
