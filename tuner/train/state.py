"""Everything that a trial's next step depends on: saved, and restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from tuner.errors import TrialError, WeightsError
from tuner.train.assembly import Parts
from tuner.train.checkpoint import Checkpoint, Progress
from tuner.train.models import Network, fitting_state, load_state
from tuner.train.optimisation.optimizer import load_optimizer, optimizer_tensors

OPTIMIZER, LIVE = "optimizer.", "live."  # prefixes of tensors' names in a checkpoint's training.safetensors
BACKBONE = "backbone"  # the scalar with the hash of the layers that a checkpoint leaves out


def taken(parts: Parts, *, seed: int, epoch: int, step: int) -> Checkpoint:
    """The state after `epoch` finished epochs and `step` steps of the next; of several processes the first has it."""
    left_out = _left_out(parts)
    training = {f"{OPTIMIZER}{name}": tensor for name, tensor in optimizer_tensors(parts.optimizer).items()}
    model, live = parts.best_module.state_dict(), parts.module.state_dict()
    if left_out:
        model, live = ({name: each[name] for name in each.keys() - parts.network.backbone} for each in (model, live))
    if parts.average is not None:
        training |= {f"{LIVE}{name}": tensor for name, tensor in live.items()}
    scalars = {
        "epoch": epoch,
        "step": step,
        "seed": seed,
        "loss": float(parts.strategy.group.sum(parts.loss.clone())),
        "opened": parts.fine_tuning.opened,
        "param_groups": parts.optimizer.state_dict()["param_groups"],
        "scaler": parts.precision.state(),
        "average_updates": parts.average.updates if parts.average else 0,
        "micro_batch_size": parts.training_step.micro_batch_size,
        "oom_retries": parts.training_step.retries,
        "failed_raises": parts.training_step.raising.failures,
        "steps_at_size": parts.training_step.raising.steps,
    } | ({BACKBONE: left_out} if left_out else {})
    gathered = parts.strategy.gathered
    return Checkpoint(gathered(model), gathered(training), scalars)


def _left_out(parts: Parts) -> str | None:
    """The hash of the layers that a checkpoint can leave out; None if it needs all of them."""
    never = parts.chosen["finetune"] == "head" and parts.fine_tuning.only_the_head_learns
    again = parts.trial.starts_from_weights and parts.strategy.keeps_features
    return parts.network.backbone_key if never and again else None


def completed(tensors: Mapping[str, Tensor], scalars: Mapping[str, Any], network: Network) -> dict[str, Tensor]:
    """A checkpoint's tensors of a model, with those before the head that it left out, which `network` has.

    Raises ValueError if these are no longer what they were.
    """
    left_out = scalars.get(BACKBONE)
    if left_out is None:
        return dict(tensors)
    if left_out != network.backbone_key:
        raise ValueError("the layers before the head are those of other weights; put the ones back that it began with")
    return {**network.backbone, **tensors}


def put_back(parts: Parts, checkpoint: Checkpoint, source: str) -> Progress:
    """Let the parts go on from a checkpoint; returns its progress.

    Raises:
        TrialError: it doesn't fit; weights and optimizer are unchanged.
    """
    try:
        return _put_back(parts, checkpoint, source)
    except (WeightsError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrialError(f"a checkpoint must fit the trial, got {source}: {error}") from error


def _put_back(parts: Parts, checkpoint: Checkpoint, source: str) -> Progress:
    """Steps that may fail come first."""
    progress, name = Progress.of(checkpoint.scalars), parts.trial.model_name
    whole = completed(checkpoint.model, checkpoint.scalars, parts.network)
    checkpoint = replace(checkpoint, model=whole)
    if progress.opened > parts.fine_tuning.due(progress.epoch):
        raise ValueError(f"{progress.opened} stages learned after {progress.epoch} epochs")
    live = {**whole, **_named(checkpoint.training, LIVE)}
    fitting_state(parts.module, live, source=source, name=name)
    if parts.average is not None:
        fitting_state(parts.average.module, checkpoint.model, source=source, name=name)
    parts.stepping.forget_recording()
    parts.open_stages(progress.opened)
    load_optimizer(parts.optimizer, _named(checkpoint.training, OPTIMIZER), progress.param_groups)
    parts.precision.load(progress.scaler)
    load_state(parts.module, live, source=source, name=name)
    if parts.average is not None:
        load_state(parts.average.module, checkpoint.model, source=source, name=name)
        parts.average.updates = progress.average_updates
    step = parts.training_step
    step.retries = progress.oom_retries
    if step.retries:  # otherwise it only shows how the saving strategy divides a batch
        step.micro_batch_size = min(step.micro_batch_size, progress.micro_batch_size)
    step.raising.failures, step.raising.steps = progress.failed_raises, progress.steps_at_size
    parts.loss.fill_(progress.loss if parts.strategy.group.rank == 0 else 0.0)
    return progress


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have this prefix, by the rest of the name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
