"""The hyperparameters of `ImageClassifier`: one table that checks, messages, trainer and documents read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tuner.errors import StudyError
from tuner.trial.hyperparameter import Hyperparameter, spellings_of
from tuner.trial.image_hyperparameters import IMAGES
from tuner.trial.pooling import BLOCKS, POOLINGS
from tuner.trial.strategies import STRATEGIES
from tuner.trial.tasks import TASKS

INT8 = "int8"  # the quantization that there is

TABLE: tuple[Hyperparameter, ...] = (
    Hyperparameter(
        "epochs",
        "int",
        None,
        "Length of this trial; shortens the budget's `max_epochs`, never lengthens it.",
        low=1,
        high=10_000,
        aliases=("epoch", "num_epochs", "n_epochs", "max_epochs"),
    ),
    Hyperparameter(
        "model",
        "text",
        None,
        "Name of a classification model, with its weights and their preprocessing, by default the one that "
        "`ImageClassifier` names.",
        aliases=("architecture", "arch", "backbone", "network", "net"),
    ),
    Hyperparameter(
        "pooling",
        "categorical",
        None,
        "What the head of a vision transformer sees: the class `token`, the `mean` of the patches without registers, "
        "or both (`token+mean`), after the final norm; by default what it sees in its library.",
        choices=POOLINGS,
        aliases=("pool", "global_pool", "pooling_type", "head_input"),
    ),
    Hyperparameter(
        "blocks",
        "int",
        1,
        "How many of the last blocks the head sees by `pooling`, joined as in DINOv2's linear evaluation: the class "
        "tokens, the means, or with `token+mean` the class tokens and the mean of the last block.",
        low=min(BLOCKS),
        high=max(BLOCKS),
        choices=BLOCKS,
        aliases=("last_blocks", "n_blocks", "num_blocks", "n_last_blocks"),
    ),
    # What learns
    Hyperparameter(
        "finetune",
        "categorical",
        "all",
        "`all` layers learn; or only the `head`: the last layer and all other layers without pretrained weights, while "
        "the rest is frozen with its batch-norm statistics; or `gradual`: the head first, then one more stage every "
        "`unfreeze_every` epochs, from the last to the first; or `lp-ft` (linear probing, then fine-tuning; Kumar et "
        "al. 2022): the head for `probe_epochs`, on images that aren't augmented, then all layers.",
        choices=("all", "head", "gradual", "lp-ft"),
        aliases=("fine_tune", "finetuning", "freeze"),
    ),
    Hyperparameter(
        "unfreeze_every",
        "int",
        1,
        "Epochs between two stages of `gradual`.",
        low=1,
        high=1_000,
    ),
    Hyperparameter(
        "probe_epochs",
        "int",
        None,
        "Epochs of `lp-ft` in which the head alone learns, by default a third of the trial.",
        low=1,
        high=10_000,
        aliases=("linear_probe_epochs", "head_epochs"),
    ),
    Hyperparameter(
        "probe_lr",
        "float",
        None,
        "Learning rate of these epochs at its highest, by default `lr`. The schedule runs once for them, and once for "
        "the others.",
        low=1e-8,
        high=10,
        log=True,
        aliases=("head_lr", "linear_probe_lr"),
        costs=False,
    ),
    Hyperparameter(
        "backbone_lr_scale",
        "float",
        1.0,
        "Learning rate of pretrained layers, as a share of `lr`. Layers without pretrained weights learn at `lr`.",
        low=0,
        high=10,
        log=True,
        aliases=("backbone_lr", "backbone_lr_factor"),
        costs=False,
    ),
    Hyperparameter(
        "layer_decay",
        "float",
        1.0,
        "Layer-wise decay: each stage learns at this share of the rate of the stage after it.",
        low=0.01,
        high=1,
        aliases=("layerwise_decay", "layer_wise_decay", "lr_decay"),
        costs=False,
    ),
    Hyperparameter(
        "freeze_batch_norm",
        "bool",
        False,
        "Batch norms keep the statistics, scales and shifts of the weights, whatever else learns.",
        aliases=("frozen_batch_norm", "freeze_bn", "frozen_bn"),
    ),
    Hyperparameter(
        "stem",
        "categorical",
        "new",
        "First convolution where the images have other channels than the weights: a `new` one, or the pretrained "
        "kernels with the `sum` over their channels.",
        choices=("new", "sum"),
    ),
    # The optimizer
    Hyperparameter(
        "lr",
        "float",
        1e-3,
        "Learning rate at its highest.",
        low=1e-8,
        high=10,
        log=True,
        aliases=("learning_rate", "learningrate", "eta", "step_size", "max_lr"),
        costs=False,
    ),
    Hyperparameter(
        "batch_size",
        "int",
        64,
        "Images per step; batch norm needs at least two.",
        low=2,
        high=65_536,
        log=True,
        aliases=("batch", "bs", "batchsize"),
    ),
    Hyperparameter(
        "optimizer",
        "categorical",
        "adam",
        "Adam, AdamW (weight decay apart from the gradient), or stochastic gradient descent with momentum. With "
        "`finetune='head'` also `lbfgs`, which solves the last layer, mostly in the first epoch: it takes "
        "`weight_decay`, `label_smoothing` and `class_weights`, and ignores what else is said of learning.",
        choices=("adam", "adamw", "sgd", "lbfgs"),
        aliases=("opt", "optim", "optimiser"),
    ),
    Hyperparameter(
        "momentum",
        "float",
        0.9,
        "Momentum of `sgd`; the other optimizers ignore it.",
        low=0,
        high=0.9999,
        aliases=("beta", "mom"),
    ),
    Hyperparameter(
        "nesterov",
        "bool",
        False,
        "Nesterov's momentum for `sgd`.",
        costs=False,
    ),
    Hyperparameter(
        "weight_decay",
        "float",
        0.0,
        "Weight decay; it leaves out biases and the weights of normalisation layers.",
        low=0,
        high=1,
        log=True,
        aliases=("wd", "l2", "decay"),
        costs=False,
    ),
    Hyperparameter(
        "clip_norm",
        "float",
        0.0,
        "Largest norm of the whole gradient; 0: not clipped.",
        low=0,
        high=1e6,
        log=True,
        aliases=("grad_clip", "gradient_clipping", "max_norm", "clip"),
    ),
    # Over the epochs
    Hyperparameter(
        "schedule",
        "categorical",
        "constant",
        "Learning rate over the trial: `constant`, `cosine` to zero, `one-cycle` (up for 30 % of it, then down), "
        "or `step` (times `step_factor` every `step_epochs`).",
        choices=("constant", "cosine", "one-cycle", "step"),
        aliases=("scheduler", "lr_schedule", "lr_scheduler"),
        costs=False,
    ),
    Hyperparameter(
        "warmup_epochs",
        "float",
        0.0,
        "Epochs in which the learning rate rises to `lr`.",
        low=0,
        high=1_000,
        aliases=("warmup", "warm_up"),
        costs=False,
    ),
    Hyperparameter(
        "step_epochs",
        "int",
        None,
        "Epochs between two steps of `step`, by default a third of the trial.",
        low=1,
        high=10_000,
        costs=False,
    ),
    Hyperparameter(
        "step_factor",
        "float",
        0.1,
        "What `step` multiplies the learning rate by.",
        low=1e-6,
        high=1,
        log=True,
        aliases=("gamma",),
        costs=False,
    ),
    Hyperparameter(
        "ema_decay",
        "float",
        0.0,
        "Decay of the weights' exponential moving average, which is then what is validated and kept; 0: none.",
        low=0,
        high=0.99999,
        aliases=("ema",),
    ),
    Hyperparameter(
        "precision",
        "categorical",
        "tf32",
        "Type of the arithmetic in matrix products and convolutions: float32, on newer GPUs rounded to TF32's 10 bits "
        "of mantissa (`tf32`) or not (`fp32`: slower there, elsewhere the same); `bf16`; `fp16`, its gradients scaled.",
        choices=("tf32", "fp32", "bf16", "fp16"),
        aliases=("amp", "dtype", "mixed_precision"),
    ),
    Hyperparameter(
        "quantization",
        "categorical",
        "none",
        "`int8`: answers are those of a network whose layers before the last one are quantised to 8 bits (static "
        "quantisation by onnxruntime, ranges by 64 training images): in validation, in the test, in `predict` and in "
        "exports. Training stays in floating point. Needs the extra `onnx`.",
        choices=("none", INT8),
        aliases=("quantisation", "quantize", "quantise", "int8", "bits"),
    ),
    # The loss
    Hyperparameter(
        "label_smoothing",
        "float",
        0.0,
        "Share of the target that is spread over all classes; in the training loss only.",
        low=0,
        high=0.9,
        aliases=("smoothing",),
        costs=False,
    ),
    Hyperparameter(
        "class_weights",
        "categorical",
        "none",
        "`balanced` weighs a class in the training loss by the inverse of its share of the images.",
        choices=("none", "balanced"),
        aliases=("class_weight", "weighted_loss"),
        costs=False,
    ),
    Hyperparameter(
        "dropout",
        "float",
        0.0,
        "Dropout before the head, in addition to the model's own dropout.",
        low=0,
        high=0.95,
        aliases=("drop", "dropout_rate"),
    ),
    Hyperparameter(
        "stochastic_depth",
        "float",
        None,
        "Share of images for which the last residual block is left out in training, in proportion less for earlier "
        "ones (Huang et al. 2016); by default the model's own. EfficientNet, ConvNeXt, Swin and MaxViT of "
        "torchvision have it, most models of timm, and those of the hub whose configuration has `drop_path_rate`.",
        low=0,
        high=0.9,
        aliases=("drop_path", "drop_path_rate", "stochastic_depth_prob"),
    ),
    *(row for task in TASKS.values() for row in task.hyperparameters),
    *IMAGES,
    # On several devices
    Hyperparameter(
        "strategy",
        "categorical",
        None,
        "How the trial uses several devices, instead of what `Resources` says.",
        choices=tuple(STRATEGIES),
        aliases=("parallel", "parallelism"),
        costs=False,
    ),
    Hyperparameter(
        "sync_batch_norm",
        "bool",
        False,
        "Batch norm over the images of all devices under `ddp`, instead of those of each device alone.",
        aliases=("synchronised_batch_norm", "sync_bn", "syncbn"),
        costs=False,
    ),
    Hyperparameter(
        "pipeline_micro_batches",
        "int",
        None,
        "Parts of a batch that stream through the stages of `pipeline`, by default four for each stage.",
        low=1,
        high=65_536,
        log=True,
        aliases=("micro_batches", "num_micro_batches", "chunks"),
        costs=False,
    ),
    Hyperparameter(
        "pipeline_split",
        "text",
        None,
        "Names of the blocks that stages after the first begin with, as in `layer2.0 layer3.0`; by default tuner "
        "measures the blocks and chooses the split whose slowest stage is fastest.",
        aliases=("split", "split_points"),
        costs=False,
    ),
)

OF_A_LIBRARYS_MODEL = ("model", "pooling", "blocks")  # to a function they mean what the function takes them for

HYPERPARAMETERS: dict[str, Hyperparameter] = {row.name: row for row in TABLE}


def find(name: str, owner: str = "ImageClassifier") -> Hyperparameter:
    """The row called `name`.

    Raises:
        StudyError: no hyperparameter has this name; the message names the nearest one.
    """
    if name in HYPERPARAMETERS:
        return HYPERPARAMETERS[name]
    near = nearest(name)
    hint = f"did you mean '{near}'?" if near else f"it has {', '.join(HYPERPARAMETERS)}"
    raise StudyError(f"'{name}' is not a hyperparameter of {owner}; {hint}")


def means(name: str) -> str | None:
    """The hyperparameter of which `name` is an alias, None if there is none."""
    return next((row.name for row in TABLE if name.lower() in row.aliases), None)


def nearest(name: str) -> str | None:
    """The hyperparameter that `name` most likely means, by alias or spelling; of a dotted name the last part counts."""
    spellings = spellings_of(TABLE)
    found = closest(name.lower().rpartition(".")[2], spellings)
    return spellings[found] if found else None


def closest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` whose spelling is nearest to `word`, or None if none is near."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1)), None)


def markdown() -> str:
    """The table as Markdown, for the documents."""
    head = "| hyperparameter | kind | range | default | meaning |\n|---|---|---|---|---|"
    return "\n".join([head, *(_markdown_row(row) for row in TABLE)])


def _markdown_row(row: Hyperparameter) -> str:
    default = "–" if row.default is None else f"{row.default}"  # noqa: RUF001 -- a dash, as in a printed table
    scale = ", log" if row.log else ""
    return f"| `{row.name}` | {row.kind} | {row.range}{scale} | {default} | {row.meaning} |"
