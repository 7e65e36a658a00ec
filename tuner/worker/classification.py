"""The work of `ImageClassifier`: downloading, training on one device or several, scoring the winner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import StudyError
from tuner.trial import STRATEGIES, ImageClassifier, MemoryEstimate
from tuner.trial.inference_cost import OF_FORWARD
from tuner.trial.same_backbone import batch_key
from tuner.trial.speed import Speed, kind_of
from tuner.trial.tasks import NUMBER
from tuner.worker.implementation import WORKER, DataLook, Implementation
from tuner.worker.ray_inside.last_trial import LAST

if TYPE_CHECKING:
    from tuner.history.combination import Candidate
    from tuner.train import CrossValidation, LoneHead, Trainer
    from tuner.trial.inference_cost import InferenceCost, Latency
    from tuner.trial.strategies import DeviceStrategy
    from tuner.worker.assignment import Assignment
    from tuner.worker.reporting import WorkerSession

UNKNOWN_CLASSES = 1000  # ImageNet's; other data mostly has a smaller head
OF_THE_DATA = (
    "data",
    "data_dir",
    "data_memory_gb",
    "validation",
    "group",
    "copies",
    "task",
)  # the fields that `look` needs


class Classification(Implementation[ImageClassifier]):
    """Fine-tunes with `tuner.train`, scores with `tuner.inspection`."""

    @property
    def modules(self) -> tuple[str, ...]:
        """See `Implementation.modules`."""
        return (*WORKER, "tuner.train")

    def train(self, trial: ImageClassifier, assignment: Assignment, session: WorkerSession) -> None:
        """See `Implementation.train`."""
        if assignment.refit_epochs is not None:
            trial = trial.refitted()
        strategy = STRATEGIES.get(assignment.strategy or "")
        if assignment.others:
            from tuner.worker.together import train_together

            train_together(trial, assignment, session)
        elif strategy and strategy.process_per_device:
            from tuner.worker.several import train_on_several

            train_on_several(trial, assignment, session)
        else:
            _train_in_this_process(trial, assignment, session, strategy)

    def download(self, trial: ImageClassifier) -> None:
        """See `Implementation.download`."""
        from tuner.train import download_missing

        download_missing(trial)

    def look(
        self, trial: ImageClassifier, config: dict[str, Any], *, split_seed: int, before: bool = False
    ) -> DataLook | None:
        """See `Implementation.look`; for data whose images are files."""
        from tuner.worker.look_process import look_apart

        if trial.image_files is None:
            return None
        given = {name: value for name in OF_THE_DATA if (value := getattr(trial, name)) is not None}
        if trial.folds:
            given["folds"] = given.pop("validation").count
        framing = trial.of(config).framing(trial.asked_size(config))
        if framing is None:
            return None
        return look_apart({"trial": given, "seed": split_seed, "framing": asdict(framing), "before": before})

    def check_splits(
        self, trial: ImageClassifier, config: dict[str, Any], *, stages: int, splits: Sequence[Any]
    ) -> None:
        """See `Implementation.check_splits`; a function's model is made once."""
        from tuner.train.models import empty_network
        from tuner.train.parallel.pipeline import find_chain, split_at

        trial = trial.of(config)
        network = empty_network(trial, channels=3, classes=10, config=trial.hyperparameters(config))
        chain = find_chain(network.module, trial.model_name)
        for split in splits:
            split_at(chain, split, stages)

    def memory_estimator(
        self, trial: ImageClassifier, *, epochs: int, split_seed: int, device: str, free_bytes: float
    ) -> Callable[[dict[str, Any]], MemoryEstimate]:
        """See `Implementation.memory_estimator`."""
        import torch

        from tuner.train.memory.estimate import MemoryEstimator

        torch.set_num_threads(1)
        return MemoryEstimator(trial, epochs=epochs, split_seed=split_seed, device=device, free_bytes=free_bytes)

    def together(self, trial: ImageClassifier, config: Mapping[str, Any]) -> str | None:
        """See `Implementation.together`."""
        return batch_key(trial, dict(config))

    def checkpoint_bytes(
        self, trial: ImageClassifier, configs: Sequence[dict[str, Any]], *, epochs: int
    ) -> tuple[int, dict[str, Any]] | None:
        """See `Implementation.checkpoint_bytes`."""
        from tuner.train.checkpoint_size import checkpoint_bytes

        channels, classes = _shape_of(trial)
        return checkpoint_bytes(trial, configs, epochs=epochs, channels=channels, classes=classes)

    def cost_kind(self, trial: ImageClassifier, config: dict[str, Any]) -> str:
        """See `Implementation.cost_kind`."""
        return kind_of(trial.of(config).hyperparameters(config))

    def prepare(self, threads: int) -> None:
        """See `Implementation.prepare`."""
        import torch

        import_module("tuner.train.speed")
        torch.set_num_threads(threads)

    def speed(
        self,
        trial: ImageClassifier,
        config: dict[str, Any],
        *,
        epochs: int,
        split_seed: int,
        device: str,
        seconds: float,
    ) -> Speed | None:
        """See `Implementation.speed`; for one device."""
        from tuner.train.speed import measure_trial

        return measure_trial(trial, config, epochs=epochs, split_seed=split_seed, device=device, seconds=seconds)

    def network_of(self, trial: ImageClassifier, config: dict[str, Any]) -> str:
        """See `Implementation.network_of`."""
        own = trial.of(config)
        chosen = own.hyperparameters(config)
        apart = [own.folds, own.starts_from_weights, chosen["finetune"]] if own.folds else []
        shape = self._known_shape(own)
        return repr([own.model_name, *(chosen.get(name) for name in OF_FORWARD), *apart, *shape])

    def _known_shape(self, trial: ImageClassifier) -> tuple[int, int]:
        """Channels and outputs. Raises StudyError if they aren't known before the data are read."""
        source = trial.source
        outputs = 1 if trial.label_task is NUMBER else source.classes or source.count_classes()
        if not source.channels or not outputs:
            raise StudyError(
                f"costs of networks need data whose channels and classes are known before they are read, got "
                f"{source.name}; use a folder or a table, or leave limits and the cost out of metric"
            )
        return source.channels, outputs

    def inference_cost(
        self, trial: ImageClassifier, config: dict[str, Any], *, latency: Latency, often: bool
    ) -> InferenceCost:
        """See `Implementation.inference_cost`."""
        from tuner.worker.network_cost import inference_cost

        channels, classes = self._known_shape(trial)
        return inference_cost(trial, config, latency, channels=channels, classes=classes, often=often)

    def score(
        self,
        trial: ImageClassifier,
        config: dict[str, Any],
        checkpoint: Path,
        best: Path,
        *,
        record: Mapping[str, Any],
        split_seed: int,
        device: str,
    ) -> None:
        """See `Implementation.score`."""
        from tuner.inspection import score, write_best

        learnt = ((record.get("refit") or {}).get("own") or {}).get("learnt")
        scored = score(trial, config, checkpoint, split_seed=split_seed, device=device, learnt=learnt)
        write_best(best, trial, config, scored, record)

    def combine(
        self,
        trial: ImageClassifier,
        candidates: Sequence[Candidate],
        best: Path,
        *,
        record: Mapping[str, Any],
        split_seed: int,
        device: str,
    ) -> None:
        """See `Implementation.combine`."""
        from tuner.inspection.combining import write_combined

        write_combined(trial, candidates, best, record=record, split_seed=split_seed, device=device)

    def beside_own(
        self, trial: ImageClassifier, config: dict[str, Any], *, refitted: Path, own: Path, split_seed: int, device: str
    ) -> dict[str, Any]:
        """See `Implementation.beside_own`."""
        from tuner.inspection.scoring import beside_own

        return beside_own(trial, config, refitted=refitted, own=own, split_seed=split_seed, device=device)


def _shape_of(trial: ImageClassifier) -> tuple[int, int]:
    """Channels of the images and number of classes, as far as they are known without reading the data."""
    source = trial.source
    return source.channels or 3, source.classes or source.count_classes() or UNKNOWN_CLASSES


def _train_in_this_process(
    trial: ImageClassifier, assignment: Assignment, session: WorkerSession, strategy: DeviceStrategy | None
) -> None:
    from tuner.train import trainer_of
    from tuner.train.features import progress_told_to

    with progress_told_to(session.tell_features):
        trainer = trainer_of(
            trial,
            assignment.config,
            epochs=assignment.epochs,
            seed=assignment.seed,
            split_seed=assignment.study_seed,
            device="cuda" if assignment.gpus else "cpu",
            strategy=strategy.load()(int(assignment.gpus)) if strategy else None,
            step_path=assignment.step_path,
        )
        try:
            _train(trainer, assignment, session)
        finally:
            trainer.close()
            if trainer.broken is not None:
                LAST.spoil(trainer.broken, "TUNER_SWITCHED_OFF=graph,compile trains without this")


def _train(trainer: Trainer | CrossValidation | LoneHead, assignment: Assignment, session: WorkerSession) -> None:
    from tuner.train.checkpoint import load_first_whole
    from tuner.worker.saving import SavingPolicy

    session.notes += load_first_whole(trainer, session.checkpoints())
    trainer.halve_micro_batch(assignment.halvings)
    policy, said = SavingPolicy(assignment, session.is_leaving), 0
    while trainer.epoch < assignment.last:
        metrics = trainer.run_epoch().metrics()
        session.notes += trainer.notes[said:]
        said = len(trainer.notes)
        choice = policy.choose(trainer.epoch, metrics)
        if choice in ("best", "safety"):
            session.report_epoch(trainer.epoch, metrics, behind=trainer.snapshot(), replaceable=choice == "safety")
        elif choice == "now":
            session.report_epoch(trainer.epoch, metrics, fill=trainer.save)
        else:
            session.report_epoch(trainer.epoch, metrics)
