"""A network split into stages on several devices, micro-batches streamed through them."""

from tuner.train.parallel.pipeline.chain import Block, Chain, find_chain
from tuner.train.parallel.pipeline.pipeline import Pipeline, split_at

__all__ = ["Block", "Chain", "Pipeline", "find_chain", "split_at"]
