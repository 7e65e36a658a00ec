"""How the search went: the incumbent, the curves, what early stopping spent and saved, who waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tuner.history.events import finite
from tuner.history.pace import start_seconds, typical_epoch
from tuner.history.records import TrialRecord, saved_epochs, saved_share
from tuner.plots.base import BEST, COLOURS, GREY, SYMBOLS, Plot, new_figure

if TYPE_CHECKING:
    import pandas as pd

    from tuner.results.run import Run

Against = Literal["trials", "epochs", "time"]
AXES = {"trials": "trials started", "epochs": "epochs trained in all", "time": "minutes of the search"}
OFF_THE_WORKER = ("trial_paused", "trial_lost", "trial_retried", "trial_ended")
MOST_CURVES = 300
MOST_TICKS = 20


def optimisation_history(run: Run, against: Against = "trials") -> Plot:
    """Each trial's best value, and the best of all so far: against trials, epochs trained, or wall-clock time."""
    table = _bests(run, against)
    worth = f"{run.metric} {table['best so far'].iloc[-1]:.4g}" if len(table) else "nothing yet"
    figure = new_figure(f"The search reached {worth}", x=AXES[against], y=run.metric)
    for status in dict.fromkeys(table["status"]):
        rows = table[table["status"] == status]
        figure.add_scatter(
            x=rows[against],
            y=rows["value"],
            text=rows["trial"],
            name=str(status),
            mode="markers",
            marker={"color": COLOURS[str(status)], "symbol": SYMBOLS.get(str(status), "circle"), "size": 7},
            hovertemplate="trial %{text}: %{y:.5g}",
        )
    figure.add_scatter(
        x=table[against], y=table["best so far"], name="best so far", mode="lines", line={"color": BEST, "shape": "hv"}
    )
    return Plot(f"history against {against}", figure, table)


def learning_curves(run: Run) -> Plot:
    """Every trial's metric after each epoch, coloured by its outcome, with the rungs at which trials are compared."""
    import pandas as pd

    trials = list(run.record.trials.values())
    if len(trials) > MOST_CURVES:  # the best ones and an even choice of the others
        ranked = [trial for trial, _ in run.record.ranked()]
        ranked += [trial for trial in trials if trial.status == "failed"]
        step = max(1, (len(ranked) - MOST_CURVES // 2) // (MOST_CURVES // 2))
        trials = [*ranked[: MOST_CURVES // 2], *ranked[MOST_CURVES // 2 :: step][: MOST_CURVES // 2]]
    best = run.best
    stopped = sum(trial.status == "stopped" for trial in run.record.trials.values())
    figure = new_figure(
        f"{stopped} of {len(run.record.trials)} trials were stopped early; the curve of the best is bold",
        x="epoch",
        y=run.metric,
    )
    rows: list[dict[str, Any]] = []
    shown: set[str] = set()
    for trial in trials:
        curve = _curve(run, trial)
        rows += [{"trial": trial.trial, "status": trial.status, "epoch": e, run.metric: v} for e, v in curve]
        if not curve:
            continue
        is_best = best is not None and trial.trial == best.trial
        figure.add_scatter(
            x=[epoch for epoch, _ in curve],
            y=[value for _, value in curve],
            name=trial.status,
            legendgroup=trial.status,
            showlegend=trial.status not in shown,
            mode="lines+markers" if len(curve) == 1 else "lines",
            line={"color": COLOURS[trial.status], "width": 4 if is_best else 1},
            opacity=1.0 if is_best else 0.55,
            hovertemplate=f"trial {trial.trial}, epoch %{{x}}: %{{y:.5g}}<extra></extra>",
        )
        shown.add(trial.status)
    if max((row["epoch"] for row in rows), default=0) <= MOST_TICKS:
        figure.update_xaxes(dtick=1)
    for rung in run.info.get("rungs") or []:
        figure.add_vline(x=rung, line={"color": GREY, "dash": "dot", "width": 1})
    columns = ["trial", "status", "epoch", run.metric]
    return Plot("learning curves", figure, pd.DataFrame(rows, columns=columns))


def distribution(run: Run) -> Plot:
    """The share of trials whose best value is at most so high: the empirical distribution of outcomes."""
    import pandas as pd

    values = sorted(best[1] for best in map(run.record.best_of, run.record.trials) if best is not None)
    shares = [(index + 1) / len(values) for index in range(len(values))]
    table = pd.DataFrame({run.metric: values, "share of trials": shares})
    middle = f"{values[len(values) // 2]:.4g}" if values else "unknown"
    figure = new_figure(f"Half of the trials reached {middle}", x=run.metric, y="share of trials at or below")
    figure.add_scatter(
        x=table[run.metric], y=table["share of trials"], mode="lines", line={"color": BEST, "shape": "hv"}
    )
    return Plot("distribution", figure, table)


def timeline(run: Run) -> Plot:
    """When each trial ran, in lanes of trials that ran at the same time: what is blank was idle."""
    import pandas as pd

    spans = sorted(_spans(run), key=lambda span: span["start"])
    ends: list[float] = []
    for span in spans:
        lane = next((index for index, end in enumerate(ends) if end <= span["start"] + 1e-6), len(ends))
        ends[lane : lane + 1] = [span["end"]]
        span["worker"] = lane + 1
    table = pd.DataFrame(spans, columns=["trial", "status", "worker", "start", "end"])
    typical = typical_epoch(list(run.record.trials.values()))
    starting = sum(start_seconds(trial, typical) for trial in run.record.trials.values())
    busy = max(0.0, float((table["end"] - table["start"]).sum()) - starting)
    lasted = float(table["end"].max()) if len(table) else 0.0
    share = busy / (lasted * len(ends)) if lasted and ends else 0.0
    begun = starting / (lasted * len(ends)) if lasted and ends else 0.0
    figure = new_figure(
        f"Workers trained {share:.0%} of the time, and started trials {begun:.0%}",
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
            marker={"color": COLOURS[str(status)], "line": {"width": 1, "color": "rgba(128,128,128,0.6)"}},
            text=rows["trial"],
            textposition="none",
            hovertemplate="trial %{text}: %{base:.2f} min, for %{x:.2f} min",
        )
    figure.update_layout(barmode="overlay").update_yaxes(dtick=1)
    return Plot("timeline", figure, table)


def savings(run: Run) -> Plot:
    """The epochs that trials which ended at each rung were trained, and those that stopping them saved."""
    import pandas as pd

    rows = []
    for epochs in sorted({t.epoch for t in run.record.trials.values() if t.epoch}):
        here = [t for t in run.record.trials.values() if t.epoch == epochs]
        saved = saved_epochs(here, run.longest_trial)
        rows.append({"ended after epoch": epochs, "trials": len(here), "spent": epochs * len(here), "saved": saved})
    table = pd.DataFrame(rows, columns=["ended after epoch", "trials", "spent", "saved"])
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


def costs(run: Run) -> Plot:
    """Memory and throughput of each trial: its peak memory, and the images a second of its median epoch."""
    import pandas as pd

    rows = []
    for trial in run.record.trials.values():
        memory, speed = _numbers(trial, "memory_peak_bytes"), sorted(_numbers(trial, "images_per_second"))
        if memory and speed:
            row = {"trial": trial.trial, "status": trial.status, "memory (GB)": max(memory) / 1e9}
            rows.append(row | {"images per second": speed[len(speed) // 2]})
    table = pd.DataFrame(rows, columns=["trial", "status", "memory (GB)", "images per second"])
    most = f"{table['memory (GB)'].max():.2g} GB at most" if len(table) else "not reported"
    figure = new_figure(f"Memory of a trial: {most}", x="images per second", y="peak memory (GB)")
    for status in dict.fromkeys(table["status"]):
        part = table[table["status"] == status]
        figure.add_scatter(
            x=part["images per second"],
            y=part["memory (GB)"],
            text=part["trial"],
            name=str(status),
            mode="markers",
            marker={"color": COLOURS[str(status)], "symbol": SYMBOLS.get(str(status), "circle"), "size": 8},
            hovertemplate="trial %{text}: %{x:.0f} images/s, %{y:.2f} GB",
        )
    figure.update_yaxes(rangemode="tozero").update_xaxes(rangemode="tozero")
    return Plot("costs", figure, table)


# Inside


def _bests(run: Run, against: Against) -> pd.DataFrame:
    """A row per trial that reported: its place on the axis where its best value came, the value, the best so far."""
    import pandas as pd

    begun = run.events[0]["time"] if run.events else 0.0
    better = max if run.mode == "max" else min
    so_far: list[float] = []
    rows = []
    for count, (time, trial, epoch, value) in enumerate(run.record.reports(), start=1):
        if value is not None and trial.status != "failed":
            so_far = [better(*so_far, value)] if so_far else [value]
        found = run.record.best_of(trial.trial)
        if found is not None and found[0] == epoch:
            place = {"trials": trial.number + 1, "epochs": count, "time": (time - begun) / 60}[against]
            best = so_far[0] if so_far else None
            rows.append((place, trial.trial, trial.status, found[1], best))
    table = pd.DataFrame(rows, columns=[against, "trial", "status", "value", "best so far"])
    table = table.sort_values(against, ignore_index=True).astype({"value": "float64", "best so far": "float64"})
    if against == "trials":  # the order of their numbers is not that of time
        eligible = table["value"].where(table["status"] != "failed")
        table["best so far"] = eligible.cummax().ffill() if run.mode == "max" else eligible.cummin().ffill()
    return table


def _curve(run: Run, trial: TrialRecord) -> list[tuple[int, float]]:
    return sorted((e.epoch, e.metrics[run.metric]) for e in trial.epochs.values() if finite(e.metrics.get(run.metric)))


def _numbers(trial: TrialRecord, metric: str) -> list[float]:
    return [float(e.metrics[metric]) for e in trial.epochs.values() if finite(e.metrics.get(metric))]


def _spans(run: Run) -> list[dict[str, Any]]:
    """From when to when each trial ran, in seconds since the search began; a trial that paused has several."""
    begun: dict[str, float] = {}
    spans = []
    origin = run.events[0]["time"] if run.events else 0.0
    for event in run.events:
        trial = event.get("trial")
        if event["event"] in ("trial_started", "trial_resumed"):
            begun[str(trial)] = event["time"]
        elif event["event"] in OFF_THE_WORKER and trial in begun:
            spans.append({"trial": trial, "start": begun.pop(trial) - origin, "end": event["time"] - origin})
        elif event["event"] in ("study_interrupted", "study_ended", "study_resumed"):
            spans += [
                {"trial": name, "start": start - origin, "end": event["time"] - origin} for name, start in begun.items()
            ]
            begun = {}
    last = run.events[-1]["time"] if run.events else 0.0
    spans += [{"trial": name, "start": start - origin, "end": last - origin} for name, start in begun.items()]
    return [{**span, "status": run.record.trials[span["trial"]].status} for span in spans]
