from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.conftest import small_model, write_colours
from tests.train.pretend import pretending
from tuner.errors import TrialError
from tuner.train import CrossValidation, Trainer, features, trainer_of
from tuner.train.checkpoint import Checkpoint, read_model, write_checkpoint
from tuner.train.checkpoint_size import checkpoint_bytes
from tuner.train.cross_validation import whole_model
from tuner.train.data import cache
from tuner.train.models import empty_model, head_is_last, onnx_layers, random_network
from tuner.trial import Folds, ImageClassifier
from tuner.trial.models import find_model

SMALL = "shufflenet_v2_x0_5"  # a tenth of a ResNet18
CONFIG = {"lr": 1e-2, "batch_size": 16, "image_size": 12, "finetune": "head"}


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))


def state_of_seven_classes() -> dict[str, torch.Tensor]:
    """Random weights whose norms have seen images: without that, features of all images are nearly the same."""
    module = random_network(SMALL, channels=3, classes=7, seed=9).module.train()
    for norm in (layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm2d)):
        norm.momentum = None  # the mean over all batches
    with torch.inference_mode():
        module(torch.randn(64, 3, 12, 12, generator=torch.Generator().manual_seed(0)))
    return module.state_dict()


def pretrained_colours(folder: Path) -> ImageClassifier:
    """48 training and 6 validation images of three colours, of which there are 16 to 28 images; saved weights."""
    torch.save(state_of_seven_classes(), folder / "saved.pt")
    data = write_colours(folder / "colours")
    for file in sorted((data / "red").iterdir())[:8]:
        file.rename(data / "blue" / f"red-{file.name}")
    return ImageClassifier(f"folder:{data}", SMALL, weights=folder / "saved.pt")


@pytest.fixture
def pretrained(colours: ImageClassifier, tmp_path: Path) -> ImageClassifier:
    """The three colours, with weights saved by another trial."""
    path = tmp_path / "saved.pt"
    torch.save(state_of_seven_classes(), path)
    return replace(colours, model=SMALL, weights=path)


def trainer(trial: ImageClassifier, *, seed: int = 0, epochs: int = 3, **config: Any) -> Trainer:
    return Trainer(trial, CONFIG | config, epochs=epochs, seed=seed, split_seed=0)


def plain(trial: ImageClassifier, **config: Any) -> Trainer:
    """The same trial with the backbone run in every step."""
    running = trainer(trial, **config)
    running.parts.feeds._looked = True  # and found none
    return running


@contextmanager
def images_through(module: torch.nn.Module) -> Iterator[list[int]]:
    """Sizes of the batches that go through a layer."""
    sizes: list[int] = []
    hook = module.register_forward_hook(lambda _, inputs, output: sizes.append(len(inputs[0])))
    yield sizes
    hook.remove()


@pytest.mark.parametrize("config", [{}, {"dropout": 0.3, "label_smoothing": 0.1, "ema_decay": 0.9}])
def test_heads_on_features_answer_as_heads_on_images(pretrained: ImageClassifier, config: dict[str, Any]) -> None:
    fast, slow = trainer(pretrained, **config), plain(pretrained, **config)
    with images_through(slow.parts.network.module.get_submodule("conv5")) as sizes:
        slow.train(1)
    assert sizes == [16]
    results = []
    for running in (fast, slow):
        while not running.finished:
            results.append(running.run_epoch())
    answers = [
        running.parts.evaluator.logits(running.parts.best_module, running.splits.test, running.splits.normalisation)
        for running in (fast, slow)
    ]
    assert torch.allclose(*answers, atol=1e-5)
    for left, right in zip(results[:3], results[3:], strict=True):
        assert left.train_loss == pytest.approx(right.train_loss, abs=1e-5)
        assert left.validation.loss == pytest.approx(right.validation.loss, abs=1e-5)


@pytest.mark.parametrize("kind", ["plain", "mirrored", "views"])
@pytest.mark.parametrize("folds", [None, Folds(3)])
def test_onnxruntime_computes_the_features_of_many_images_on_the_cpu(
    pretrained: ImageClassifier, kind: str, folds: Folds | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = replace(pretrained, validation=folds)
    running = trainer(trial.fold(0) if folds else trial)
    parts, splits, normalise = running.parts, running.splits, running.splits.normalisation
    views = features.Views(2, lambda images: normalise(images).flip(-1), "flipped") if kind == "views" else None
    wanted = features.Wanted(SMALL, kind == "mirrored", views)

    def learned() -> tuple[list[torch.Tensor], int]:
        """Features for training, of views, and for validation, and how many images went through torch's network."""
        with images_through(parts.network.module.get_submodule("conv5")) as sizes:
            found = features.extract_features(parts.network, splits, parts.evaluator, wanted, keep=True)
        return [split.images() for split in (found.train, *found.views, found.validation)], sum(sizes)

    slow, images = learned()
    assert images >= 48
    monkeypatch.setattr(onnx_layers, "WORTH", 48 * 12**2)
    quick, images = learned()
    entries = 1 if kind == "plain" else 2
    assert images == entries * (3 + 2)  # to write the file, and to check it
    assert len(list((tmp_path / "cache").glob("*/entry.json"))) == 1 + 2 * entries  # the images are there, too
    assert learned()[1] == 0
    for one, other in zip(quick, slow, strict=True):
        assert (one - other).abs().max() <= onnx_layers.SAME * other.abs().max()
        assert not one.equal(other)


def test_the_backbone_sees_every_image_once_in_all_trials_together(pretrained: ImageClassifier) -> None:
    first = trainer(pretrained)
    with images_through(first.parts.network.module.get_submodule("conv5")) as sizes:
        while not first.finished:
            first.run_epoch()
    assert sum(sizes) == 2 + 48 + 6  # two to see that the head is last
    second = trainer(pretrained, seed=1, lr=1e-3)
    with images_through(second.parts.network.module.get_submodule("conv5")) as sizes:
        while not second.finished:
            second.run_epoch()
    assert sum(sizes) == 2


def told(trial: ImageClassifier, monkeypatch: pytest.MonkeyPatch, **config: Any) -> list[tuple[str, int, int]]:
    """What a trial that evaluates 16 images at once tells of its features before the end of its first epoch."""
    monkeypatch.setattr(features, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(features, "BETWEEN_SECONDS", 0.0)
    found: list[dict[str, Any]] = []
    running = trainer(trial, **config)
    monkeypatch.setattr(running.parts.evaluator, "batch_size", lambda split: 16)
    with features.progress_told_to(found.append):
        running.run_epoch()
    assert all(one["seconds"] > 0 and one["seconds_left"] > 0 for one in found)
    return [(one["model"], one["images"], one["total"]) for one in found]


def test_only_the_trial_that_computes_features_tells_how_far_they_are(
    pretrained: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(pretrained, monkeypatch) == [(SMALL, 16, 54), (SMALL, 32, 54), (SMALL, 48, 54)]
    assert told(pretrained, monkeypatch, lr=1e-3) == []


def test_images_that_are_seen_from_both_sides_count_as_half_done_in_between(
    pretrained: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """54 images are 48 for training and 6 that go twice through the backbone: 60 in all."""
    shares = [image for _, image, _ in told(pretrained, monkeypatch, test_time_flip=True)]
    assert shares == [54 * done // 60 for done in (16, 32, 48, 54)]


def test_what_follows_the_progress_of_features_can_end_them(
    pretrained: ImageClassifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def end(progress: dict[str, Any]) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(features, "FIRST_SECONDS", 0.0)
    with pytest.raises(SystemExit), features.progress_told_to(end):
        trainer(pretrained).run_epoch()
    assert not keys(tmp_path)
    assert len(told(pretrained, monkeypatch)) == 3


def test_features_that_were_changed_on_disk_are_computed_again_with_a_sentence(
    pretrained: ImageClassifier, tmp_path: Path
) -> None:
    losses = [trainer(pretrained).run_epoch().train_loss]
    (changed,) = (tmp_path / "cache").glob("*/train.npy")
    changed.write_bytes(changed.read_bytes()[:-4] + b"noise"[:4])
    again = trainer(pretrained)
    losses.append(again.run_epoch().train_loss)
    assert losses[0] == losses[1]
    assert again.notes[-1] == (
        f"{changed.parent} in the cache is damaged and is built again: train.npy isn't what was written"
    )


def keys(tmp_path: Path) -> set[str]:
    return {path.parent.name for path in (tmp_path / "cache").glob("*/train.npy")}


@pytest.mark.parametrize(
    "change",
    [{"precision": "bf16"}, {"precision": "fp32"}, {"image_size": 16}],
)
def test_another_type_or_size_is_another_entry(
    pretrained: ImageClassifier, tmp_path: Path, change: dict[str, Any]
) -> None:
    trainer(pretrained).run_epoch()
    trainer(pretrained, **change).run_epoch()
    assert len(keys(tmp_path)) == 2


def test_a_gpu_has_an_entry_of_its_own(pretrained: ImageClassifier, tmp_path: Path) -> None:
    trainer(pretrained).run_epoch()
    with pretending():
        Trainer(pretrained, CONFIG, epochs=3, seed=0, split_seed=0, device="cuda").run_epoch()
    assert len(keys(tmp_path)) == 2


def test_other_weights_another_model_and_another_cut_are_other_entries(
    pretrained: ImageClassifier, tmp_path: Path
) -> None:
    trainer(pretrained).run_epoch()
    other = tmp_path / "other.pt"
    state = state_of_seven_classes()
    state["conv1.0.weight"][0, 0, 0, 0] += 1e-6
    torch.save(state, other)
    trainer(replace(pretrained, weights=other)).run_epoch()
    assert len(keys(tmp_path)) == 2
    Trainer(pretrained, CONFIG, epochs=3, seed=0, split_seed=1).run_epoch()
    assert len(keys(tmp_path)) == 3


def test_the_key_is_of_everything_but_the_head() -> None:
    first, second = (random_network(SMALL, channels=3, classes=classes, seed=0) for classes in (3, 9))
    assert first.backbone_key == second.backbone_key
    third = random_network(SMALL, channels=3, classes=9, seed=0)
    with torch.no_grad():
        third.module.get_buffer("conv1.1.running_var")[0] += 1e-3
    assert first.backbone_key != third.backbone_key


def test_random_weights_leave_nothing_in_the_shared_cache(colours: ImageClassifier, tmp_path: Path) -> None:
    running = trainer(replace(colours, model=SMALL))
    with images_through(running.parts.network.module.get_submodule("conv5")) as sizes:
        while not running.finished:
            running.run_epoch()
    assert sum(sizes) == 2 + 48 + 6
    assert keys(tmp_path) == set()


@pytest.mark.parametrize(
    "config",
    [
        *({"flip": 0.5}, {"crop_padding": 2}, {"color_jitter": 0.1}, {"random_erasing": 0.1}, {"mixup": 0.2}),
        *({"cutmix": 0.2}, {"random_resized_crop": 0.5}, {"auto_augment": "trivial"}),
    ],
)
def test_images_that_change_go_through_the_backbone_in_every_epoch(
    pretrained: ImageClassifier, config: dict[str, Any]
) -> None:
    running = trainer(pretrained, **config)
    with images_through(running.parts.network.module.get_submodule("conv5")) as sizes:
        running.run_epoch()
        running.run_epoch()
    assert sum(sizes) == 2 * (48 + 6)


def test_a_new_stem_trains_and_says_that_nothing_can_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "saved.pt"
    torch.save(state_of_seven_classes(), path)
    digits = ImageClassifier("digits", SMALL, weights=path)
    running = Trainer(digits, {"finetune": "head"}, epochs=1, seed=0, split_seed=0)
    assert running.notes[-1] == (
        "finetune='head' also trains conv1.0, which has no pretrained weights, so the whole network runs in every epoch; "
        "with stem='sum' the backbone stays frozen and its features are computed once"
    )
    summed = Trainer(digits, {"finetune": "head", "stem": "sum"}, epochs=1, seed=0, split_seed=0)
    assert not any("stem='sum'" in note for note in summed.notes)


def test_gradual_uses_features_until_more_than_the_head_learns(pretrained: ImageClassifier) -> None:
    running = trainer(pretrained, finetune="gradual", unfreeze_every=2, epochs=3)
    with images_through(running.parts.network.module.get_submodule("conv5")) as sizes:
        running.run_epoch()
        running.run_epoch()
        assert sum(sizes) == 2 + 48 + 6
        running.run_epoch()
        assert sum(sizes) == 2 + 2 * (48 + 6)


def test_a_linear_probe_uses_features_of_images_that_arent_augmented_then_all_layers_see_augmented_ones(
    pretrained: ImageClassifier,
) -> None:
    augmented = {"flip": 0.5, "auto_augment": "rand", "cutmix": 1.0, "mixup": 0.2}
    running = trainer(pretrained, finetune="lp-ft", probe_epochs=2, epochs=3, **augmented)
    with images_through(running.parts.network.module.get_submodule("conv5")) as sizes:
        running.run_epoch()
        running.run_epoch()
        assert sum(sizes) == 2 + 48 + 6
        running.run_epoch()
        assert sum(sizes) == 2 + 2 * (48 + 6)


def test_the_probe_is_a_trial_of_the_head_alone(pretrained: ImageClassifier) -> None:
    head, probe = (
        trainer(pretrained, epochs=2),
        trainer(pretrained, finetune="lp-ft", probe_epochs=2, epochs=3, flip=0.5),
    )
    for _ in range(2):
        alone, first = head.run_epoch(), probe.run_epoch()
        assert (first.train_loss, first.validation) == (alone.train_loss, alone.validation)
    assert probe.run_epoch().train_loss != head.parts.loss


def test_a_probe_without_features_leaves_images_unaugmented_too(pretrained: ImageClassifier) -> None:
    features, images = (
        make(pretrained, finetune="lp-ft", probe_epochs=1, epochs=2, mixup=0.2, crop_padding=2)
        for make in (trainer, plain)
    )
    assert images.run_epoch().train_loss == pytest.approx(features.run_epoch().train_loss, abs=1e-5)


@pytest.mark.parametrize("finetune", ["head", "all"])
def test_answers_to_both_views_are_validated_whether_by_features_or_by_images(
    pretrained: ImageClassifier, finetune: str
) -> None:
    running = trainer(pretrained, test_time_flip=True, finetune=finetune)
    result = running.run_epoch()
    split, module = running.splits.validation, running.module.eval()
    images = running.splits.normalisation(split.images())
    with torch.inference_mode():
        both = (module(images) + module(images.flip(-1))) / 2
        one = module(images)
    loss, of_one = (float(torch.nn.functional.cross_entropy(logits, split.labels)) for logits in (both, one))
    assert result.validation.loss == pytest.approx(loss, rel=1e-4)
    assert abs(of_one - loss) > 1e-4 * loss


@pytest.mark.parametrize(("folds", "passes"), [(None, (54, 6, 96)), (Folds(3), (54, 54, 108))])
def test_mirror_images_and_views_alone_are_computed_beside_stored_features(
    pretrained: ImageClassifier, folds: Folds | None, passes: tuple[int, int, int]
) -> None:
    """Of 48 images for training and 6 for validation; those of a cross-validation are one part."""
    running = trainer(replace(pretrained, validation=folds).fold(0) if folds else pretrained)
    parts, splits, normalise = running.parts, running.splits, running.splits.normalisation
    plain = features.Wanted(SMALL)
    mirrored = replace(plain, mirrored=True)
    both = replace(mirrored, views=features.Views(2, lambda images: normalise(images).flip(-1), "flipped"))
    found = []
    with images_through(parts.network.module.get_submodule("conv5")) as sizes:
        for wanted, images in zip((plain, mirrored, both), passes, strict=True):
            assert features.stored_features(parts.network, splits, parts.evaluator, wanted) is None
            found.append(features.extract_features(parts.network, splits, parts.evaluator, wanted, keep=True))
            assert sum(sizes) == images
            sizes.clear()
    assert found[1].train.images().equal(found[0].train.images())
    assert found[2].validation.images().equal(found[1].validation.images())
    assert not found[1].validation.images().equal(found[0].validation.images())
    assert len(found[2].views) == 2


def test_features_of_each_pooling_are_an_entry_of_their_own(colours: ImageClassifier, tmp_path: Path) -> None:
    facts = find_model("timm:test_vit").for_images(32)
    torch.save(random_network(facts, channels=3, classes=7, seed=9).module.state_dict(), tmp_path / "vit.pt")
    trial = replace(colours, model="timm:test_vit", weights=tmp_path / "vit.pt")
    wide = {}
    for pooling, blocks in (("token", 1), ("mean", 1), ("mean", 4), ("token+mean", 4)):
        running = trainer(trial, image_size=32, pooling=pooling, blocks=blocks)
        running.run_epoch()
        wide[pooling, blocks] = running.parts.feed.train.images(torch.arange(2)).shape
        assert not running.parts.feed.whole
    assert list(wide.values()) == [(2, 64), (2, 64), (2, 256), (2, 320)]
    assert len(keys(tmp_path)) == 4


def test_a_model_that_goes_on_after_its_head_says_so(colours: ImageClassifier) -> None:
    running = trainer(replace(colours, model="squeezenet1_1"), image_size=32, epochs=2)
    running.run_epoch()
    assert running.notes == (
        "squeezenet1_1 has layers after its head, so the features of the frozen backbone can't be stored: every epoch "
        "computes them again",
    )


@pytest.mark.parametrize(
    ("name", "last"),
    [("resnet18", True), ("mobilenet_v3_small", True), ("densenet121", True), ("squeezenet1_1", False)],
)
def test_the_head_is_last_in_most_families(name: str, last: bool) -> None:
    network = random_network(name, channels=3, classes=3, seed=0)
    assert head_is_last(network.module, torch.rand(2, 3, 32, 32)) is last


def test_without_room_for_the_cache_features_live_in_the_process(
    pretrained: ImageClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "file" / "cache"))
    running = trainer(pretrained)
    with images_through(running.parts.network.module.get_submodule("conv5")) as sizes:
        while not running.finished:
            running.run_epoch()
    assert sum(sizes) == 2 + 48 + 6
    assert any(
        note.startswith("the cache can't be used, so each trial decodes and holds the images itself")
        for note in running.notes
    )
    assert any(
        note.startswith("the cache can't be used, so each trial computes and holds the backbone's")
        for note in running.notes
    )
    assert cache.default_folder() == tmp_path / "file" / "cache"


def saved(running: Trainer | CrossValidation, folder: Path) -> tuple[dict[str, torch.Tensor], int]:
    """The tensors of a checkpoint's model, and its bytes."""
    running.save(folder)
    return read_model(folder)[0], sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("changes", [{}, {"ema_decay": 0.9}, {"optimizer": "sgd", "momentum": 0.9}])
def test_a_checkpoint_has_only_the_head_of_a_backbone_that_never_learns(
    pretrained: ImageClassifier, tmp_path: Path, changes: dict[str, Any]
) -> None:
    whole = trainer(pretrained, **changes)
    expected = [whole.run_epoch().train_loss for _ in range(3)]
    running = trainer(pretrained, **changes)
    running.run_epoch()
    tensors, size = saved(running, tmp_path / "saved")
    assert set(tensors) == {"fc.weight", "fc.bias"}
    assert size == pytest.approx(
        checkpoint_bytes(pretrained, [CONFIG | changes], epochs=3, channels=3, classes=3)[0], rel=0.2
    )
    again = trainer(pretrained, **changes)
    again.load(tmp_path / "saved")
    assert [again.run_epoch().train_loss for _ in range(2)] == expected[1:]
    state = whole_model(tmp_path / "saved", pretrained, CONFIG | changes, channels=3, classes=3)
    assert set(state) == set(running.module.state_dict())
    assert all(torch.equal(state[name], value) for name, value in running.parts.best_module.state_dict().items())


def test_a_cross_validations_checkpoint_has_the_heads_of_all_networks(
    pretrained: ImageClassifier, tmp_path: Path
) -> None:
    trial = replace(pretrained, validation=Folds(3))
    running = trainer_of(trial, CONFIG, epochs=2, split_seed=0)
    running.run_epoch()
    tensors, _ = saved(running, tmp_path / "saved")
    assert set(tensors) == {f"networks.{part}.fc.{name}" for part in range(3) for name in ("weight", "bias")}
    again = trainer_of(trial, CONFIG, epochs=2, split_seed=0)
    again.load(tmp_path / "saved")
    assert again.run_epoch().metrics()["train_loss"] == running.run_epoch().metrics()["train_loss"]
    state = whole_model(tmp_path / "saved", trial, CONFIG, channels=3, classes=3)
    module = empty_model(trial, channels=3, classes=3, config=trial.hyperparameters(CONFIG))
    assert set(state) == set(module.state_dict())


@pytest.mark.parametrize(
    "config",
    [{"finetune": "all"}, {"finetune": "gradual"}, {"finetune": "lp-ft"}],
    ids=lambda config: config["finetune"],
)
def test_a_checkpoint_of_a_backbone_that_learns_at_some_time_is_whole(
    pretrained: ImageClassifier, tmp_path: Path, config: dict[str, Any]
) -> None:
    running = trainer(pretrained, **config)
    running.run_epoch()
    assert set(saved(running, tmp_path / "saved")[0]) == set(running.module.state_dict())


def test_a_checkpoint_of_random_weights_or_of_a_function_is_whole(colours: ImageClassifier, tmp_path: Path) -> None:
    for number, trial in enumerate((replace(colours, model=SMALL), replace(colours, model=small_model))):
        running = trainer(trial)
        running.run_epoch()
        assert set(saved(running, tmp_path / f"saved{number}")[0]) == set(running.module.state_dict())


def test_a_checkpoint_isnt_completed_by_other_weights(pretrained: ImageClassifier, tmp_path: Path) -> None:
    running = trainer(pretrained)
    running.run_epoch()
    running.save(tmp_path / "saved")
    path = Path(str(pretrained.weights))
    state = torch.load(path, weights_only=True)
    state["conv1.0.weight"][0, 0, 0, 0] += 1e-6
    torch.save(state, path)
    with pytest.raises(TrialError, match="the layers before the head are those of other weights"):
        whole_model(tmp_path / "saved", pretrained, CONFIG, channels=3, classes=3)
    with pytest.raises(TrialError, match="the layers before the head are those of other weights"):
        trainer(pretrained).load(tmp_path / "saved")


def test_a_checkpoint_of_an_earlier_version_which_is_whole_is_gone_on_from(
    pretrained: ImageClassifier, tmp_path: Path
) -> None:
    running = trainer(pretrained)
    running.run_epoch()
    new = running.snapshot()
    scalars = {name: value for name, value in new.scalars.items() if name != "backbone"}
    write_checkpoint(tmp_path / "old", Checkpoint(running.module.state_dict(), new.training, scalars))
    again = trainer(pretrained)
    again.load(tmp_path / "old")
    assert again.run_epoch().train_loss == running.run_epoch().train_loss
    assert set(whole_model(tmp_path / "old", pretrained, CONFIG, channels=3, classes=3)) == set(
        again.module.state_dict()
    )
