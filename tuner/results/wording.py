"""Settings, times and outcomes as short text; and what a user types to go on with a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from tuner.history.event_lines import finite
from tuner.history.records import RunRecord, TrialRecord, flat_config
from tuner.history.refits import shipped_refit
from tuner.history.scored import METRICS
from tuner.history.similar_failures import all_failed_alike
from tuner.history.worth import Worth
from tuner.results.front import front_of, unit_of
from tuner.results.run import RecordedRun
from tuner.study import budget
from tuner.study.declaration import DISTILLED, SOUP
from tuner.study.failures import Failures
from tuner.text import command
from tuner.trial.inference_cost import COSTS, cost_in_words
from tuner.trial.tasks import SHARES, USUAL

Z = 1.96  # 95 % of a normal variable lie within so many standard deviations on either side of the mean
MOST_OF_FRONT = 6  # configurations that a line names
CLEARLY = 2  # standard errors by which the refitted network is clearly worse than the winner's own
REPORT = "report.html"  # in the run's folder
FATES = ("trained to the end", "stopped early", "that failed", "cut off at the search's end", "that can go on")


def short(value: Any) -> str:
    """A value in few characters: 0.00093 as 0.00093, 0.123456789 as 0.1235."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def settings(config: dict[str, Any]) -> str:
    """A configuration on one line: lr=0.00093 batch_size=32."""
    return " ".join(f"{name}={short(value)}" for name, value in flat_config(config).items())


def duration(seconds: float) -> str:
    """Seconds as 42 s, 3 min 05 s or 2 h 07 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def hours(count: float) -> str:
    """Hours as 0.25, 12.5 or 140; "under 0.01" for less."""
    return "under 0.01" if 0 < count < 0.01 else f"{count:.3g}"


def shown_path(path: str) -> str:
    """A path in its short form: relative if it is below the working directory."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def plural(count: int, noun: str) -> str:
    """1 trial, 2 trials."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def trials_and_repeats(record: RunRecord) -> str:
    """How many trials there are: "10 trials, 15 repeats and 1 refit"; repeats train a configuration with another seed.

    A refit trains the winner again on training and validation images together.
    """
    more = [plural(count, noun) for count, noun in ((repeats_of(record), "repeat"), (record.refits, "refit")) if count]
    counted = [plural(record.configurations, "trial"), *more]
    return " and ".join([", ".join(counted[:-1]), counted[-1]] if more else counted)


def repeats_of(record: RunRecord) -> int:
    """Trials that train a configuration with another seed."""
    return len(record.trials) - record.configurations - record.refits


def shipped(run: RecordedRun) -> list[str]:
    """Sentences about the network in `best/` where it is not just the winner's own, or another was wanted; its cost."""
    return [one for one in (trained_again(run.record), own_network(run), cost(run)) if one] + combination(run)


def front_in_words(run: RecordedRun) -> str | None:
    """A sentence about the front of a search for two metrics; None for other searches."""
    found = front_of(run) if run.second else []
    if not found or run.second is None:
        return None
    unit, listed = unit_of(run.second.metric), found if len(found) <= MOST_OF_FRONT else [*found[:2], *found[-2:]]
    each = [f"{short(one.value)} at {one.cost:.3g}{unit} ({one.trial.trial})" for one in listed]
    each[2:2] = [f"{len(found) - len(listed)} more"] if len(listed) < len(found) else []
    return (
        f"{plural(len(found), 'configuration')} on the front of {run.metric} and {run.second.metric}: {', '.join(each)}"
    )


def cost(run: RecordedRun) -> str | None:
    """A sentence about what the winner's network costs when it answers; None if that wasn't measured."""
    known = run.costs and run.best and run.costs.of(run.best.config)
    if not run.costs or not known:
        return None
    costs = ", ".join(cost_in_words(known, name) for name in COSTS if name != "latency_ms")
    several = known.fastest_ms < known.latency_ms  # it was measured more than once
    best = f"{known.fastest_ms:.3g} at best; " if several else ""
    answers = f"{cost_in_words(known, 'latency_ms')} ({best}{run.costs.latency.words})"
    return f"its network answers in {answers}, and takes {costs}"


def trained_again(record: RunRecord) -> str | None:
    """A sentence about the trial whose network is in `best/`; None if it is the winner's own."""
    refit = shipped_refit(record)
    if refit is None:
        return None
    return (
        f"trial {refit.trial} trained the winner, {refit.refits}, again for {plural(refit.refit_epochs, 'epoch')} "
        f"on training and validation images together; best/ has its network, and {record.metric} is that of the "
        "configuration, not of this network"
    )


def own_network(run: RecordedRun) -> str | None:
    """A sentence about the test results of the winner's own network if `best/` has another one; None if unknown."""
    scored = run.scored(METRICS) or {}
    own = scored.get("refit", {}).get("own")
    if own is None or shipped_refit(run.record) is None:
        return None
    return _beside_own(own, "the refitted one", command("refit", run.path, "--undo"))


def _beside_own(own: Mapping[str, Any], shipped: str, undo: str) -> str:
    """How what is shipped does on the test images beside the winner's own network."""
    gain, error, metric = own["gain"], own["error"], own.get("metric", "accuracy")  # older runs don't name it
    in_points = f"test_{metric}" in SHARES
    by = f"{100 * abs(gain):.1f} ± {100 * error:.1f} points" if in_points else f"{abs(gain):.3g} ± {error:.2g}"
    reached = f"test_{metric} {short(own[f'test_{metric}'])}"
    start = f"on the same test images the winner's own network has {reached}"
    if in_points and by.startswith("0.0 ± 0.0 "):
        return f"{start}, as {shipped} has"
    told = f"{start}; {shipped} is {by}"
    if gain >= -CLEARLY * error:
        return f"{told} {'behind' if gain < 0 else 'ahead'}"
    return f"{told} behind, more than chance; to use its own network again: {undo}"


_NO_SOUP = "no mean of the weights of trials with the winner's layers and published weights answers better than it"


def combination(run: RecordedRun) -> list[str]:
    """Sentences about the average that `best/` has, or the winner scaled, or why neither; none if none was asked for.

    They name its members, what it gains on validation and on test images, and what it costs.
    """
    found = run.average
    if found is None:
        return []
    if "loss" not in found:
        why = f" ({found['failed']})" if "failed" in found else ""
        return [f"the best trials could not be averaged{why}; best/ has the winner's own network"]
    loss, gain = found["loss"], found["gain"]
    seen = f"{plural(found['images'], 'validation image')} that the choice had not seen"
    change = f"loss {short(loss)} to {short(loss - gain)}, {abs(gain):.2g} ± {found['error']:.2g}"
    direction = "less" if gain >= 0 else "more"
    if not found["in"]:
        if found["candidates"] == 1:
            return ["the best trials are not averaged, as only one has a network that could be; best/ has the winner's"]
        if found["asked"] == SOUP:
            return [f"{_NO_SOUP}; best/ has its own network"]
        return [
            f"averaging the answers of the best {plural(found['candidates'], 'trial')} gains nothing that matters on "
            f"{seen} ({change} {direction}); best/ has the winner's own network"
        ]
    if found.get("way") == DISTILLED:
        return [
            f"the network in best/ has the winner's layers, so it takes no more time than one, and learned for "
            f"{plural(found['epochs'], 'epoch')} from labels and from the answers of "
            f"{plural(len(found['members']), 'trial')} ({', '.join(one['trial'] for one in found['members'])}); on "
            f"{plural(found['images'], 'validation image')} that {'gains' if gain >= 0 else 'loses'}: {change} "
            f"{direction}; best/single has the winner's own network",
            _beside_own(found["own"], "this one", command("combine", run.path, "--undo")),
        ]
    if len(found["members"]) == 1:
        factor = found["members"][0].get("scale", 1.0)
        others = _NO_SOUP if found["asked"] == SOUP else "an average of several gains less, or nothing that matters"
        if found["candidates"] == 1:
            others = "no other trial has a network that could be averaged"
        return [
            f"the outputs of the winner's network are multiplied by {factor:.3g} in best/, so that "
            f"its answers are as sure as they are right; on {seen} that gains: {change} {direction}"
            f", and {others}; best/single has the network without the factor"
        ]
    if found.get("way") == SOUP:
        return [
            f"the network in best/ has the mean of the weights of {plural(len(found['members']), 'trial')} "
            f"({', '.join(one['trial'] for one in found['members'])}), and takes no more time than one; on "
            f"{plural(found['images'], 'validation image')}, by which they were chosen, that "
            f"{'gains' if gain >= 0 else 'loses'}: {change} {direction}; best/single has the winner's own network",
            _beside_own(found["own"], "this one", command("combine", run.path, "--undo")),
        ]
    members = ", ".join(f"{one['trial']} {one['share']:.0%}" for one in found["members"])
    cost = found["cost"]
    time = f"{cost['milliseconds']:.3g} ms an image in place of {cost['own_milliseconds']:.3g}"
    size = f"{cost['bytes'] / 1e6:.3g} MB in place of {cost['own_bytes'] / 1e6:.3g}"
    return [
        f"the answers of {plural(len(found['members']), 'trial')} are averaged in best/ ({members}); on {seen} that "
        f"{'gains' if gain >= 0 else 'loses'}: {change} {direction}",
        _beside_own(found["own"], "the average", command("combine", run.path, "--undo")),
        f"the average takes {time} and {size}; best/single has the winner's own network",
    ]


def epochs_spent(record: RunRecord) -> str:
    """How the epochs were used: "87 epochs: 58 in 6 trials trained to the end, 29 in 10 trials stopped early".

    Each epoch counts once; a last part says how many were trained in addition to go on after interruptions.
    """
    spent: dict[str, list[int]] = {fate: [] for fate in FATES}
    for trial in record.trials.values():
        if trial.epochs:
            spent[_fate(trial)].append(len(trial.epochs))
    parts = [f"{sum(epochs)} in {plural(len(epochs), 'trial')} {fate}" for fate, epochs in spent.items() if epochs]
    again = f"; in addition {record.epochs_again()} trained again after interruptions" if record.epochs_again() else ""
    return f"{plural(record.epochs(), 'epoch')}: {', '.join(parts)}{again}" if parts else plural(0, "epoch")


def _fate(trial: TrialRecord) -> str:
    """Which of FATES; a trial that was paused when a limit was reached counts as stopped early."""
    if trial.status == "stopped":
        early = trial.ended_by in (None, "early_stopping") or trial.epochs[trial.epoch].decision == "pause"
        return "stopped early" if early else "cut off at the search's end"
    return {"completed": "trained to the end", "failed": "that failed"}.get(trial.status, "that can go on")


def best_so_far(record: RunRecord, images: int | None = None) -> str:
    """The incumbent in a line, or that there is none; see `usual_metric` for what comes first.

    `images` is how many there are in the validation split, if that is known.
    """
    best = record.best_trial()
    worth = best and record.standing_of(best.trial)
    if not best or not worth:
        return "none yet"
    within = share_interval(record.metric, worth.value, images)
    value = f"{record.metric} {with_error(worth)}{averaged(worth)}{within}"
    usual = usual_metric(record, best, worth)
    first = f"{usual[0]} {short(usual[1])}{share_interval(*usual, images)}; " if usual else ""
    again = f", which repeats {best.repeats}" if best.repeats else ""
    return f"{first}{value} (trial {best.trial}{again}, epoch {worth.epoch}: {settings(best.config)})"


def usual_metric(record: RunRecord, trial: TrialRecord, worth: Worth) -> tuple[str, float] | None:
    """The most important metric of the trial's task, such as val_accuracy, and its value for the trial's network.

    It comes first, whatever the search optimises. Of several seeds it is the mean. None if the search optimises such a
    metric, or the trial reported none.
    """
    alike = record.same_configuration(trial) if worth.seeds > 1 else [trial]
    found = [(one, record.best_of(one.trial)) for one in alike if one is trial or one.status == "completed"]
    epochs = [one.epochs[best[0]].metrics for one, best in found if best is not None]
    for name in USUAL if record.metric not in USUAL else ():
        known = [float(value) for metrics in epochs if (value := metrics.get(name)) is not None and finite(value)]
        if known:
            return name, fmean(known)
    return None


def share_interval(metric: str, value: float, images: int | None) -> str:
    """The 95 % interval of a metric that is a share of the validation images, as text to put after it; else empty."""
    if metric not in SHARES or not images or not 0 <= value <= 1:
        return ""
    low, high = wilson(value * images, images)
    return f", 95 % interval {short(low)} to {short(high)} of {plural(images, 'validation image')}"


def wilson(right: float, total: int, z: float = Z) -> tuple[float, float]:
    """The 95 % interval of a share, after Wilson (1927); total > 0."""
    share = right / total
    middle = share + z**2 / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return max(0.0, (middle - half) / (1 + z**2 / total)), min(1.0, (middle + half) / (1 + z**2 / total))


def with_error(worth: Worth) -> str:
    """0.8975 ± 0.004; only the value if its error isn't known, or is smaller than its digits show."""
    seen = worth.error is not None and worth.error > abs(worth.value) * 1e-4
    return short(worth.value) + (f" ± {worth.error:.2g}" if seen else "")


def valued(worth: Worth) -> str:
    """The value of a configuration, for a table: with the error of the mean if it has several seeds."""
    return with_error(worth) if worth.seeds > 1 else short(worth.value)


def averaged(worth: Worth) -> str:
    """The seeds or epochs over which the value is the mean, as text to put after it; empty for a single one."""
    if worth.seeds > 1:
        return f" over {worth.seeds} seeds"
    return f" over epochs {worth.first} to {worth.last}" if worth.last > worth.first else ""


def ending(run: RecordedRun) -> str | None:
    """Why a finished search ended, as a part of a sentence; None for one that runs or was interrupted."""
    reason = run.end_reason or ""
    if reason == "space":
        return "every configuration of the space was tried"
    if reason == "constraint":
        return "no further configuration was found that the constraint allows"
    if reason == "stop":
        return f"{run.record.steered.stopped_by or 'a user'} stopped it"
    if reason == "failures":
        first = "each of the first trials failed before its first epoch ended"
        alike = run.info["failures"].get("alike") or Failures().alike or 1  # older runs don't say
        return all_failed_alike(run.record.ended_trials, int(alike)) or first
    told = budget.ending(reason, run.budget, run.metric)
    return f"{told}, with what was kept to train the winner again" if told and _kept_some(run, reason) else told


def _kept_some(run: RecordedRun, reason: str) -> bool:
    """Whether a limit was reached only together with what the search reserved for its refit, which took less."""
    limit, value = next((pair for pair in budget.limits_of(run.budget) if pair[0].name == reason), (None, 0.0))
    if (
        limit is None
        or limit.spent is None
        or limit.reached is None
        or limit.beyond != "above"
        or not run.record.refits
    ):
        return False
    spent = run.record, run.devices, run.record.active_seconds, run.record.last_time or 0.0
    spending = budget.Spending(*spent, mode="max" if run.mode == "max" else "min")
    return limit.spent(spending) < value


def outcome(trial: TrialRecord) -> str:
    """A trial's status, with the cause of a failure."""
    return f"failed: {trial.cause}" if trial.status == "failed" else trial.status


def extended(run: RecordedRun, trials: int) -> dict[str, float]:
    """The limits with which a run goes on whose search has ended at one: by so many trials, or by half as much again.

    Empty if no such limit has ended it, or the run doesn't say what it was.
    """
    over = run.end_reason or "trials" if run.status == "finished" else None  # old runs don't say it
    reason = run.record.ended if run.alive else over
    if reason == "trials":
        return {"trials": run.record.configurations + trials}
    spent = {"total_epochs": run.record.search_epochs(), "hours": run.record.wall_seconds / budget.SECONDS_PER_HOUR}
    if reason not in (*spent, "device_hours") or (limit := run.budget.get(reason)) is None:
        return {}
    reached = max(limit, spent.get(reason, run.device_hours))
    if reason == "total_epochs":
        return {reason: int(reached) + max(int(reached) // 2, run.longest_trial)}
    return {reason: float(f"{1.5 * reached:.3g}")}


def report_of(run: RecordedRun) -> str | None:
    """Path or URI of `report.html` in the run's present folder, also after it was copied; None if it wasn't written."""
    return run.folder.child(REPORT).uri if isinstance(run.info.get("report"), str) else None


def going_on_by(run: RecordedRun, limits: Mapping[str, float] | None = None, *, confirm: int | None = None) -> str:
    """The command or call that goes on with a run, with these limits of its whole; None for those that it has.

    Or the one that confirms this many of its best configurations; 0 for as many as `tuner confirm` takes by itself.
    """
    verb, given = ("resume", limits or {}) if confirm is None else ("confirm", {"top": confirm} if confirm else {})
    from_python = run.info.get("study_file", "") is None
    if not from_python and not run.info["asked"]:
        options = [text for name, one in given.items() for text in ("--" + name.replace("_", "-"), f"{one:g}")]
        return command(verb, run.path, *options)
    more = "".join(f", {name}={one:g}" for name, one in given.items())
    study = ", study=study" if from_python else ""
    return f"tuner.{'Search.' if run.info['asked'] else ''}{verb}({run.path!r}{study}{more})"
