"""The stages of a network from its input to its output, as gradual unfreezing and layer-wise rates need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from torch import nn

NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)
FEWEST_STAGES = 4  # before the head; containers such as `features` are opened until there are this many


@dataclass(frozen=True)
class Stage:
    """Some layers that learn together.

    Attributes:
        name: the first of its submodules' names
        modules: dotted names of its submodules
        parameters: dotted names; each parameter of the network is in exactly one stage
    """

    name: str
    modules: tuple[str, ...]
    parameters: tuple[str, ...]


def find_stages(module: nn.Module, head: str, layers: Sequence[Sequence[str]] = ()) -> tuple[Stage, ...]:
    """A network's stages, from the input on; the last one is only the head.

    Without `layers` the root's children are stages, but containers are opened where the head is inside, and the largest
    ones until there are four stages before the head. A stage that only has norms belongs to the one before it.

    Args:
        module: any network whose submodules are registered from the input to the output
        head: dotted name of its last layer
        layers: names of parameters that learn together, from the input on, if the network's library says so
    """
    if layers:
        return _of_the_library(module, head, layers)
    names = [name for name in _opened(module, head) if name != head]
    groups = _with_norms(module, names)
    taken = {name for name, _ in module.get_submodule(head).named_parameters(prefix=head)}
    stages: list[Stage] = []
    for group in groups:
        own = [name for name in _parameters_in(module, group) if name not in taken]
        taken |= set(own)
        if own:
            stages.append(Stage(group[0], tuple(group), tuple(own)))
    rest = [name for name, _ in module.named_parameters() if name not in taken]  # a transformer's position embedding
    own_of_head = [name for name, _ in module.named_parameters() if _inside(name, head)]
    if rest and stages:
        first = stages[0]
        stages[0] = Stage(first.name, first.modules, (*rest, *first.parameters))
    return (*stages, Stage(head, (head,), (*(rest if not stages else ()), *own_of_head)))


def _of_the_library(module: nn.Module, head: str, layers: Sequence[Sequence[str]]) -> tuple[Stage, ...]:
    """A stage for each layer, and one for the head, which the library may have joined with others."""
    before = [[name for name in layer if not _inside(name, head)] for layer in layers]
    parameters = {
        name: {full for full, _ in submodule.named_parameters(prefix=name)}
        for name, submodule in module.named_modules()
    }
    stages = [Stage(layer[0], tuple(_modules_of(parameters, set(layer))), tuple(layer)) for layer in before if layer]
    own_of_head = [name for name, _ in module.named_parameters() if _inside(name, head)]
    return (*stages, Stage(head, (head,), tuple(own_of_head)))


def _modules_of(each: Mapping[str, Set[str]], parameters: Set[str]) -> Iterator[str]:
    """Names of the largest submodules, of `each` with its parameters, that have none but these parameters."""
    found: list[str] = []
    for name, own in each.items():
        if own and own <= parameters and not any(_inside(name, larger) for larger in found):
            found.append(name)
            yield name


def _opened(module: nn.Module, head: str) -> list[str]:
    """Names of the submodules that become stages, the head among them."""
    names = _children(module, "")
    while containers := [name for name in names if name != head and _inside(head, name)]:
        names = _replaced(module, names, containers[0])
    while len(_with_norms(module, [name for name in names if name != head])) < FEWEST_STAGES:
        containers = [name for name in names if name != head and len(_children(module, name)) > 1]
        if not containers:
            break
        names = _replaced(module, names, max(containers, key=lambda name: _layers(module.get_submodule(name))))
    return names


def _replaced(module: nn.Module, names: list[str], container: str) -> list[str]:
    index = names.index(container)
    return [*names[:index], *_children(module, container), *names[index + 1 :]]


def _children(module: nn.Module, name: str) -> list[str]:
    """Dotted names of the children that have parameters; an only child is replaced by its own children."""
    prefix = f"{name}." if name else ""
    children = [
        f"{prefix}{child}"
        for child, submodule in module.get_submodule(name).named_children()
        if next(submodule.parameters(), None) is not None
    ]
    if len(children) == 1 and (inner := _children(module, children[0])):
        return inner
    return children


def _with_norms(module: nn.Module, names: list[str]) -> list[list[str]]:
    """Names in groups: norms with the module before them, or after them if they come first."""
    groups: list[list[str]] = []
    for name in names:
        if groups and (_only_norms(module, [name]) or _only_norms(module, groups[-1])):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _only_norms(module: nn.Module, names: Iterable[str]) -> bool:
    layers = [layer for name in names for layer in module.get_submodule(name).modules()]
    return all(isinstance(layer, NORMS) for layer in layers if next(layer.parameters(recurse=False), None) is not None)


def _parameters_in(module: nn.Module, names: list[str]) -> list[str]:
    return [name for name, _ in module.named_parameters() if any(_inside(name, stage) for stage in names)]


def _layers(module: nn.Module) -> int:
    return sum(next(layer.parameters(recurse=False), None) is not None for layer in module.modules())


def _inside(name: str, container: str) -> bool:
    return name == container or name.startswith(f"{container}.")
