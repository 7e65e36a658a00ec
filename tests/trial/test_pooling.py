"""Which models a head may see which tokens of: known from tables and configurations, without the libraries."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import hub_cache
from tuner import choice, randint
from tuner.errors import StudyError
from tuner.space import Space
from tuner.trial import ImageClassifier
from tuner.trial.pooling import Pooling

DINO, SIGLIP, REGISTERS = "timm:vit_small_patch14_dinov2", "timm:vit_base_patch16_siglip_224", "timm:test_vit2"
LEFT_OUT = "leave it out, or write .when(model=[...]) with models that can have it"


def check(space: dict[str, Any], model: Any = DINO) -> None:
    ImageClassifier("digits", model, weights=None).check(Space(space))


def refused(space: dict[str, Any], model: str = DINO) -> str:
    with pytest.raises(StudyError) as caught:
        check(space, model)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            {"pooling": "cls"},
            "pooling must be token, mean or token+mean, got 'cls'; choose among 'token', 'mean', 'token+",
        ),
        ({"pooling": "Token"}, "pooling must be token, mean or token+mean, got 'Token'; choose among"),
        ({"pooling": None}, "pooling must be token, mean or token+mean, got None; choose among"),
        (
            {"pooling": ["token", "mean"]},
            "pooling must be token, mean or token+mean, got ['token', 'mean']; write choice([",
        ),
        ({"pooling": choice(["token", 4])}, "pooling must be token, mean or token+mean, got 4; choose among"),
        (
            {"pooling": randint(1, 4)},
            "pooling must be token, mean or token+mean, got randint(1, 4); use choice([",
        ),
        ({"pooling": "token", "blocks": 2}, "blocks must be 1 or 4, got 2; choose among 1, 4"),
        ({"pooling": "token", "blocks": "4"}, "blocks must be 1 or 4, got '4'; choose among 1, 4"),
        ({"pooling": "token", "blocks": True}, "blocks must be 1 or 4, got True; choose among 1, 4"),
        (
            {"pooling": "token", "blocks": randint(1, 4)},
            "blocks must be 1 or 4, got randint(1, 4); use choice([",
        ),
        ({"pooling": "token", "blocks": choice([1, 12])}, "blocks must be 1 or 4, got 12; choose among 1, 4"),
        ({"blocks": 4}, f"blocks=4 needs pooling, which says what the head sees of them, got none for {DINO}; add"),
        ({"global_pool": "token"}, "'global_pool' is not a hyperparameter of ImageClassifier; did you mean 'pooling'?"),
    ],
)
def test_malformed_values_are_refused_with_the_fix(value: dict[str, Any], told: str) -> None:
    assert refused(value).startswith(told)


@pytest.mark.parametrize("model", ["resnet18", "convnext_tiny", "timm:efficientnet_b0", "timm:convnext_tiny"])
def test_models_without_tokens_have_no_pooling(model: str) -> None:
    for kind in ("token", "mean", "token+mean"):
        assert refused({"pooling": kind}, model) == (
            f"pooling and blocks need a vision transformer whose tokens are known, got {model}; {LEFT_OUT}"
        )


@pytest.mark.parametrize("model", ["swin_t", "timm:swin_tiny_patch4_window7_224", SIGLIP, REGISTERS])
def test_models_without_a_class_token_have_the_mean_alone(model: str) -> None:
    check({"pooling": "mean"}, model)
    for kind in ("token", "token+mean"):
        assert refused({"pooling": choice(["mean", kind])}, model) == (
            f"pooling='{kind}' needs a model with a class token, got {model}, which only has patches; use 'mean', "
            f"{LEFT_OUT}"
        )


def test_four_blocks_need_a_model_that_ends_with_four_of_one_width() -> None:
    assert refused({"pooling": "mean", "blocks": choice([1, 4])}, "swin_t") == (
        f"blocks=4 needs as many last blocks of one width, got swin_t, which has 1; {LEFT_OUT}"
    )
    check({"pooling": "mean", "blocks": 1}, "swin_t")
    for model in (DINO, SIGLIP, "vit_b_16"):
        check({"pooling": "mean", "blocks": choice([1, 4])}, model)


def test_with_several_models_it_is_a_condition_on_those_that_can_have_it() -> None:
    models = choice(["resnet18", DINO, SIGLIP])
    told = refused({"model": models, "pooling": choice(["token", "mean"]).when(model=[DINO, SIGLIP])})
    assert told.startswith(f"pooling='token' needs a model with a class token, got {SIGLIP}, which")
    pooled = choice(["token", "mean", "token+mean"]).when(model=[DINO])
    assert refused({"model": models, "pooling": pooled, "blocks": choice([1, 4])}).startswith(
        "blocks=4 needs pooling, which says what the head sees of them, got none for resnet18; add"
    )
    check({"model": models, "pooling": pooled, "blocks": choice([1, 4]).when(model=DINO)})


def test_a_functions_model_may_have_hyperparameters_of_these_names() -> None:
    def net(config: dict[str, Any]) -> Any: ...

    check({"pooling": choice(["max", "average"]), "blocks": randint(2, 9), "pool": 3}, net)
    trial = ImageClassifier("digits", net)
    told = trial.hyperparameters({"pooling": "max", "blocks": 7})
    assert (told["pooling"], told["blocks"]) == ("max", 7)
    assert not {"model", "pooling", "blocks"} & trial.hyperparameters({}).keys()


def test_hyperparameters_that_leave_it_out_have_what_the_library_does() -> None:
    trial = ImageClassifier("digits", DINO)
    assert Pooling.of(trial.hyperparameters({})) is None
    assert Pooling.of(trial.hyperparameters({"blocks": 1})) is None
    assert Pooling.of(trial.hyperparameters({"pooling": "token"})) == Pooling("token", 1)
    assert Pooling.of(trial.hyperparameters({"pooling": "token+mean", "blocks": 4.0})) == Pooling("token+mean", 4)


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"model_type": "dinov2", "num_hidden_layers": 5}, (5, True)),
        ({"model_type": "vit"}, (12, True)),
        ({"model_type": "siglip", "vision_config": {"patch_size": 16, "num_hidden_layers": 7}}, (7, False)),
        ({"model_type": "swin"}, (1, False)),
        ({"model_type": "resnet"}, None),
        ({"model_type": "convnext"}, None),
        ({"model_type": "clip", "vision_config": {"patch_size": 16}}, None),
    ],
)
def test_a_hubs_configuration_tells_of_the_tokens(
    config: dict[str, Any], tokens: tuple[int, bool] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    processor = {"size": {"height": 64, "width": 64}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    files = {"config.json": {"patch_size": 16} | config, "preprocessor_config.json": processor}
    hub_cache.put(tmp_path, "tiny/model", {name: json.dumps(told).encode() for name, told in files.items()})
    found = ImageClassifier("digits", "hf:tiny/model", weights=None).model_facts.tokens
    assert (found and (found.blocks, found.class_token)) == tokens
    if tokens is None:
        told = re.escape("pooling and blocks need a vision transformer whose tokens are known, got hf:tiny/model; ")
        with pytest.raises(StudyError, match=f"^{told}"):
            check({"pooling": "mean"}, "hf:tiny/model")
