"""Classification models by name, fitted to a data set."""

from tuner.train.models.by_name import builder
from tuner.train.models.ensemble import Ensemble, Member, answering_network, empty_model, networks_of, single_networks
from tuner.train.models.network import (
    Network,
    build_network,
    depth_rates,
    empty_network,
    fitting_state,
    head_is_last,
    head_of,
    load_state,
    pretrained_network,
    random_network,
    read_state,
)

__all__ = [
    "Ensemble",
    "Member",
    "Network",
    "answering_network",
    "build_network",
    "builder",
    "depth_rates",
    "empty_model",
    "empty_network",
    "fitting_state",
    "head_is_last",
    "head_of",
    "load_state",
    "networks_of",
    "pretrained_network",
    "random_network",
    "read_state",
    "single_networks",
]
