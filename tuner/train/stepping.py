"""The steps of one trial, taken the fastest way there is: eagerly, through a compiled network, or as one CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tuner.errors import TrialError
from tuner.machine.techniques import allowed
from tuner.train.capture.choice import (
    AS_ONE_GRAPH,
    COMPILED,
    EAGER,
    GRAPH,
    WITH_COMPILER,
    PathChoice,
    Way,
    reason_of,
)
from tuner.train.capture.recording import CudaGraphRecorder, Recorder
from tuner.train.capture.remembered import RememberedSeconds
from tuner.train.capture.static_step import StaticStep
from tuner.train.compiling import CompiledNetwork, Forward
from tuner.train.feed import Feed
from tuner.train.memory.errors import is_out_of_memory
from tuner.train.optimisation import AveragedWeights
from tuner.train.randomness import reseed
from tuner.train.step import TrainingStep

SIDE_STEPS = 3  # steps that warm up before the recording

Remembered = Callable[[bool], RememberedSeconds | None]


class Stepping:
    """Takes a trial's steps.

    The way is chosen separately for training the whole network and for training only its head on features.

    Attributes:
        loss: [] float64 on the device, the sum of the losses of an epoch's images so far
        path: how the last step was taken
        notes: the results about the ways, in sentences
        broken: why this process should run no other trial; None if it may
    """

    def __init__(
        self,
        training_step: TrainingStep,
        optimizer: Optimizer,
        average: AveragedWeights | None,
        module: nn.Module,
        device: torch.device,
        *,
        batch_size: int,
        alone: bool = True,
        path: str | None = None,
        remembered: Remembered = lambda whole: None,
        recorder: Recorder | None = None,
        compiled: Callable[[nn.Module], Forward] | None = None,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            training_step: takes a step in parts if memory runs out
            optimizer: over the parameters that learn
            average: of the weights
            module: the whole network
            device: where it is
            batch_size: images of a step, except for the last one of an epoch
            alone: whether only this process and device train; with several every step is taken eagerly
            path: how to take steps without measuring, if that is possible; None to measure
            remembered: stored times of steps through the whole network (True) or through its head (False)
            recorder: for the whole step; None for CUDA graphs on a GPU, and no recorder elsewhere
            compiled: compiles the network; None for `torch.compile` on a GPU, and nothing elsewhere
        """
        self.training_step, self._optimizer, self._average = training_step, optimizer, average
        self._device, self._batch_size = device, batch_size
        on_gpu = device.type == "cuda" and alone
        self._recorder = recorder or (CudaGraphRecorder(device) if on_gpu and allowed("graph") else None)
        self._network = CompiledNetwork(module, device, batch_size=batch_size, compiled=compiled)
        ways = [AS_ONE_GRAPH] * (self._recorder is not None)
        compiles = compiled is not None or (on_gpu and allowed("compile"))
        self._choices = {
            True: self._choice([*ways, *[WITH_COMPILER] * compiles], path, remembered(True)),
            False: self._choice(ways, path, remembered(False)),
        }
        self._static: StaticStep | None = None
        self._static_of: Feed | None = None
        self._learning, self._warm = 0, 0
        self._counts: dict[int, Tensor] = {}
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.path = EAGER
        self.broken: str | None = None

    def _choice(self, ways: list[Way], path: str | None, remembered: RememberedSeconds | None) -> PathChoice:
        choice = PathChoice(ways, partial(_now, self._device), remembered)
        if path is not None:
            choice.settle(path)
        return choice

    @property
    def notes(self) -> list[str]:
        """The results about the ways, in sentences."""
        return [note for choice in self._choices.values() for note in choice.notes]

    def take(
        self,
        feed: Feed,
        forward: Forward,
        images: Tensor,
        labels: Tensor,
        seed: int,
        count: int,
        *,
        ahead: int,
        learning: int,
    ) -> None:
        """One step on images and labels as they are stored; all randomness comes from `seed`.

        Args:
            feed: prepares images and labels
            forward: the callable for them, unless something else was found to be faster
            images: [B, ...] this process's images of the step, on the device
            labels: [B] int64, on the device
            seed: of the step
            count: images of the step in all processes
            ahead: steps of the trial that are still to be taken
            learning: changes whenever other parameters learn
        """
        choice, before = self._choices[feed.whole], self.path
        self.path = choice.begin_step(ahead)
        if self.path != before:
            self._release(before)
        self.training_step.forward = self._network if self.path == COMPILED else forward
        eagerly = partial(self._in_parts, feed, forward, images, labels, seed, count)
        if self.path != GRAPH or not self._fits_recording(len(images)):
            eagerly()
        elif not self._is_warm(feed, learning) and self._recorder is not None:
            with self._recorder.warming_up():
                eagerly()
        elif self._recorded(choice, feed, images, labels):
            self._replay(images, labels, seed)
        else:
            eagerly()

    def forget_recording(self) -> None:
        """Record again before the next step: tensors were replaced."""
        if self._recorder is not None:
            self._recorder.release()
        self._static = self._static_of = None
        self._warm = 0

    def _release(self, path: str) -> None:
        """Release the resources of a way of taking steps that isn't used any more."""
        if path == GRAPH:
            self.forget_recording()
        elif path == COMPILED:
            self._network.release()

    def release(self) -> None:
        """Release what would outlive the trial in its process: recorded and compiled code, and compiler processes.

        Further steps are possible, eagerly.
        """
        self._settle_eagerly()
        self.forget_recording()
        self._network.release()

    def _settle_eagerly(self) -> None:
        for choice in self._choices.values():
            choice.settle(EAGER)
        self.path = EAGER

    def _note_failure(self, way: Way, reason: str) -> None:
        """Note that work may have failed while it was recorded: torch's memory is then in an unknown state."""
        self.broken = f"taking a trial's steps {way.words} failed ({reason})"

    # Steps that aren't recorded

    def _in_parts(self, feed: Feed, forward: Forward, images: Tensor, labels: Tensor, seed: int, count: int) -> None:
        """A step, eager or through the compiled network, in as many parts as memory requires."""
        choice = self._choices[feed.whole]
        take = partial(
            self.training_step,
            self._optimizer,
            lambda: feed.prepare(images, labels),
            lambda: reseed(seed, self._device),
            count,
            lambda reason: self._relieve(choice, forward, reason),
        )
        try:
            loss = take()
        except Exception as error:  # the backward pass of a compiled network may fail
            if self.training_step.forward is not self._network or isinstance(error, TrialError):
                raise
            self._give_up_compiled(choice, forward, error)
            self.training_step.undo(self._optimizer)
            loss = take()
        if self._network.failure is not None and choice.path == COMPILED:
            self._give_up_compiled(choice, forward, self._network.failure)
        self.loss.add_(loss * self._counted(count))
        if self._average is not None:
            self._average.update()

    def _counted(self, count: int) -> Tensor:
        """The number of images, as a type whose products are float64."""
        if count not in self._counts:
            self._counts[count] = torch.tensor(float(count), dtype=torch.float64, device=self._device)
        return self._counts[count]

    def _give_up_compiled(self, choice: PathChoice, forward: Forward, error: Exception) -> None:
        choice.give_up(COMPILED, reason_of(error))
        self._note_failure(WITH_COMPILER, reason_of(error))
        self._network.release()
        self.training_step.forward = forward

    def _relieve(self, choice: PathChoice, forward: Forward, reason: str) -> bool:
        """Release, for lack of memory, what steps can do without; returns whether there was any."""
        path, self.path = self.path, EAGER
        if path == EAGER:
            return False
        choice.give_up(path, reason, for_others=False)
        if path == COMPILED:
            self._note_failure(WITH_COMPILER, reason)
        self.forget_recording()
        self._network.release()
        self.training_step.forward = forward
        return True

    # Recorded steps

    def _fits_recording(self, images: int) -> bool:
        return images == self._batch_size <= self.training_step.micro_batch_size

    def _is_warm(self, feed: Feed, learning: int) -> bool:
        """Whether enough steps of the next kind were taken in the way that will be recorded."""
        if self._static_of is not feed or self._learning != learning:
            self.forget_recording()
            self._static_of, self._learning = feed, learning
        self._warm += 1
        return self._warm > SIDE_STEPS

    def _recorded(self, choice: PathChoice, feed: Feed, images: Tensor, labels: Tensor) -> bool:
        """Whether the step is recorded; records it now if it wasn't, unless that fails."""
        if self._static is not None or self._recorder is None:
            return self._static is not None
        static = StaticStep(
            self.training_step, self._optimizer, self._average, feed, self.loss, images=images, labels=labels
        )
        try:
            self._recorder.record(static.work)
        except Exception as error:
            self._recorder.release()
            choice.give_up(GRAPH, reason_of(error), for_others=not is_out_of_memory(error))
            self._note_failure(AS_ONE_GRAPH, reason_of(error))
            self._settle_eagerly()
        else:
            self._static = static
            return True
        self.training_step.forget(self._optimizer)
        return False

    def _replay(self, images: Tensor, labels: Tensor, seed: int) -> None:
        if self._static is None or self._recorder is None:
            return
        reseed(seed, self._device)
        self._static.fill(images, labels)
        self._recorder.replay(self._static.work)


def _now(device: torch.device) -> float:
    """Seconds, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
