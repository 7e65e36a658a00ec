"""What is best is one question: everything that a run shows, advises or ships names the same trial and value."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.history.events_of_a_run import event
from tuner import Run, Study, compare, load_run, refine
from tuner.console.standing import Plan, Progress
from tuner.errors import RunFolderError
from tuner.history.event_lines import Event, written
from tuner.history.refits import refit_of
from tuner.history.run_info import FORMAT, write_info
from tuner.html_report import report_html
from tuner.html_report.first_screen import copies
from tuner.lifecycle.writing_best import winner_due
from tuner.loop.confirming import confirmation
from tuner.mirrors.wandb_summary import contents
from tuner.plots import progress
from tuner.results import export
from tuner.results.findings import certainty, findings_of
from tuner.results.rest_simulation import Ahead
from tuner.results.trial_texts import ranks_of
from tuner.results.wording import best_so_far
from tuner.service.web.comparing import compared
from tuner.service.web.summary import summary
from tuner.space import space_record
from tuner.storage.folder import LocalFolder

SEARCHES = 200
LONGEST = 9
FILE = """
from tuner import *
study = Study(
    "mine", trial=lambda config: None, metric="val_accuracy",
    space={"x": uniform(0.5, 3), "batch": choice([16, 32, 64])}, search=Random(),
    budget=Budget(trials=30, max_epochs=9),
)
"""


class Search:
    """The events of a made-up search: stopped, paused, failed, repeated, confirmed and refitted trials, and ties."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.events: list[Event] = [event("study_started", 1000.0, trials=30)]
        self.trials = 0
        self.coarse = bool(self.draw.random() < 0.3)  # few validation images: many values are equal
        self.noise = float(self.draw.choice([0.0, 0.02, 0.2]))
        self.longest = int(self.draw.choice([1, 3, LONGEST]))
        for _ in range(int(self.draw.choice([0, 1, 2, 12, 25], p=[0.02, 0.08, 0.1, 0.4, 0.4]))):
            config = {"x": float(self.draw.uniform(0.5, 3)), "batch": int(self.draw.choice([16, 32, 64]))}
            self.train(config, self.draw.choice(["completed", "stopped", "failed", "paused"], p=[0.4, 0.4, 0.1, 0.1]))

    @property
    def record(self) -> Any:
        from tuner.history.records import RunRecord

        return RunRecord("val_accuracy", "max", self.events)

    def at(self) -> float:
        return 1000.0 + 10 * len(self.events)

    def train(self, config: dict[str, Any], status: str, **more: Any) -> None:
        trial, longest = f"{self.trials:05d}", more.get("refit_epochs", self.longest)
        fields = {"trial": trial, "number": self.trials, "config": config, "seed": self.trials, "from_epoch": 0}
        self.events.append(event("trial_started", self.at(), **fields, **more))
        self.trials += 1
        last = longest if status == "completed" else int(self.draw.integers(1, max(2, longest)))
        for epoch in range(1, last + 1):
            value = 0.9 - (config["x"] - 3) ** 2 / 6 - 0.4 / epoch + self.noise * self.draw.normal()
            value = min(1.0, max(0.0, round(value * 20) / 20 if self.coarse else float(value)))
            told = {"val_accuracy": value}
            self.events.append(
                event("epoch_reported", self.at(), trial=trial, epoch=epoch, metrics=told, decision="continue")
            )
            if self.draw.random() < 0.7 or epoch == last:
                self.events.append(event("checkpoint_saved", self.at(), trial=trial, epoch=epoch))
        if status == "paused":
            self.events.append(event("trial_paused", self.at(), trial=trial, epoch=last))
        else:
            self.events.append(event("trial_ended", self.at(), trial=trial, status=status))

    def repeat(self) -> None:
        try:
            asked = confirmation(
                self.record, self.longest, int(self.draw.integers(1, 3)), int(self.draw.integers(1, 4))
            )
        except RunFolderError:
            return
        for first in asked.fields["trials"] * asked.fields["seeds"]:
            status = self.draw.choice(["completed", "failed"], p=[0.9, 0.1])
            self.train(self.record.trials[first].config, status, repeats=first, confirms=True)

    def refit(self) -> None:
        found = refit_of(self.record)
        if found is not None:
            more = {"refits": found.winner.trial, "refit_epochs": found.epochs}
            self.train(found.winner.config, "completed", **more)


def written_run(folder: Path, seed: int) -> Run:
    search = Search(seed)
    for step in search.draw.permutation(["repeat", "repeat", "refit"])[: int(search.draw.integers(0, 4))]:
        getattr(search, step)()
    search.events.append(event("study_ended", search.at(), reason="trials"))
    (folder / "events").mkdir(parents=True)
    (folder / "events" / "000001.jsonl").write_bytes(b"".join(written(one) + b"\n" for one in search.events))
    (folder / "study.py").write_text(FILE)
    named: dict[str, Any] = {}
    exec(FILE, named)
    declared: Study = named["study"]
    info = {"study": "mine", "metric": "val_accuracy", "mode": "max", "status": "finished", "started": "2026"}
    info |= {"space": space_record(declared.search_space), "limits": {}, "options": {}, "rungs": []}
    info |= {"budget": {"max_epochs": search.longest, "trials": 30}, "format": FORMAT, "host": "elsewhere"}
    write_info(
        LocalFolder(folder), {**info, "study_file": str(folder / "study.py"), "end_reason": "trials", "seed": seed}
    )
    return load_run(folder)


def answers(run: Run) -> dict[str, Any]:
    """Who wins, as each place names it: by trial, configuration or value."""
    best, record = run.best, run.record
    assert best is not None
    ranked = record.ranked()
    following = Progress(Plan("mine", "val_accuracy", "max", Ahead(30, LONGEST)), run.events)
    due = winner_due(run.folder, record)
    assert due is not None
    trials: dict[str, Any] = {
        "ranked": ranked[0].trial.trial,
        "show": record.rows()[0].trial,
        "top": run.top(1)["trial"].iloc[0],
        "configurations": run.configurations["trial"].iloc[0],
        "line": best_so_far(record).split("(trial ")[1][:5],
        "following": following.incumbent().rpartition(" by ")[2],
        "json": run.summary()["best"]["trial_id"],
        "notebook": run._repr_html_().split("(trial ")[1][:5],
        "ranks": min(ranks_of(record), key=ranks_of(record).__getitem__),
        "best/": due[0].trial,
        "service": summary(run).best.trial,
        "refit": refit_of(record).winner.trial,
    }
    values: dict[str, Any] = {
        "ranked": ranked[0].value,
        "top": run.top(1)["val_accuracy"].iloc[0],
        "configurations": run.configurations["val_accuracy"].iloc[0],
        "json": run.summary()["best"]["value"],
        "service": summary(run).best.value,
        "record": record.winning_value,
        "history": next(t for t in progress.optimisation_history(run).figure.data if t.name == "best so far").y[-1],
        "following": following.leads[-1],
        "compare": compare([run, run]).table["val_accuracy"].iloc[0],
        "service's comparison": compared([(1, run), (2, run)]).rows[0]["val_accuracy"],
    }
    configs = {"best": best.config, "outcomes": run.outcomes()[0][0], "copies": json.loads(copies(run)[1].text)}
    if len(ranked) >= 5:
        configs["refine"] = refine(run, "narrowed").region.best
    return {"trials": trials, "values": values, "configs": list(configs.values())}


@pytest.mark.parametrize("part", range(4))
def test_all_places_name_the_same_winner_and_value(tmp_path: Path, part: int) -> None:
    without, repeated = 0, 0
    for seed in range(part, SEARCHES, 4):
        run = written_run(tmp_path / str(seed), seed)
        if run.best is None:
            without += 1
            assert run.record.ranked() == []
            assert run.top().empty
            assert compare([run, run]).conclusion == "no run has reported a value"
            continue
        found = answers(run)
        assert set(found["trials"].values()) == {run.best.trial}, (seed, found["trials"])
        assert set(found["values"].values()) == {run.record.winning_value}, (seed, found["values"])
        assert all(config == run.best.config for config in found["configs"]), seed
        many = run.record.most_seeds
        repeated += many > 1
        assert many == 1 or run.record.seed_count(run.best) == many, seed
    assert without < SEARCHES / 20
    assert repeated > 10


def test_the_top_the_table_of_show_and_the_ranks_have_one_order(tmp_path: Path) -> None:
    for seed in range(40):
        run = written_run(tmp_path / str(seed), seed)
        order = [one.trial.trial for one in run.record.ranked()]
        assert run.top(100)["trial"].tolist() == order
        assert [trial.trial for trial in run.record.rows()][: len(order)] == order
        assert list(ranks_of(run.record)) == order
        assert run.outcomes()[0] == [one.trial.config for one in run.record.ranked()]
        full = [one for one in run.record.ranked() if one.trial.status == "completed"]
        assert run.record.completed(len(full)) == full
        repeated = [one for one in full if len(run.record.same_configuration(one.trial)) > 1]
        alone = [one for one in full if one not in repeated]
        assert run.record.completed(2) == [one for one in full if one in repeated or one in alone[:2]]


def test_advice_speaks_of_the_winners_values_and_certainty_of_the_winner(tmp_path: Path) -> None:
    told = 0
    for seed in range(60):
        run = written_run(tmp_path / str(seed), seed)
        for one in findings_of(run).advice:
            if one.text.startswith("The best value of x, "):
                told += 1
                assert run.best is not None
                assert one.text.startswith(f"The best value of x, {run.best.config['x']:.4g}, lies at the border")
        run._scored["metrics.json"] = ({"images": {"validation": 500}}, None)
        sure = certainty(run)
        assert sure is None or sure.value == run.record.winning_value
    assert told > 5


@pytest.mark.parametrize("seed", [0, 1, 2, 5, 8])
def test_the_report_wandb_and_optuna_name_it_too(tmp_path: Path, seed: int) -> None:
    optuna = pytest.importorskip("optuna")
    run = written_run(tmp_path / "run", seed)
    assert run.best is not None
    page = report_html(run)
    assert f"Trial {run.best.trial} is the best, with" in page
    assert f"The winner reached val_accuracy {run.record.winning_value:.4g}" in page
    if run.record.repeated:
        assert contents(run)["configurations"].data[0][1] == run.best.trial
    export(run, "optuna", tmp_path / "study.db")
    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{tmp_path}/study.db")
    assert study.best_trial.user_attrs["trial"] == run.best.trial
    assert study.best_value == run.record.winning_value
