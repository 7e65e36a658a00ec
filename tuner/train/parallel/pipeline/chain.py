"""A network as a chain of blocks, each taking one tensor from the one before: where it may be split into stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, fx, nn

from tuner.errors import StudyError

ENOUGH = 0.5  # share of the parameters that one block may have for submodules to stay whole


@dataclass(frozen=True)
class Block:
    """The part of a network between two places where a single tensor is passed on.

    Attributes:
        name: of its first submodule with parameters, such as "layer2.0"
        nodes: of the traced graph
        tensors: dotted names of the parameters and buffers that it uses
    """

    name: str
    nodes: tuple[fx.Node, ...]
    tensors: frozenset[str]


@dataclass(frozen=True)
class Chain:
    """The blocks of a network, from the input to the output; their submodules are the network's own."""

    module: nn.Module
    blocks: tuple[Block, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The blocks' names."""
        return tuple(block.name for block in self.blocks)

    def part(self, start: int, stop: int, root: nn.Module | None = None) -> nn.Module:
        """The blocks from `start` up to `stop` as a module of one tensor, made of the network's own submodules.

        If `root`, a copy of the network, is given, its submodules are used.
        """
        nodes = [node for block in self.blocks[start:stop] for node in block.nodes]
        graph, copies = fx.Graph(), {}
        if start:
            copies[self.blocks[start - 1].nodes[-1]] = graph.placeholder("activations")
        for node in nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        if stop < len(self.blocks):
            graph.output(copies[nodes[-1]])
        return fx.GraphModule(root or self.module, graph)

    def tensors(self, start: int, stop: int) -> frozenset[str]:
        """Dotted names of the parameters and buffers of those blocks."""
        return frozenset().union(*(block.tensors for block in self.blocks[start:stop]))


def find_chain(module: nn.Module, name: str) -> Chain:
    """The blocks of a network whose forward pass torch.fx can trace, such as the residual blocks of a ResNet.

    Args:
        module: takes one tensor, returns one
        name: for the message

    Raises:
        StudyError: it can't be traced, differs between training and evaluation, or has only one block.
    """
    problem, found = "one block that can't be taken apart", []
    modes = {layer: layer.training for layer in module.modules()}
    for tracer in (_Containers, _Everything):
        try:
            graphs = [tracer().trace(module.train(mode)) for mode in (True, False)]
        except Exception as error:  # a user's forward may raise anything under tracing
            problem = (str(error).strip().splitlines() or [type(error).__name__])[0]
            continue
        finally:
            for layer, mode in modes.items():
                layer.training = mode
        if str(graphs[0]) != str(graphs[1]):
            problem = "a forward pass that differs between training and evaluation (self.training)"
            continue
        blocks = _blocks(module, graphs[0])
        if len(blocks) > 1:
            found.append(Chain(module, tuple(blocks)))
    if not found:
        raise StudyError(
            f"strategy='pipeline' needs a model that can be split into blocks one after the other, got {name} with "
            f"{problem}; write it as nn.Sequential of blocks, or use strategy='ddp'"
        )
    return min(found, key=lambda chain: max(ENOUGH, _largest_share(chain)))


class _Containers(fx.Tracer):
    """Looks into the network itself and into `nn.Sequential`; other submodules stay whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) is not nn.Sequential


class _Everything(fx.Tracer):
    """Looks into all submodules that have submodules, except torch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        childless = next(m.children(), None) is None
        return childless or super().is_leaf_module(m, module_qualified_name)


def _largest_share(chain: Chain) -> float:
    """The largest share of the parameters in one block."""
    counts = {name: parameter.numel() for name, parameter in chain.module.named_parameters()}
    return max(sum(counts.get(name, 0) for name in block.tensors) for block in chain.blocks) / sum(counts.values())


def _blocks(module: nn.Module, graph: fx.Graph) -> list[Block]:
    """Cut after each node that is the only one used later, if both sides have parameters of their own."""
    nodes = [node for node in graph.nodes if node.op != "output"]
    output = next(node for node in graph.nodes if node.op == "output")
    place = {node: index for index, node in enumerate(nodes)}
    last_use = {node: max((place.get(user, len(nodes)) for user in node.users), default=0) for node in nodes}
    pieces: list[tuple[list[fx.Node], frozenset[str]]] = []
    begun = 0
    for index in range(len(nodes)):
        alive = [node for node in nodes[: index + 1] if last_use[node] > index]
        end = index == len(nodes) - 1
        if alive != [nodes[index]] and not end:
            continue
        own = nodes[begun : index + 1]
        pieces.append(([*own, output] if end else own, _tensors(module, own)))
        begun = index + 1
    return _with_parameters(module, _unshared(pieces))


def _tensors(module: nn.Module, nodes: Sequence[fx.Node]) -> frozenset[str]:
    """Dotted names of the parameters and buffers that nodes use; of several names of one tensor the first."""
    first: dict[int, str] = {}
    canonical = {name: first.setdefault(id(tensor), name) for name, tensor in _all_names(module, "")}
    found: set[str] = set()
    for node in nodes:
        target = str(node.target)
        if node.op == "get_attr":
            found.add(target)
        elif node.op == "call_module":
            found |= {name for name, _ in _all_names(module.get_submodule(target), target)}
    return frozenset(canonical.get(name, name) for name in found)


def _all_names(module: nn.Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(prefix, remove_duplicate=False)
    yield from module.named_buffers(prefix, remove_duplicate=False)


def _unshared(pieces: list[tuple[list[fx.Node], frozenset[str]]]) -> list[tuple[list[fx.Node], frozenset[str]]]:
    """Merge pieces that use the same tensors, with all pieces between them."""
    joined: list[tuple[list[fx.Node], frozenset[str]]] = []
    for nodes, tensors in pieces:
        first = next((index for index, (_, earlier) in enumerate(joined) if earlier & tensors), len(joined))
        together = [*joined[first:], (nodes, tensors)]
        joined[first:] = [([n for ns, _ in together for n in ns], frozenset().union(*(t for _, t in together)))]
    return joined


def _with_parameters(module: nn.Module, pieces: list[tuple[list[fx.Node], frozenset[str]]]) -> list[Block]:
    """Merge each piece without parameters with the one before it, or after it at the beginning."""
    parameters = {name for name, _ in module.named_parameters()}
    blocks: list[tuple[list[fx.Node], frozenset[str]]] = []
    for nodes, tensors in pieces:
        if blocks and not (tensors & parameters and blocks[-1][1] & parameters):
            blocks[-1] = ([*blocks[-1][0], *nodes], blocks[-1][1] | tensors)
        else:
            blocks.append((nodes, tensors))
    return [Block(_name(module, nodes, index), tuple(nodes), tensors) for index, (nodes, tensors) in enumerate(blocks)]


def _name(module: nn.Module, nodes: Sequence[fx.Node], index: int) -> str:
    """The name of the first submodule with parameters; transformers have blocks without any."""
    names = [str(node.target) for node in nodes if node.op == "call_module"]
    weighted = (name for name in names if next(module.get_submodule(name).parameters(), None) is not None)
    return next(weighted, f"block {index}")
