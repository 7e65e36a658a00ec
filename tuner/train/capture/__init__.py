"""Ways to take a step: eagerly, through a compiled network, or replayed from one CUDA graph of the whole step."""

from tuner.train.capture.choice import COMPILED, EAGER, GRAPH, PathChoice, Way
from tuner.train.capture.recording import CudaGraphRecorder, Recorder
from tuner.train.capture.remembered import RememberedSeconds, remembered_steps
from tuner.train.capture.static_step import StaticStep

__all__ = [
    "COMPILED",
    "EAGER",
    "GRAPH",
    "CudaGraphRecorder",
    "PathChoice",
    "Recorder",
    "RememberedSeconds",
    "StaticStep",
    "Way",
    "remembered_steps",
]
