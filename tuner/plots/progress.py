"""How the search went: the best so far, the curves, epochs spent and saved by early stopping, idle workers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from tuner.history.events import finite
from tuner.history.pace import start_seconds, typical_epoch
from tuner.history.records import TrialRecord, saved_epochs, saved_share
from tuner.plots.figure import BEST, COLOURS, GREY, OUTLINE, SYMBOLS, Plot, escaped, ids, label, new_figure
from tuner.plots.marks import CROWDED, draw_trials, in_full
from tuner.plots.value_axes import draw_values
from tuner.results.courses import Against, Point, course_against, value_at
from tuner.results.run import RecordedRun

if TYPE_CHECKING:
    import pandas as pd

AXES = {"trials": "trials started", "epochs": "epochs trained in all", "time": "minutes of the search"}
OFF_THE_WORKER = ("trial_paused", "trial_lost", "trial_retried", "trial_ended")


def optimisation_history(run: RecordedRun, against: Against = "trials") -> Plot | None:
    """Each trial's value, and the leader's so far: against trials, epochs trained, or wall-clock time.

    A trial stands where the epoch was reported whose network stands for it. None while no trial has reported a value.
    """
    course = course_against(run.record, run.leads, against)
    table = _values(run, against, course)
    if table.empty:
        return None
    won = run.record.winning_value
    reached = f"{run.metric}, but in trials that failed" if won is None else f"{run.metric} {won:.4g}"
    figure = new_figure(f"The winner reached {escaped(reached)}", x=AXES[against], y=label(run.metric))
    draw_trials(figure, table, run.longest_trial, against)
    figure.add_scatter(
        x=[place for place, _ in course],
        y=[value for _, value in course],
        name="best so far",
        mode="lines",
        line={"color": BEST, "shape": "hv", "width": 2.5},
        hovertemplate="best so far: %{y:.5g}<extra></extra>",
    )
    return Plot(f"history against {against}", draw_values(figure, table["value"], run.mode), table)


def distribution(run: RecordedRun) -> Plot | None:
    """The share of trials whose value is at most this high: the empirical distribution of outcomes.

    If trials were stopped early, those trained in full have their own line. None without a value.
    """
    import pandas as pd

    found = [(trial, run.record.best_of(trial.trial)) for trial in run.record.trials.values()]
    reported = [(best[1], in_full(run, trial)) for trial, best in found if best is not None]
    if not reported:
        return None
    whole = sorted(value for value, full in reported if full)
    values = sorted(value for value, _ in reported)
    half = f"Half of the trials reached {median(values):.4g}"
    half += f", of those trained in full {median(whole):.4g}" if 0 < len(whole) < len(values) else ""
    figure = new_figure(half, x=label(run.metric), y="share of trials at or below")
    tables = []
    lines = [("all trials", values, GREY, "dot"), ("trained in full", whole, BEST, "solid")]
    for name, part, colour, dash in lines if len(whole) < len(values) else lines[1:]:
        shares = [(index + 1) / len(part) for index in range(len(part))]
        tables.append(pd.DataFrame({"trials": name, run.metric: part, "share of trials": shares}))
        line = {"color": colour, "shape": "hv", "dash": dash, "width": 2}
        hover = "%{y:.0%} at or below %{x:.5g}<extra></extra>"
        figure.add_scatter(x=part, y=shares, name=name, mode="lines", line=line, hovertemplate=hover)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02])
    table = pd.concat(tables, ignore_index=True)
    return Plot("distribution", draw_values(figure, values, run.mode, "xaxis"), table)


def timeline(run: RecordedRun) -> Plot | None:
    """When each trial ran, in lanes for simultaneous trials; blank parts were idle. None before any trial."""
    import pandas as pd

    spans = sorted(_spans(run), key=lambda span: span["start"])
    ends: list[float] = []
    for span in spans:
        lane = next((index for index, end in enumerate(ends) if end <= span["start"] + 1e-6), len(ends))
        ends[lane : lane + 1] = [span["end"]]
        span["worker"] = lane + 1
    table = pd.DataFrame(spans, columns=["trial", "status", "worker", "start", "end"])
    if table.empty:
        return None
    typical = typical_epoch(list(run.record.trials.values()))
    starting = sum(start_seconds(trial, typical) for trial in run.record.trials.values())
    busy = max(0.0, float((table["end"] - table["start"]).sum()) - starting)
    lasted = float(table["end"].max()) if len(table) else 0.0
    share = busy / (lasted * len(ends)) if lasted and ends else 0.0
    begun = starting / (lasted * len(ends)) if lasted and ends else 0.0
    trained = any(trial.epochs for trial in run.record.trials.values())
    figure = new_figure(
        f"Workers trained {share:.0%} of the time, and started trials {begun:.0%}"
        if trained
        else "No worker finished an epoch",
        x="minutes of the search",
        y="worker",
    )
    for status in dict.fromkeys(table["status"]):
        rows = table[table["status"] == status]
        figure.add_bar(
            y=rows["worker"],
            base=rows["start"] / 60,
            x=(rows["end"] - rows["start"]) / 60,
            orientation="h",
            name=str(status),
            marker={"color": COLOURS[str(status)], "line": OUTLINE if len(table) <= CROWDED else {"width": 0}},
            customdata=ids(rows["trial"]),
            hovertemplate="trial %{customdata[0]}: %{base:.2f} min, for %{x:.2f} min",
        )
    figure.update_layout(barmode="overlay").update_yaxes(dtick=1)
    return Plot("timeline", figure, table)


def savings(run: RecordedRun) -> Plot | None:
    """For each rung the epochs trained by trials that ended there, and the epochs saved by stopping them.

    None while no epoch was trained.
    """
    import pandas as pd

    rows = []
    for epochs in sorted({t.epoch for t in run.record.trials.values() if t.epoch}):
        here = [t for t in run.record.trials.values() if t.epoch == epochs]
        saved = saved_epochs(here, run.longest_trial)
        rows.append({"ended after epoch": epochs, "trials": len(here), "spent": epochs * len(here), "saved": saved})
    table = pd.DataFrame(rows, columns=["ended after epoch", "trials", "spent", "saved"])
    if table.empty:
        return None
    spent, saved = int(table["spent"].sum()), int(table["saved"].sum())
    share = saved_share(run.record.trials.values(), run.longest_trial)
    figure = new_figure(
        f"Early stopping saved {share:.0%} of the epochs: {saved:,} of {spent + saved:,}",
        x="trials that ended after epoch",
        y="epochs",
    )
    labels = [str(epochs) for epochs in table["ended after epoch"]]
    figure.add_bar(x=labels, y=table["spent"], name="spent", marker={"color": COLOURS["completed"]})
    figure.add_bar(x=labels, y=table["saved"], name="saved", marker={"color": COLOURS["stopped"]})
    figure.update_layout(barmode="stack").update_xaxes(type="category")
    return Plot("savings", figure, table)


def costs(run: RecordedRun) -> Plot | None:
    """Memory and throughput of each trial: its peak memory, and the images per second of its median epoch.

    None if trials don't report both.
    """
    import pandas as pd

    rows = []
    for trial in run.record.trials.values():
        memory, speed = _numbers(trial, "memory_peak_bytes"), sorted(_numbers(trial, "images_per_second"))
        if memory and speed:
            row = {"trial": trial.trial, "status": trial.status, "memory (GB)": max(memory) / 1e9}
            rows.append(row | {"images per second": speed[len(speed) // 2]})
    if not rows:
        return None
    table = pd.DataFrame(rows)
    title = f"Memory of a trial: {table['memory (GB)'].max():.2g} GB at most"
    figure = new_figure(title, x="images per second", y="peak memory (GB)")
    for status in dict.fromkeys(table["status"]):
        part = table[table["status"] == status]
        figure.add_scatter(
            x=part["images per second"],
            y=part["memory (GB)"],
            customdata=ids(part["trial"]),
            name=str(status),
            mode="markers",
            marker={"color": COLOURS[str(status)], "symbol": SYMBOLS.get(str(status), "circle"), "size": 8},
            hovertemplate="trial %{customdata[0]}: %{x:.0f} images/s, %{y:.2f} GB",
        )
    figure.update_yaxes(rangemode="tozero").update_xaxes(rangemode="tozero")
    return Plot("costs", figure, table)


# Inside


def _values(run: RecordedRun, against: Against, course: Sequence[Point]) -> pd.DataFrame:
    """A row per trial that reported: where on the axis its value was reached, the value, the leader's then."""
    import pandas as pd

    rows = []
    for count, (time, trial, epoch, _) in enumerate(run.record.reports(), start=1):
        found = run.record.best_of(trial.trial)
        if found is not None and found[0] == epoch:
            place = {"trials": trial.number + 1, "epochs": count, "time": run.record.active.at(time) / 60}[against]
            rows.append((place, trial.trial, trial.status, trial.epoch, in_full(run, trial), found[1]))
    columns = [against, "trial", "status", "trained", "in full", "value"]
    table = pd.DataFrame(rows, columns=columns).sort_values(against, ignore_index=True).astype({"value": "float64"})
    led = [value_at(course, place) for place in table[against]]
    return table.assign(**{"best so far": pd.Series(led, dtype="float64")})


def _numbers(trial: TrialRecord, metric: str) -> list[float]:
    return [float(e.metrics[metric]) for e in trial.epochs.values() if finite(e.metrics.get(metric))]


def _spans(run: RecordedRun) -> list[dict[str, Any]]:
    """The intervals in which each trial ran, in seconds of search; a trial that paused has several.

    What ran when a driver was killed ended with its last event: the pause until another one goes on is no time of
    search, so its end is the same place as its start.
    """
    begun: dict[str, float] = {}
    spans: list[dict[str, Any]] = []
    for event in run.events:
        trial, now = event.get("trial"), run.record.active.at(event["time"])
        if event["event"] in ("trial_started", "trial_resumed"):
            begun[str(trial)] = now
        elif event["event"] in OFF_THE_WORKER and trial in begun:
            spans.append({"trial": trial, "start": begun.pop(trial), "end": now})
        elif event["event"] in ("study_interrupted", "study_ended", "study_resumed"):
            spans += [{"trial": name, "start": start, "end": now} for name, start in begun.items()]
            begun = {}
    last = run.record.active.at(run.events[-1]["time"]) if run.events else 0.0
    spans += [{"trial": name, "start": start, "end": last} for name, start in begun.items()]
    return [{**span, "status": run.record.trials[span["trial"]].status} for span in spans]
