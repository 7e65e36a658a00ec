"""Memory of a trial: running out of it, and watching it."""

from tuner.train.memory.errors import is_out_of_memory, memory_errors

__all__ = ["is_out_of_memory", "memory_errors"]
