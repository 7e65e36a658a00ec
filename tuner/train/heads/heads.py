"""The heads of many trials on one cut of the data: their epochs, and each one's checkpoints."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from tuner.errors import TrialDiverged, TrialError
from tuner.train.assembly import Parts, assemble, check_loss
from tuner.train.checkpoint import Checkpoint
from tuner.train.data.device_images import forget_images
from tuner.train.data.splits import HeldSplit
from tuner.train.epoch_result import EpochResult
from tuner.train.heads.epoch import Epoch, diverged
from tuner.train.heads.features import SharedFeatures
from tuner.train.heads.head import Head, flat, parts_of
from tuner.train.heads.solver import MEMORY, Solver
from tuner.train.heads.updates import kind_of
from tuner.train.memory.errors import memory_errors
from tuner.train.memory.watch import Usage
from tuner.train.models.network import draw_head
from tuner.train.optimisation import AveragedWeights, Schedule, build_optimizer, parameter_groups
from tuner.train.optimisation.optimizer import load_optimizer, optimizer_tensors
from tuner.train.randomness import INITIAL_WEIGHTS, derive_seed, seeded
from tuner.train.state import put_back, taken
from tuner.train.step import WHOLE_BATCH
from tuner.train.tasks import Metrics
from tuner.train.tasks.one_label import CrossEntropy
from tuner.train.trainer import STEPS_BETWEEN_CHECKS
from tuner.trial import ImageClassifier
from tuner.trial.only_the_head import LBFGS
from tuner.trial.tasks import ONE_LABEL

Each = Callable[..., Iterable[Any]]  # `map`, or what does the same by several threads
MOST_BYTES = 2**31  # of all heads
COPIES = 5  # of a head's weights: gradient, optimizer's state, average
BYTES_AT_ONCE = {"cpu": 2**22, "cuda": 2**28}  # of gathered features: on the CPU those that its caches hold


class NotTogether(Exception):  # noqa: N818 -- no error: they can be trained
    """These trials, which seemed to fit together, have to be trained one by one; says why."""


@dataclass(frozen=True)
class HeadTrial:
    """A trial's hyperparameters, and its seed."""

    config: dict[str, Any]
    seed: int


@dataclass
class Trained:
    """One head's part of an epoch: its mean loss, its share of the seconds, and why it must not go on, if so."""

    loss: float
    seconds: float
    error: TrialError | None


class Heads:
    """A head for each of some trials, on the features of one backbone for one cut of the data.

    Attributes:
        total_epochs: length of each trial
    """

    def __init__(
        self,
        trial: ImageClassifier,
        members: Sequence[HeadTrial],
        *,
        epochs: int,
        split_seed: int,
        device: str,
        beside: Heads | None = None,
    ) -> None:
        """Load data, features and heads; arguments and exceptions are those of `HeadBatch`.

        `beside` are heads of the same trials on another cut, whose network is used: before its head nothing is random.
        """
        first = members[0].config
        every = [trial.hyperparameters(member.config) for member in members]
        self.total_epochs = [min(epochs, chosen["epochs"] or epochs) for chosen in every]
        trial = trial.of(first)
        self._parts: Parts = assemble(
            *(trial, every[0]),
            image_size=trial.asked_size(first),
            epochs=max(self.total_epochs),
            seed=members[0].seed,
            split_seed=split_seed,
            device=device,
            strategy=None,
            step_path="eager",
            network=None if beside is None else beside._parts.network,
        )
        self._layer = _check_head(self._parts, len(members))
        self._train, self._validation = _features(self._parts)
        begun = flat(*self._layer.parameters())
        self._blank = copy.deepcopy(self._layer).cpu()
        self._average: AveragedWeights | None = None
        self._heads = [
            self._begin(chosen, member.seed, total, begun)
            for chosen, member, total in zip(every, members, self.total_epochs, strict=True)
        ]

    @property
    def epoch(self) -> list[int]:
        """Finished epochs of each member."""
        return [head.epoch for head in self._heads]

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Trainer.notes`."""
        return tuple(self._parts.notes)

    def run_epoch(self, members: Sequence[int]) -> list[EpochResult | TrialError]:
        """The next epoch of each of these members, in their order; a TrialDiverged instead of what isn't finite."""
        self._parts.watch.start_epoch()
        with ExitStack() as stack:
            stack.enter_context(memory_errors("an epoch of several heads", "train fewer at once"))
            stack.enter_context(self._parts.precision.kernels())
            stack.enter_context(seeded(0, self._parts.device))  # for dropout, which reseeds
            threads, at_once = 1, cast(Each, map)
            if self._parts.device.type == "cpu":
                threads = stack.enter_context(one_thread_each())
                at_once = stack.enter_context(ThreadPoolExecutor(threads)).map
            trained = self._train_all(members, threads, at_once)
            start, well = time.perf_counter(), [member for member in members if trained[member].error is None]
            if self._parts.trial.chosen_metrics:  # torchmetrics is not made for threads
                at_once = map
            validated = self._validate_all(well, at_once)
            validating = (time.perf_counter() - start) / max(1, len(well))
        usage = self._parts.watch.end_epoch()  # that it grows is no leak: snapshots of several heads are kept
        return [
            self._result(self._heads[member], trained[member], validated.get(member), validating, usage)
            for member in members
        ]

    def snapshot(self, member: int) -> Checkpoint:
        """What `Trainer.snapshot` returns after the member's epochs."""
        head = self._heads[member]
        return taken(self._as_trainer(head), seed=head.seed, epoch=head.epoch, step=0)

    def restore(self, member: int, checkpoint: Checkpoint, source: str) -> None:
        """Go on from a checkpoint of whole epochs, this class's or `Trainer`'s.

        Raises:
            TrialError: it doesn't fit; the member is unchanged.
        """
        head = self._heads[member]
        parts = self._as_trainer(head)
        progress = put_back(parts, checkpoint, source)
        if progress.step:
            raise TrialError(f"a checkpoint must be of whole epochs, got {source} within one; use another")
        head.take_state(optimizer_tensors(parts.optimizer), source)
        head.groups = copy.deepcopy(parts.optimizer.state_dict()["param_groups"])
        head.live.copy_(flat(*self._layer.parameters()))
        if head.average is not None and parts.average is not None:
            averaged = parts.average.module.get_submodule(parts.network.head)
            head.average.copy_(flat(*averaged.parameters()))
            head.updates = progress.average_updates
        head.epoch = progress.epoch

    def release(self) -> None:
        """See `Trainer.release`."""
        self._parts.stepping.release()
        forget_images(self._parts.device)

    # Inside

    def _begin(self, chosen: dict[str, Any], seed: int, epochs: int, begun: Tensor) -> Head:
        """A member's head before its first epoch."""
        splits, network = self._parts.splits, self._parts.network
        if network.head in network.new:
            draw_head(self._blank, derive_seed(seed, INITIAL_WEIGHTS))
            begun = flat(*self._blank.parameters()).to(self._parts.device)
        objective = splits.targets.objective(chosen, splits.train.labels, weighted=splits.train.weights is not None)
        assert isinstance(objective, CrossEntropy)
        return Head(
            chosen=chosen,
            seed=seed,
            schedule=Schedule.of(chosen, epochs),
            objective=objective,
            live=begun.clone(),
            average=begun.clone() if chosen["ema_decay"] else None,
            groups=self._optimizer(chosen).state_dict()["param_groups"],
        )

    def _optimizer(self, chosen: dict[str, Any]) -> torch.optim.Optimizer:
        learning = [(parameter, 1.0) for parameter in self._layer.parameters()]
        return build_optimizer(parameter_groups(learning, chosen["weight_decay"]), chosen)

    @torch.no_grad()
    def _as_trainer(self, head: Head) -> Parts:
        """The parts as a trainer of this member has them; the network is used for all of them, one after the other."""
        optimizer = self._optimizer(head.chosen)
        load_optimizer(optimizer, head.optimizer_tensors(self._layer), copy.deepcopy(head.groups))
        _fill(self._layer, parts_of(head.live, self._layer))
        average = None
        if head.average is not None:
            average = self._average = self._average or AveragedWeights(self._parts.module, 0.0)
            _fill(average.module.get_submodule(self._parts.network.head), parts_of(head.average, self._layer))
            average.updates = head.updates
        step = self._parts.training_step
        step.micro_batch_size, step.retries = head.chosen["batch_size"], 0
        step.raising.failures = step.raising.steps = 0
        self._parts.loss.zero_()
        return replace(self._parts, chosen=head.chosen, optimizer=optimizer, average=average)

    def _groups(self, members: Sequence[int], threads: int) -> Iterator[list[int]]:
        """Members that can take steps together, as many as fit into the caches, but a group for each thread."""
        alike: dict[tuple[int, str], list[int]] = {}
        for member in members:
            head = self._heads[member]
            alike.setdefault((head.chosen["batch_size"], kind_of(head)), []).append(member)
        for (size, kind), group in alike.items():
            classes, images = self._layer.out_features, min(size, len(self._train))
            rows = 2 * MEMORY * classes if kind == LBFGS else images + 4 * classes
            yield from self._divided(group, 4 * self._train.width * rows, least=threads)

    def _divided(self, members: Sequence[int], each_bytes: int, least: int = 1) -> Iterator[list[int]]:
        """Members in lists of nearly equal lengths, for each of which there is room; at least so many if they can."""
        room = max(1, BYTES_AT_ONCE.get(self._parts.device.type, BYTES_AT_ONCE["cpu"]) // each_bytes)
        count = max(-(-len(members) // room), least)
        for part in range(min(count, len(members))):
            yield list(members[part::count])

    def _train_all(self, members: Sequence[int], threads: int, at_once: Each) -> dict[int, Trained]:
        start, groups = time.perf_counter(), list(self._groups(members, threads))
        trained: dict[int, Trained] = {}
        for group, results in zip(groups, at_once(self._train_group, groups), strict=True):
            trained |= dict(zip(group, results, strict=True))
        share = (time.perf_counter() - start) / (sum(one.seconds for one in trained.values()) or 1.0)
        for one in trained.values():  # groups that are trained at the same time share the seconds
            one.seconds *= share
        return trained

    @torch.no_grad()  # which holds for one thread
    def _train_group(self, members: Sequence[int]) -> list[Trained]:
        start, heads = time.perf_counter(), [self._heads[member] for member in members]
        if kind_of(heads[0]) == LBFGS:
            means = Solver(heads, self._train, self._layer).run()
            errors = [diverged(head, mean, None) for head, mean in zip(heads, means, strict=True)]
        else:
            epoch = Epoch(heads, self._train, self._layer, least=self._parts.strategy.least_batch)
            losses = epoch.run(STEPS_BETWEEN_CHECKS if self._parts.device.type == "cpu" else None)
            means = [loss / len(self._train) for loss in losses]
            epoch.check(means, -1)
            errors = [epoch.diverged.get(place) for place in range(len(heads))]
        seconds = (time.perf_counter() - start) / len(heads)
        return [Trained(mean, seconds, error) for mean, error in zip(means, errors, strict=True)]

    def _validate_all(self, members: Sequence[int], at_once: Each) -> dict[int, Metrics]:
        """Each member's metrics on the validation split, if it has images."""
        if not len(self._validation):
            return {}
        groups = list(self._divided(members, 4 * self._layer.out_features * len(self._validation)))
        every = zip(groups, at_once(self._validate_group, groups), strict=True)
        return {member: one for group, metrics in every for member, one in zip(group, metrics, strict=True)}

    @torch.no_grad()
    def _validate_group(self, members: Sequence[int]) -> list[Metrics]:
        kernels, biases = parts_of(torch.stack([self._heads[member].best for member in members]), self._layer)
        features = self._validation.all().expand(len(members), -1, -1)
        return self._metrics(torch.baddbmm(biases[:, None], features, kernels.transpose(1, 2)))

    def _metrics(self, logits: Tensor) -> list[Metrics]:
        """The metrics of logits [M, N, C] of M heads."""
        targets, labels = self._parts.splits.targets, self._validation.labels
        if chosen := self._parts.trial.chosen_metrics:
            return [targets.metrics(one, labels, chosen) for one in logits]
        own = targets.own_metrics(logits, labels)
        rows = torch.stack([values.double() for values in own.values()], 1).tolist()
        return [Metrics(dict(zip(own, row, strict=True))) for row in rows]

    def _result(
        self, head: Head, trained: Trained, validated: Metrics | None, validating: float, usage: Usage
    ) -> EpochResult | TrialError:
        if trained.error is not None:
            return trained.error
        if validated is not None:
            try:
                lr = None if kind_of(head) == LBFGS else head.learning_rate
                check_loss(validated.loss, "validation", epoch=head.epoch + 1, lr=lr)
            except TrialDiverged as error:
                return error
        head.epoch += 1
        return EpochResult(
            epoch=head.epoch,
            train_loss=trained.loss,
            validation=validated,
            learning_rate=head.learning_rate,
            seconds=trained.seconds + validating,
            images_per_second=len(self._train) / trained.seconds,
            micro_batch_size=head.chosen["batch_size"],
            oom_retries=0,
            step_path="eager",
            threads=torch.get_num_threads(),
            batch_norm=WHOLE_BATCH,
            **asdict(usage),
        )


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Within it torch uses one thread for each operation, so that several can run at once; gives how many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def _check_head(parts: Parts, members: int) -> nn.Linear:
    """The layer that learns. Raises NotTogether if it isn't linear, others learn, or so many take too much memory."""
    layer, name = parts.network.head_layer, parts.network.head
    learning = {name for name, parameter in parts.module.named_parameters() if parameter.requires_grad}
    if not isinstance(layer, nn.Linear) or learning != {f"{name}.weight", f"{name}.bias"}:
        raise NotTogether(f"only a linear head with biases can learn, got {', '.join(sorted(learning))}")
    if parts.splits.task is not ONE_LABEL:
        raise NotTogether(f"images must have one label each, got {parts.splits.task.described}")
    if (size := COPIES * layer.weight.nbytes * members) > MOST_BYTES:
        raise NotTogether(f"all heads together must take at most {MOST_BYTES / 1e9:.1f} GB, got {size / 1e9:.1f}")
    return layer


def _features(parts: Parts) -> tuple[SharedFeatures, SharedFeatures]:
    """Those for training and for validation. Raises NotTogether if they can't be stored."""
    feed = parts.feeds.of_epoch(head_alone=parts.fine_tuning.only_the_head_learns)
    if feed.whole or not isinstance(feed.train, HeldSplit) or not isinstance(feed.validation, HeldSplit):
        raise NotTogether("the backbone's features must be the same in every epoch")
    views = [view for view in feed.views if isinstance(view, HeldSplit)]
    return SharedFeatures(feed.train, parts.device, views), SharedFeatures(feed.validation, parts.device)


def _fill(layer: nn.Module, values: Iterable[Tensor]) -> None:
    for parameter, part in zip(layer.parameters(), values, strict=True):
        parameter.copy_(part)
