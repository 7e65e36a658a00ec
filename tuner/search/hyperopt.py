"""The tree-structured Parzen estimator (Bergstra et al. 2011) of the hyperopt library, as ask and tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from tuner.errors import StudyError, shown
from tuner.search.base import (
    COUNT_RULE,
    EndStatus,
    Problem,
    SearchAlgorithm,
    Searcher,
    check_model_based,
    is_count,
    require_finite,
)
from tuner.space import Choice, Config, Space
from tuner.space.pareto import order
from tuner.space.values import is_number


@dataclass(frozen=True)
class HyperOpt(SearchAlgorithm):
    """TPE of hyperopt: model the good and the bad configurations seen so far, try what is likelier among the good.

    Configurations are drawn at random until `startup_trials` trials have reported a value; None takes a third of the
    budget's trials, 3 at least and 20 at most (10 without a budget). `candidates` are drawn from the good ones' model
    for each suggestion; `gamma` is the share of trials that count as good (of their square root, as hyperopt has it).
    """

    startup_trials: int | None = None
    candidates: int = 24
    gamma: float = 0.25

    @property
    def takes_two_objectives(self) -> bool:
        """True: the loss that hyperopt sees is the place by `tuner.space.pareto.order`, as MOTPE has it."""
        return True

    @property
    def needs(self) -> tuple[str, ...]:
        """The library."""
        return ("hyperopt",)

    def check(self, space: Space) -> None:
        """Raise StudyError for settings or domains that TPE can't take."""
        check_model_based("HyperOpt", space)
        if self.startup_trials is not None and not is_count(self.startup_trials):
            raise StudyError(f"HyperOpt.startup_trials needs {COUNT_RULE}, got {shown(self.startup_trials)}; use 5")
        if not is_count(self.candidates):
            raise StudyError(f"HyperOpt.candidates needs {COUNT_RULE}, got {shown(self.candidates)}; use 24")
        if not is_number(self.gamma) or not 0 < self.gamma <= 1:
            raise StudyError(f"HyperOpt.gamma needs a share above 0, 1 at most, got {shown(self.gamma)}; use 0.25")

    def build(self, problem: Problem) -> Searcher:
        """The searcher for one search; raises StudyError if the library is missing."""
        if find_spec("hyperopt") is None:
            raise StudyError(
                "search=HyperOpt() needs the hyperopt package, which is missing; pip install 'image-tuner[train]'"
            )
        trials = problem.trials
        startup = self.startup_trials or (10 if trials is None else max(3, min(20, trials // 3)))
        return HyperOptSearcher(problem, startup=startup, candidates=self.candidates, gamma=self.gamma)


class HyperOptSearcher(Searcher):
    """Keeps the trials as hyperopt's documents; every dimension is its own label.

    Numbers are searched in the unit cube of the space, which carries scale, quantisation and distribution; categories
    by their index. A label is missing from the document of a trial in which its dimension is inactive, as hyperopt has
    it for its own conditional spaces.
    """

    def __init__(self, problem: Problem, *, startup: int, candidates: int, gamma: float) -> None:
        from hyperopt import Domain, Trials, hp

        space = problem.space
        self._space, self._seed = space, problem.seed
        self._sign = -problem.sign
        self._startup = startup
        self._candidates, self._gamma = candidates, gamma
        self._categories = {n: d.size for n, d in space.dimensions.items() if isinstance(d, Choice)}
        labels = {
            name: hp.choice(name, list(range(self._categories[name])))
            if name in self._categories
            else hp.uniform(name, 0, 1)
            for name in space.dimensions
        }
        self._domain = Domain(_no_objective, labels, pass_expr_memo_ctrl=False) if labels else None
        self._trials = Trials()
        self._documents: dict[int, dict[str, Any]] = {}
        self._prices: dict[int, float] = {}

    def suggest(self, number: int, attempt: int = 0) -> Config | None:
        """TPE's suggestion after the trials reported so far; a random one during start-up.

        Each further attempt halves the number of candidates from which the best is taken, down to a plain draw from the
        good ones' model: if there are few possible values, the best of many is always the same.
        """
        if self._domain is None:
            return self._space.decode([])
        from hyperopt import rand, tpe

        seed = int(np.random.SeedSequence([self._seed, number, attempt]).generate_state(1)[0])
        if self._valued < self._startup:
            documents = rand.suggest([number], self._domain, self._trials, seed)
        else:
            self._rank_by_both()
            self._trials.refresh()
            documents = tpe.suggest(
                [number],
                self._domain,
                self._trials,
                seed,
                n_startup_jobs=0,
                n_EI_candidates=max(1, self._candidates >> attempt),
                gamma=self._gamma,
                verbose=False,
            )
        values = documents[0]["misc"]["vals"]
        return self._space.decode([self._column(name, values[name][0]) for name in self._space.dimensions])

    def adopt(self, number: int, config: Config) -> None:
        """Give hyperopt the trial, without a loss yet."""
        labels = dict(zip(self._space.dimensions, self._space.encode(config), strict=True))
        vals = {name: [] if math.isnan(unit) else [self._value(name, unit)] for name, unit in labels.items()}
        misc = {
            "tid": number,
            "cmd": None,
            "workdir": None,
            "idxs": {name: [number] if values else [] for name, values in vals.items()},
            "vals": vals,
        }
        documents = self._trials.new_trial_docs([number], [None], [{"status": "new"}], [misc])
        self._trials.insert_trial_docs(documents)
        self._documents[number] = self._trials._dynamic_trials[-1]

    def observe(self, number: int, epoch: int, value: float) -> None:
        """A trial's loss is the best that it has reached. Raises ValueError for NaN and infinity."""
        require_finite(number, epoch, value)
        result = self._documents[number]["result"]
        loss = self._sign * value
        result["loss"] = result["own"] = min(loss, result.get("own", math.inf))
        result["status"] = "ok"

    def price(self, number: int, value: float) -> None:
        """Trials that have one rank by both."""
        self._prices[number] = value

    def end(self, number: int, status: EndStatus) -> None:
        """A failed trial has no loss, which hyperopt takes for the worst."""
        if status == "failed":
            document = self._documents[number]
            document["result"] = {"status": "fail", "before": document["result"]}

    def restart(self, number: int) -> None:
        """The trial has the loss that it had before it failed."""
        document = self._documents[number]
        document["result"] = document["result"]["before"]

    def _rank_by_both(self) -> None:
        """With a second objective a trial's loss is its place among all of them, from 0."""
        results = [(number, one["result"]) for number, one in self._documents.items() if number in self._prices]
        valued = [(number, result) for number, result in results if "own" in result]
        points = np.array([(-result["own"], self._prices[number]) for number, result in valued])
        for place, index in enumerate(order(points.reshape(-1, 2))):
            valued[index][1]["loss"] = float(place)

    @property
    def _valued(self) -> int:
        """Trials with a loss; those that run or failed without one say nothing about what is good."""
        return sum("loss" in document["result"] for document in self._documents.values())

    def _column(self, name: str, value: float) -> float:
        """Hyperopt's value of a label in the unit cube."""
        return (int(value) + 0.5) / self._categories[name] if name in self._categories else float(value)

    def _value(self, name: str, unit: float) -> float:
        return int(unit * self._categories[name]) if name in self._categories else float(unit)


def _no_objective(config: Config) -> float:
    """Hyperopt wants an objective; ask/tell never calls it."""
    raise RuntimeError("hyperopt called the objective")
