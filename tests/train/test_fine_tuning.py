import pytest
import torch

from tuner.train.fine_tuning import FineTuning, probe_epochs
from tuner.train.models import Network, random_network
from tuner.trial import ImageClassifier

EPOCHS = 10


def tuned(channels: int = 3, **chosen: object) -> tuple[Network, FineTuning]:
    network = random_network("resnet18", channels=channels, classes=3, seed=0)
    return network, FineTuning(network, ImageClassifier().hyperparameters(chosen), EPOCHS)


def learning(network: Network) -> set[str]:
    """Top-level layers with parameters that learn."""
    return {name.split(".")[0] for name, value in network.module.named_parameters() if value.requires_grad}


def training(network: Network) -> set[str]:
    return {name for name, layer in network.module.named_children() if layer.training}


def names(network: Network, opened: list[tuple[torch.nn.Parameter, float]]) -> dict[str, float]:
    known = {id(value): name for name, value in network.module.named_parameters()}
    return {known[id(parameter)]: share for parameter, share in opened}


LAYERS = {"conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc"}


def test_all_layers_learn_at_once_and_each_parameter_is_opened_once() -> None:
    network, tuning = tuned()
    opened = tuning.open(tuning.due(0))
    assert learning(network) == LAYERS
    assert len(opened) == len(names(network, opened)) == len(list(network.module.parameters()))
    assert not tuning.only_the_head_learns


def test_a_frozen_backbone_leaves_the_head_in_training_mode_alone() -> None:
    network, tuning = tuned(finetune="head")
    opened = tuning.open(tuning.due(0))
    tuning.set_mode()
    assert names(network, opened) == {"fc.weight": 1.0, "fc.bias": 1.0}
    assert (learning(network), training(network)) == ({"fc"}, {"fc"})
    assert tuning.only_the_head_learns
    assert tuning.due(100) == 1


def test_a_stem_that_starts_afresh_learns_with_the_head() -> None:
    network, tuning = tuned(channels=1, finetune="head", backbone_lr_scale=0.1)
    opened = tuning.open(tuning.due(0))
    tuning.set_mode()
    assert names(network, opened) == {"fc.weight": 1.0, "fc.bias": 1.0, "conv1.weight": 1.0}
    assert (learning(network), training(network)) == ({"conv1", "fc"}, {"conv1", "fc"})
    assert tuning.learns_beside_the_head == ("conv1",)
    assert not tuning.only_the_head_learns


def test_gradual_opens_a_stage_from_the_output_every_so_many_epochs() -> None:
    network, tuning = tuned(finetune="gradual", unfreeze_every=2)
    assert [tuning.due(epoch) for epoch in range(14)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 6, 6]
    for count, layers in enumerate([{"fc"}, {"layer4"}, {"layer3"}, {"layer2"}, {"layer1"}, {"conv1", "bn1"}], start=1):
        before = learning(network)
        opened = {name.split(".")[0] for name in names(network, tuning.open(count))}
        tuning.set_mode()
        assert opened == layers
        assert learning(network) == training(network) - {"relu", "maxpool", "avgpool"} == before | layers


def test_stages_learn_at_their_share_of_the_rate() -> None:
    network, tuning = tuned(backbone_lr_scale=0.5, layer_decay=0.1)
    shares = names(network, tuning.open(6))
    assert shares["fc.bias"] == 1.0
    assert shares["layer4.0.conv1.weight"] == pytest.approx(0.05)
    assert shares["layer1.0.conv1.weight"] == pytest.approx(0.5e-4)
    assert shares["conv1.weight"] == shares["bn1.bias"] == pytest.approx(0.5e-5)


def test_a_fresh_stem_learns_at_the_full_rate_where_the_rest_is_slowed() -> None:
    network, tuning = tuned(channels=1, backbone_lr_scale=0.5)
    shares = names(network, tuning.open(6))
    assert (shares["conv1.weight"], shares["bn1.weight"], shares["fc.weight"]) == (1.0, 0.5, 1.0)


@pytest.mark.parametrize(("chosen", "probed"), [({}, 4), ({"probe_epochs": 2}, 2), ({"probe_epochs": 30}, 30)])
def test_a_linear_probe_comes_first_then_all_layers_learn(chosen: dict[str, int], probed: int) -> None:
    network, tuning = tuned(finetune="lp-ft", **chosen)
    assert [tuning.due(epoch) for epoch in (0, probed - 1, probed)] == [1, 1, 6]
    tuning.open(tuning.due(0))
    tuning.set_mode()
    assert (learning(network), training(network), tuning.probing) == ({"fc"}, {"fc"}, True)
    tuning.open(tuning.due(probed))
    tuning.set_mode()
    assert (learning(network), tuning.probing) == (LAYERS, False)


def test_a_short_trial_keeps_an_epoch_for_all_layers() -> None:
    chosen = ImageClassifier().hyperparameters({"finetune": "lp-ft"})
    assert [probe_epochs(chosen, epochs) for epochs in (1, 2, 3, 12)] == [0, 1, 1, 4]


@pytest.mark.parametrize("finetune", ["all", "gradual", "lp-ft"])
def test_frozen_batch_norms_keep_statistics_scales_and_shifts(finetune: str) -> None:
    network, tuning = tuned(finetune=finetune, freeze_batch_norm=True)
    opened = [names(network, tuning.open(tuning.due(epoch))) for epoch in range(EPOCHS)]
    tuning.set_mode()
    norms = [name for name, layer in network.module.named_modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert len(norms) == 20
    assert not any(network.module.get_submodule(name).training for name in norms)
    taken = {name for group in opened for name in group}
    assert {name for name, _ in network.module.named_parameters() if name.rpartition(".")[0] in norms}.isdisjoint(taken)
    assert len(taken) == len(list(network.module.parameters())) - 2 * len(norms)
    before = {name: value.clone() for name, value in network.module.state_dict().items() if "bn" in name}
    network.module(torch.rand(4, 3, 32, 32)).sum().backward()
    assert all(torch.equal(value, network.module.state_dict()[name]) for name, value in before.items())
