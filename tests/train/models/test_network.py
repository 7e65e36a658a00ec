import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision.ops import StochasticDepth

from tuner.errors import TrialError, WeightsError
from tuner.train.models import (
    build_network,
    load_state,
    pretrained_network,
    random_network,
    read_state,
)
from tuner.trial import ImageClassifier
from tuner.trial.models import find_model

SMALL = "squeezenet1_1"


def torchvision_state(name: str = SMALL) -> dict[str, torch.Tensor]:
    import torchvision

    with torch.random.fork_rng():
        torch.manual_seed(5)
        state: dict[str, torch.Tensor] = torchvision.models.get_model(name, weights=None).state_dict()
    return state


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


@pytest.mark.parametrize(
    ("name", "stem", "head"),
    [
        ("resnet18", "conv1", "fc"),
        ("squeezenet1_1", "features.0", "classifier.1"),
        ("mobilenet_v3_small", "features.0.0", "classifier.3"),
        ("shufflenet_v2_x0_5", "conv1.0", "fc"),
        ("mnasnet0_5", "layers.0", "classifier.1"),
        ("efficientnet_b0", "features.0.0", "classifier.1"),
        ("densenet121", "features.conv0", "classifier"),
        ("regnet_y_400mf", "stem.0", "fc"),
        ("googlenet", "conv1.conv", "fc"),
    ],
)
def test_any_family_takes_grey_images_and_the_datas_classes(name: str, stem: str, head: str) -> None:
    network = random_network(name, channels=1, classes=7, seed=0)
    pixels = find_model(name).image_size(32)
    assert (network.stem, network.head, network.new) == (stem, head, (stem, head))
    assert network.module.eval()(torch.zeros(2, 1, pixels, pixels)).shape == (2, 7)


FAMILIES = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3"),
    *("maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "resnext50_32x4d"),
    *("shufflenet_v2_x0_5", "squeezenet1_0", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11", "vgg11_bn", "vit_b_16"),
    "wide_resnet50_2",
)


@pytest.mark.parametrize("names", [FAMILIES, pytest.param(None, marks=pytest.mark.slow)], ids=["families", "all"])
def test_every_model_of_torchvision_can_be_fitted(names: tuple[str, ...] | None) -> None:
    from tuner.trial.models import model_facts

    without_memory = ("regnet", "timm:efficientvim")  # these can't be tried on torch's device "meta"
    rgb_alone = ("timm:fastvit", "timm:mobileone", "timm:repvgg")
    known = [name for name in model_facts() if not name.startswith((*without_memory, *rgb_alone))]
    assert set(FAMILIES) <= set(known)
    with torch.device("meta"):
        for name in names or known:
            network = random_network(name, channels=1, classes=7, seed=0)
            pixels = find_model(name).image_size(32)
            assert network.module.eval()(torch.empty(1, 1, pixels, pixels)).shape == (1, 7), name


def test_a_model_whose_images_go_into_several_layers_takes_rgb_alone() -> None:
    with torch.device("meta"):
        assert random_network("timm:fastvit_t8", channels=3, classes=7, seed=0).new == ("head.fc",)
        with pytest.raises(TrialError, match="needs images of 3 channels, got 1 for one with stem"):
            random_network("timm:fastvit_t8", channels=1, classes=7, seed=0)


def test_colour_images_keep_the_stem() -> None:
    network = random_network("resnet18", channels=3, classes=10, seed=0)
    assert network.new == ("fc",)


def test_random_weights_depend_on_the_seed_and_leave_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (random_network(SMALL, channels=1, classes=3, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert same(first.module.state_dict(), again.module.state_dict())
    assert not same(first.module.state_dict(), other.module.state_dict())


def test_fresh_layers_are_drawn_within_their_fan_in() -> None:
    network = random_network("resnet18", channels=1, classes=300, seed=0)
    for name in (network.stem, network.head):
        layer = network.module.get_submodule(name)
        bound = layer.get_parameter("weight")[0].numel() ** -0.5
        for parameter in layer.parameters():
            assert bound * 0.95 < float(parameter.detach().abs().max()) <= bound


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_a_saved_state_dict_is_taken_and_what_doesnt_fit_is_new_and_said(tmp_path: Path, suffix: str) -> None:
    state, path = torchvision_state(), tmp_path / f"saved{suffix}"
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    network = pretrained_network(SMALL, path, channels=1, classes=3, seed=0)
    own = network.module.state_dict()
    kept = [key for key in own if not key.startswith(("features.0.", "classifier.1."))]
    assert all(torch.equal(own[key], state[key]) for key in kept)
    assert network.new == ("features.0", "classifier.1")
    assert network.notes == (
        f"{path.name} has no weights that fit features.0; it starts from random weights",
        "the last layer is new: it has 3 classes",
    )


def test_a_state_dict_that_fits_is_taken_whole(tmp_path: Path) -> None:
    saved = random_network(SMALL, channels=1, classes=3, seed=4)
    torch.save(saved.module.state_dict(), tmp_path / "own.pt")
    trial = ImageClassifier(model=SMALL, weights=tmp_path / "own.pt")
    network = build_network(trial, channels=1, classes=3, seed=0)
    assert same(network.module.state_dict(), saved.module.state_dict())
    assert (network.new, network.notes) == ((), ())


def test_imagenet_weights_come_from_torchs_cache_with_a_new_head(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    state, path = torchvision_state(), find_model(SMALL).find_weights("imagenet").path
    path.parent.mkdir(parents=True)
    torch.save(state, path)
    network = build_network(ImageClassifier(model=SMALL), channels=3, classes=1000, seed=0)
    own = network.module.state_dict()
    assert [key for key in own if not torch.equal(own[key], state[key])] == ["classifier.1.weight", "classifier.1.bias"]
    assert network.new == ("classifier.1",)


def test_published_files_may_lack_step_counters_and_have_auxiliary_heads_and_old_names() -> None:
    module = random_network("densenet121", channels=3, classes=1000, seed=0).module
    state = {key: value + 1 for key, value in module.state_dict().items() if not key.endswith("num_batches_tracked")}
    old = {key.replace(".norm1.", ".norm.1.").replace(".conv2.", ".conv.2."): value for key, value in state.items()}
    assert old.keys() != state.keys()
    load_state(module, {**old, "aux1.fc.weight": torch.zeros(1)}, source="file", name="densenet121")
    loaded = module.state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_the_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    torch.save(torchvision_state("shufflenet_v2_x0_5"), path)
    with pytest.raises(WeightsError) as caught:
        pretrained_network(SMALL, path, channels=1, classes=3, seed=0)
    message = str(caught.value)
    assert message.startswith(f"weights must fit {SMALL}, got {path} without features.0.weight, features.0.bias, ")
    assert " and with unknown conv1.0.weight, conv1.1.weight, conv1.1.bias and " in message
    assert message.endswith("; name the model they are of")


def test_other_shapes_are_refused_by_name() -> None:
    module = nn.Linear(3, 2)
    state = {"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}
    with pytest.raises(WeightsError) as caught:
        load_state(module, state, source="file", name="net")
    assert str(caught.value) == "weights must fit net, got file with other shapes of weight; name the model they are of"


def test_what_is_no_state_dict_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "epoch": 3}, tmp_path / "nested.pt")
    with pytest.raises(WeightsError) as caught:
        read_state(tmp_path / "nested.pt")
    assert str(caught.value) == (
        f"weights must be a plain state_dict of tensors, got {tmp_path / 'nested.pt'} with state_dict, epoch, "
        "which are no tensors; save model.state_dict() alone"
    )


@pytest.mark.parametrize("name", ["cut.pt", "cut.safetensors", "nowhere.pt"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    if name.startswith("cut"):
        (tmp_path / name).write_bytes(b"\x80\x02cut off")
    with pytest.raises(WeightsError, match=rf"^weights must be a saved state_dict, got .*{name}: .*; save it again$"):
        read_state(tmp_path / name)


@pytest.mark.filterwarnings(r"ignore:Detected pickle protocol \d+ in the checkpoint:UserWarning")
@pytest.mark.parametrize("legacy", [True, False])
def test_a_file_damaged_anywhere_is_read_or_refused(tmp_path: Path, legacy: bool) -> None:
    torch.save({"weight": torch.ones(3, 2)}, tmp_path / "whole.pt", _use_new_zipfile_serialization=not legacy)
    content, generator = (tmp_path / "whole.pt").read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(content)
        for place in generator.integers(0, len(content), 3):
            damaged[place] = int(generator.integers(256))
        (tmp_path / "damaged.pt").write_bytes(damaged)
        with suppress(WeightsError):
            read_state(tmp_path / "damaged.pt")


class Opens:
    """What a hostile pickle does when it is loaded: here it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.path), "w")


@pytest.mark.filterwarnings(r"ignore:Detected pickle protocol \d+ in the checkpoint:UserWarning")
@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, save: Callable[[object, Path], object]) -> None:
    save({"weight": Opens(tmp_path / "opened")}, tmp_path / "hostile.pt")
    with pytest.raises(WeightsError, match=r"^weights must be a saved state_dict"):
        read_state(tmp_path / "hostile.pt")
    assert not (tmp_path / "opened").exists()


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(1, 1), tmp_path / "module.pt")
    with pytest.raises(WeightsError, match=r"^weights must be a saved state_dict"):
        read_state(tmp_path / "module.pt")


def test_the_sum_over_the_channels_answers_grey_images_as_the_old_stem_answered_grey_rgb(tmp_path: Path) -> None:
    torch.save(torchvision_state("resnet18"), tmp_path / "saved.pt")
    networks = [
        pretrained_network("resnet18", tmp_path / "saved.pt", channels=channels, classes=5, seed=0, stem="sum")
        for channels in (1, 3)
    ]
    assert [network.new for network in networks] == [("fc",), ("fc",)]
    grey = torch.rand(2, 1, 32, 32)
    answers = [
        network.module.eval()(image) for network, image in zip(networks, (grey, grey.expand(2, 3, 32, 32)), strict=True)
    ]
    assert torch.allclose(*answers, atol=1e-5)


def test_other_numbers_of_channels_share_the_sum(tmp_path: Path) -> None:
    torch.save(torchvision_state(), tmp_path / "saved.pt")
    network = pretrained_network(SMALL, tmp_path / "saved.pt", channels=4, classes=3, seed=0, stem="sum")
    state, own = torchvision_state(), network.module.state_dict()
    assert torch.allclose(own["features.0.weight"].sum(1), state["features.0.weight"].sum(1), atol=1e-6)
    assert torch.equal(own["features.0.bias"], state["features.0.bias"])


def test_dropout_before_the_head_is_on_while_it_trains_and_leaves_the_names_alone() -> None:
    network = random_network("resnet18", channels=1, classes=3, seed=0)
    names = list(network.module.state_dict())
    network.drop_before_head(0.5)
    assert list(network.module.state_dict()) == names
    images = torch.rand(4, 1, 32, 32)
    network.module.eval()
    assert torch.equal(network.module(images), network.module(images))
    network.head_layer.train()
    assert not torch.equal(network.module(images), network.module(images))


def user_model(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, config["width"]), nn.ReLU(), nn.Linear(config["width"], 3))


def test_a_model_can_be_a_function_of_the_hyperparameters(tmp_path: Path) -> None:
    trial = ImageClassifier(model=user_model)
    first, again, other = (
        build_network(trial, channels=1, classes=3, seed=seed, config={"width": 5}) for seed in (0, 0, 1)
    )
    assert (first.head, first.new, first.pretrained) == ("3", (), False)
    assert same(first.module.state_dict(), again.module.state_dict())
    assert not same(first.module.state_dict(), other.module.state_dict())
    torch.save(other.module.state_dict(), tmp_path / "own.pt")
    loaded = build_network(
        ImageClassifier(model=user_model, weights=tmp_path / "own.pt"),
        channels=1,
        classes=3,
        seed=0,
        config={"width": 5},
    )
    assert loaded.pretrained
    assert same(loaded.module.state_dict(), other.module.state_dict())


def test_a_model_with_layers_of_unknown_size_is_refused() -> None:
    trial = ImageClassifier(model=lambda config: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)))
    with pytest.raises(
        TrialError, match=r"whose layers know their sizes, got an uninitialised 1\.weight from <lambda>"
    ):
        build_network(trial, channels=1, classes=3, seed=0, config={})


def test_a_function_that_makes_no_model_is_refused() -> None:
    trial = ImageClassifier(model=lambda config: "resnet")
    with pytest.raises(
        TrialError, match=r"^a model function must return an nn\.Module with .* got a str from <lambda>"
    ):
        build_network(trial, channels=1, classes=3, seed=0, config={})


@pytest.mark.parametrize("name", ["convnext_tiny", "swin_t", "maxvit_t", "efficientnet_b0"])
def test_the_last_block_is_left_out_for_the_share_that_is_asked_for_and_earlier_ones_in_proportion(name: str) -> None:
    with torch.device("meta"):
        network = random_network(name, channels=3, classes=3, seed=0)
    before = depths(network.module)
    network.leave_blocks_out(0.4, name)
    after = depths(network.module)
    assert max(after) == pytest.approx(0.4)
    assert after == pytest.approx([0.4 * share / max(before) for share in before])
    network.leave_blocks_out(0.0, name)
    assert set(depths(network.module)) == {0.0}


def test_stochastic_depth_is_what_torchvision_builds_with_it() -> None:
    from torchvision.models import convnext_tiny

    with torch.device("meta"):
        network = random_network("convnext_tiny", channels=3, classes=3, seed=0)
        network.leave_blocks_out(0.3, "convnext_tiny")
        assert depths(network.module) == pytest.approx(depths(convnext_tiny(stochastic_depth_prob=0.3)))


def test_a_network_without_stochastic_depth_is_refused() -> None:
    network = random_network("resnet18", channels=3, classes=3, seed=0)
    with pytest.raises(TrialError) as caught:
        network.leave_blocks_out(0.1, "my_model()")
    assert str(caught.value) == (
        "stochastic_depth needs a model with layers for it, such as torchvision's StochasticDepth, got my_model() "
        "without; leave it out"
    )


def depths(module: torch.nn.Module) -> list[float]:
    return [layer.p for layer in module.modules() if isinstance(layer, StochasticDepth)]
