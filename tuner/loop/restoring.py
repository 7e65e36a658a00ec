"""Brings a search to the state in which its earlier drivers left it: replays their events to all objects with a
state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.history.event_lines import Event, finite
from tuner.history.records import RunRecord, TrialRecord
from tuner.loop.queue import Queue
from tuner.loop.stopping import Stopping
from tuner.search import Proposals
from tuner.study.declaration import Study


class Replay:
    """Gives each event to search algorithm, early stopper and queue, before the record takes it."""

    def __init__(self, record: RunRecord, proposals: Proposals, stopping: Stopping, queue: Queue, study: Study) -> None:
        self._study = study
        self._record, self._proposals, self._stopping, self._queue = record, proposals, stopping, queue

    def tell(self, event: Event) -> None:
        """Tell them what the driver told them at that time."""
        kind, trial = event["event"], event.get("trial", "")
        known = self._record.trials.get(trial)
        if kind == "trial_started" and ("repeats" in event or "refits" in event):
            return  # a configuration that they know already
        if kind == "trial_started" and known is None:
            self._proposals.adopt(self._record.configurations, event["config"])
            self._stopping.start(trial, trusted=self._proposals.is_learned(event["config"]))
        elif known is not None:
            if known.suggested:  # of a repeat, `tell_of_seeds` tells
                self._tell_of_known(kind, known, event)
        elif kind == "notice" and event.get("code") == "cannot_pause":
            self._stopping.give_up_pausing()
        elif kind == "retry_requested" or (kind == "order_obeyed" and event["verb"] == "retry"):
            for name in event.get("trials", ()):
                self._restart(self._record.trials.get(name))
        elif kind == "configuration_refused":
            self._queue.pass_over(event["config"])

    def _tell_of_known(self, kind: str, record: TrialRecord, event: Event) -> None:
        if kind == "trial_started":
            self._proposals.goes_on(record.configuration)
        if kind == "trial_resumed" or (kind == "trial_started" and record.paused):
            self._stopping.replay_resumption(record.trial)
        elif kind == "epoch_reported":
            metrics, told = event["metrics"], self._study.reported
            if not all(finite(metrics.get(name)) for name in told):
                return  # the trial failed by it
            price = self._study.price(record.config, metrics)
            if price is not None:
                self._proposals.price(record.configuration, price)
                self._stopping.price(record.trial, price)
            if not record.has_values(event["epoch"], told):
                value = metrics[self._study.metric]
                self._proposals.observe(record.configuration, event["epoch"], value)
                self._stopping.report(record.trial, event["epoch"], value)
        elif kind == "trial_retried" and not event.get("used"):
            self._proposals.fails(record.configuration)
        elif kind == "trial_ended":
            self._proposals.end(record.configuration, event["status"])
            self._stopping.end(record.trial)

    def _restart(self, record: TrialRecord | None) -> None:
        if record is not None and record.status == "failed" and record.suggested:
            self._proposals.restart(record.configuration)
            self._stopping.restart(record.trial)


def tell_of_seeds(proposals: Proposals, record: RunRecord, event: Event) -> None:
    """When another seed of a configuration was trained to its end, the search algorithm learns the mean over seeds.

    To the search algorithm a configuration is one point. Its values are those of its first trial after each epoch,
    later averaged with those of its other full-length trials after the same epoch. The record holds the event already.
    """
    if event["event"] != "trial_ended" or event["status"] != "completed":
        return
    ended = record.trials.get(event["trial"])
    if ended is None or ended.repeats is None:
        return
    first = record.same_configuration(ended)[0]
    if first.status != "failed":
        for epoch, value in record.mean_curve(first):
            proposals.observe(first.configuration, epoch, value)


def learned_before(history: Sequence[Event]) -> Sequence[dict[str, Any]]:
    """The configurations that the run's first driver learned from earlier studies."""
    kept = (event.get("learned") or event.get("configs") for event in history)  # older runs had them in a notice
    return next((configs for configs in kept if configs), ())
