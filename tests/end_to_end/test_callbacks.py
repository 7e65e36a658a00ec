"""Trainers of Lightning and of transformers report by tuner's callbacks, pause, and go on where they were."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tuner
from tests.commands import ROOT
from tests.commands import tuner as command
from tuner import StudyError, load_run
from tuner.api.callbacks.transformers_report import TransformersReporter


@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("lightning_digits", {"val_loss", "val_accuracy"}),
        ("transformers_digits", {"eval_loss", "eval_accuracy", "epoch"}),
    ],
)
def test_the_example_searches_and_its_trials_go_on_from_their_checkpoints(
    tmp_path: Path, name: str, metrics: set[str]
) -> None:
    options = ("--trials", "2", "--no-portfolio", "--concurrency", "1", "--cpus-per-trial", "2")
    example = (ROOT / f"search_spaces/{name}.py").read_text()
    (tmp_path / "short.py").write_text(example.replace("MAX_EPOCHS = 9", "MAX_EPOCHS = 3"))
    finished = command("run", "short.py", *options, folder=tmp_path, timeout=390)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "runs")
    assert not [trial.message for trial in run.record.trials.values() if trial.status == "failed"]
    paused = [trial for trial in run.record.trials.values() if len(trial.stays) > 1]
    assert paused
    for trial in run.record.trials.values():
        assert metrics <= set(trial.epochs[1].metrics)
        assert list(trial.epochs) == list(range(1, len(trial.epochs) + 1))
    for trial in paused:
        assert "estor" in run.log(trial.trial) or name.startswith("transformers")  # Lightning says so
        if "epoch" in metrics:
            assert [epoch.metrics["epoch"] for epoch in trial.epochs.values()] == list(trial.epochs)
    assert not [
        path for path in tmp_path.iterdir() if path.name not in ("runs", "short.py")
    ]  # what trainers write is in the run


class Module(LightningModule):
    """One layer, which logs after validation and, as many do, in the hook that ends its epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.layer(batch[0]), batch[1]))

    def on_train_epoch_end(self) -> None:
        self.log("train_f1", 0.5)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fitted(*names: str) -> None:
    data = DataLoader(TensorDataset(torch.rand(8, 2), torch.zeros(8, dtype=torch.long)), batch_size=4)
    report = tuner.LightningReport(metrics=names, checkpoint=False)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    Trainer(max_epochs=2, callbacks=[report], **quiet).fit(Module(), data, data, ckpt_path=report.resume_from)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")  # Lightning warns of its own use of torch
def test_lightning_reports_what_the_modules_own_hooks_log_too(capsys: pytest.CaptureFixture[str]) -> None:
    fitted()
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("tuner.report")]
    assert len(told) == 2
    assert all("val_loss=" in line and "train_f1=0.5" in line for line in told)
    fitted("val_loss")
    assert "train_f1" not in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_a_metric_that_nobody_logs_is_named() -> None:
    with pytest.raises(
        StudyError,
        match="a report needs metrics, got no val_acc; there are val_loss, train_f1; call self",
    ):
        fitted("val_acc")


def test_a_trainer_that_never_evaluates_is_refused(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    module = nn.Linear(2, 2)
    trainer = Trainer(
        module,
        TrainingArguments(str(tmp_path), report_to="none", use_cpu=True),
        train_dataset=[{"x": 0}],
        callbacks=[tuner.TransformersReport()],
    )
    assert isinstance(tuner.TransformersReport(), TransformersReporter)
    with pytest.raises(StudyError, match="needs evaluations, got eval_strategy='no'; set eval_strategy='epoch'"):
        trainer.train()


def test_an_evaluation_is_an_epoch_only_after_steps_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`eval_on_start=True`, `trainer.evaluate()` before and after, and a resumed training evaluate without an epoch."""
    from transformers import TrainerControl, TrainerState, TrainingArguments

    arguments, control = TrainingArguments(str(tmp_path), eval_strategy="epoch", use_cpu=True), TrainerControl()
    report = tuner.TransformersReport()

    def evaluated(step: int) -> bool:
        report.on_evaluate(arguments, TrainerState(global_step=step), control, {"eval_loss": 1.0})
        return "eval_loss" in capsys.readouterr().out

    assert not evaluated(0)
    report.on_train_begin(arguments, TrainerState(global_step=40), control)
    assert [evaluated(40), evaluated(50)] == [False, True]
    report.on_train_end(arguments, TrainerState(global_step=60), control)
    assert not evaluated(60)


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.api import callbacks

    monkeypatch.setattr(callbacks, "is_installed", lambda name: name == "transformers")
    with pytest.raises(StudyError, match=r"without accelerate; pip install 'image-tuner\[hf\]'"):
        tuner.TransformersReport()
    with pytest.raises(StudyError, match=r"needs lightning, got an installation without lightning; .*\[lightning\]'"):
        tuner.LightningReport()
