"""The formats of an exported winner: how each is written, how its file is run, and how its card describes its use."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tuner.errors import RunFolderError, describe_error
from tuner.inspection.best import LoadedModel, declared_trial
from tuner.inspection.shipping.examples import Examples
from tuner.inspection.shipping.hub_layout import Reader, hub_network, readers, write_hub
from tuner.inspection.shipping.on_devices import openvino_answers, write_openvino
from tuner.train.data.normalisation import LEVELS, Normalisation
from tuner.train.models import builder
from tuner.train.models.eight_bits import save_as_it_answers
from tuner.train.models.onnx_files import BATCH, IMAGES, LARGEST_BATCH, METADATA, onnx_session, write_int8
from tuner.trial.inference_cost import OF_ONNX
from tuner.trial.pixels import NO_DEEP

Form = Literal["onnx", "int8", "openvino", "torch-export", "safetensors", "hub"]
FORMS: tuple[str, ...] = get_args(Form)
HALF, INT8 = "model_fp16.onnx", "model_int8.onnx"
FLOAT32 = "float32.onnx"  # beside a form that is made of it, until both are measured
TRACED_IMAGES = 2  # a batch of one would become a fixed size

# How `predict.py` begins: `LIBRARY`, `MODEL`, which may be several lines, and `ANSWER` are those of a form.
SCRIPT = '''\
"""Answers to images: python predict.py IMAGE … (needs LIBRARY, numpy and pillow, nothing else)."""
import json
import sys
from pathlib import Path

import LIBRARY
import numpy as np
from PIL import Image

facts = json.loads(Path(__file__).with_name("model.json").read_text(encoding="utf-8"))
MODEL


def answer(pixels):
    """What the model answers: a probability for each label, or a number."""
    return ANSWER
'''


def _script(library: str, model: str, answer: str) -> str:
    return SCRIPT.replace("LIBRARY", library).replace("MODEL", model).replace("ANSWER", answer)


ONNX_MODEL = """\
session = onnxruntime.InferenceSession(Path(__file__).with_name(facts["file"]), providers=["CPUExecutionProvider"])"""
ONNX_SCRIPT = _script("onnxruntime", ONNX_MODEL, 'session.run(None, {"images": pixels[None]})[0][0]')
OPENVINO_MODEL = """\
settings = {"INFERENCE_PRECISION_HINT": "f32"}
model = openvino.Core().compile_model(Path(__file__).with_name("model.xml"), "CPU", settings)"""
OPENVINO_SCRIPT = _script("openvino", OPENVINO_MODEL, "model(pixels[None])[0][0]")
TORCH_EXPORT_MODEL = 'model = torch.export.load(Path(__file__).with_name("model.pt2")).module()'
TORCH_EXPORT_SCRIPT = _script("torch", TORCH_EXPORT_MODEL, "model(torch.from_numpy(pixels.copy())[None])[0].detach()")
SAFETENSORS_SCRIPT = '''\
"""Answers to images: python predict.py IMAGE … (needs what is imported here, nothing else)."""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

facts = json.loads(Path(__file__).with_name("model.json").read_text(encoding="utf-8"))
'''
SAFETENSORS_ANSWER = '''\
model.load_state_dict(load_file(Path(__file__).with_name("model.safetensors")))
mean, sd = (torch.tensor(facts[name]).view(-1, 1, 1) for name in ("mean", "sd"))


@torch.inference_mode()
def answer(pixels):
    """What the model answers: a probability for each label, or a number."""
    image = (torch.from_numpy(pixels.copy())[None] / 255 - mean) / sd
    views = [image, image.flip(-1)] if facts["test_time_flip"] else [image]
    return torch.stack([logits(view) for view in views]).mean(0).FINISH
'''
FINISH = "FINISH"  # see `Answers.finish`

Write = Callable[[LoadedModel, Path, Examples], Mapping[str, Any] | None]
Answers = Callable[[np.ndarray], np.ndarray]  # images [N, C, H, W] uint8 to probabilities [N, classes]


def write_onnx(loaded: LoadedModel, file: Path, *, half: bool = False) -> int:
    """Write an ONNX file; returns its opset. Raises RunFolderError if ONNX can't express the network."""
    try:
        return save_as_it_answers(
            whole(loaded, half=half), _example(loaded), file, output=loaded.answers.output, facts=facts_of(loaded)
        )
    except Exception as error:  # any operator without a counterpart
        raise _cant_express("ONNX", loaded, error) from error


def onnx_answers(file: Path) -> Answers:
    """The probabilities of an ONNX file, by onnxruntime on the CPU."""
    session = onnx_session(file)
    return lambda images: np.asarray(session.run(None, {IMAGES: images})[0])


def write_torch_export(loaded: LoadedModel, file: Path) -> None:
    """Write a program of torch.export. Raises RunFolderError if the network can't be traced."""
    dim = torch.export.Dim(BATCH, min=1, max=LARGEST_BATCH)
    try:
        with warnings.catch_warnings(action="ignore"):
            program = torch.export.export(whole(loaded), (_example(loaded),), dynamic_shapes=({0: dim},))
            torch.export.save(program, file)
    except Exception as error:
        raise _cant_express("torch.export", loaded, error) from error


def torch_export_answers(file: Path) -> Answers:
    """The probabilities of a program of torch.export."""
    module = torch.export.load(file).module()
    return lambda images: np.asarray(module(torch.from_numpy(images)).detach().numpy())


def write_safetensors(loaded: LoadedModel, file: Path) -> None:
    """Write the network's weights under its library's names, with the facts in the file's header and in model.json."""
    file.with_name("model.json").write_text(json.dumps(facts_of(loaded)), encoding="utf-8")
    state = {name: value.contiguous().clone() for name, value in loaded.module.state_dict().items()}
    save_file(state, file, metadata={METADATA: json.dumps(facts_of(loaded))})


def safetensors_answers(file: Path, loaded: LoadedModel) -> Answers:
    """The probabilities that predict.py gives for the file's weights; without such a script, the loaded model."""
    script = safetensors_script(loaded)
    if script is not None:
        names: dict[str, Any] = {"__file__": str(file)}
        exec(script, names)
        return lambda images: np.stack([np.asarray(names["answer"](image)) for image in images])
    loaded.module.load_state_dict(load_file(file))
    return original_answers(loaded)


def safetensors_script(loaded: LoadedModel) -> str | None:
    """How predict.py makes the network and answers; None if its library's own model with the weights is another one."""
    if loaded.card.is_function or loaded.card.parts:
        return None
    made = builder(declared_trial(loaded.card).model_facts).script
    inputs = loaded.card.inputs
    row = torch.linspace(-1, 1, inputs.image_size)[:, None]  # both views of such an image are the same
    image = row.expand(1, inputs.channels, inputs.image_size, inputs.image_size)
    try:
        names: dict[str, Any] = {"torch": torch, "facts": facts_of(loaded)}
        exec(made, names)
        names["model"].load_state_dict(loaded.module.state_dict())
        with torch.inference_mode():
            same = torch.allclose(names["logits"](image), loaded.module(image), rtol=1e-3, atol=1e-3)
    except (RuntimeError, ValueError, TypeError):  # other channels, or the networks of a cross-validation
        return None
    answer = SAFETENSORS_ANSWER.replace(FINISH, loaded.answers.finish)
    return f"{SAFETENSORS_SCRIPT}{made}{answer}" if same else None  # the head may see other tokens


def hub_answers(file: Path, loaded: LoadedModel) -> Answers:
    """The probabilities of the network that its library loads from the file's folder."""
    return original_answers(replace(loaded, module=hub_network(file.parent)))


def original_answers(loaded: LoadedModel) -> Answers:
    """The probabilities of the winner itself."""
    model = whole(loaded)
    return lambda images: np.asarray(_probabilities(model, images))


def _probabilities(model: WholeModel, images: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return np.asarray(model(torch.from_numpy(images)).numpy())


def _example(loaded: LoadedModel) -> torch.Tensor:
    size = loaded.card.inputs.image_size
    return torch.zeros(TRACED_IMAGES, loaded.card.inputs.channels, size, size, dtype=torch.uint8)


def _cant_express(form: str, loaded: LoadedModel, error: Exception) -> RunFolderError:
    return RunFolderError(
        f"{form} needs a network that can be traced, got {loaded.card.model} with {describe_error(error)}; "
        "use --to safetensors"
    )


def _write_onnx_and_its_half(loaded: LoadedModel, file: Path, shown: Examples) -> Mapping[str, Any]:
    if not loaded.quantised:
        write_onnx(loaded, file.with_name(HALF), half=True)
    return {"opset": write_onnx(loaded, file)}


def _write_int8(loaded: LoadedModel, file: Path, shown: Examples) -> Mapping[str, Any]:
    images = shown.training
    if images is None:
        raise RunFolderError(
            f"an export to int8 needs training images, which set the ranges of activations, got none: {shown.missing}; "
            "bring the data back, or use --to onnx"
        )
    metadata = {METADATA: json.dumps(facts_of(loaded))}
    opset = _write_of_onnx(loaded, file, "int8", lambda float32: write_int8(float32, file, images, metadata))
    return {"opset": opset, "calibrated": len(images)}


def _write_of_onnx(loaded: LoadedModel, file: Path, form: str, write: Callable[[Path], None]) -> int:
    """Write `FLOAT32` and what is made of it; returns the opset."""
    opset = write_onnx(loaded, file.with_name(FLOAT32))
    try:
        write(file.with_name(FLOAT32))
    except Exception as error:  # any operator without a counterpart
        raise _cant_express(form, loaded, error) from error
    return opset


@dataclass(frozen=True)
class Shipped:
    """How a form is written and used.

    Attributes:
        file: its name
        write: writes the file, and others beside it; facts for model.json. The examples are for what is quantised
        answers: gives the probabilities of such a file
        use: what the card says of it; facts of model.json, `classes`, `output` and `answering` stand in braces
        script: how `predict.py` begins: `facts`, as in model.json, and `answer`, which gives an image's answers; None
            if it could not work
        others: further files with the same predictions, less exactly
        libraries: needed to write it
        extras: of tuner, which have these
        exact: whether its answers must be the original's
        float32: whether it is made of `FLOAT32`, beside which its loss of accuracy and its time are measured
        readers: gives the libraries that read image files for it; None if `script` does
    """

    file: str
    write: Write
    answers: Callable[[Path, LoadedModel], Answers]
    use: str
    script: Callable[[LoadedModel], str | None]
    others: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    extras: str = "onnx"
    exact: bool = True
    float32: bool = False
    readers: Callable[[Path, tuple[str, ...]], Mapping[str, Reader]] | None = None


IN_AND_OUT = (
    "takes `images`, uint8 [batch, {channels}, {image_size}, {image_size}], and gives `{output}`, float32 [batch, "
    "{classes}], in the order of the labels. Normalisation and {answering} are inside; the batch may have any size."
)
SHIPPED: Mapping[str, Shipped] = {
    "onnx": Shipped(
        "model.onnx",
        _write_onnx_and_its_half,
        lambda file, loaded: onnx_answers(file),
        f"`model.onnx` {IN_AND_OUT} Opset {{opset}}. The labels, and what comes before, are in its metadata, as JSON "
        "under `tuner`.",
        lambda loaded: ONNX_SCRIPT,
        others=(HALF,),
        libraries=OF_ONNX,
    ),
    "int8": Shipped(
        INT8,
        _write_int8,
        lambda file, loaded: onnx_answers(file),
        f"`{INT8}` {IN_AND_OUT} Opset {{opset}}. Weights are in 8 bits per channel, activations in 8 bits per tensor, "
        "whose ranges come from {calibrated} training images (static quantisation, QDQ). The labels, and what comes "
        "before, are in its metadata, as JSON under `tuner`.",
        lambda loaded: ONNX_SCRIPT,
        libraries=OF_ONNX,
        exact=False,
        float32=True,
    ),
    "openvino": Shipped(
        "model.xml",
        lambda loaded, file, shown: {
            "opset": _write_of_onnx(loaded, file, "OpenVINO", lambda float32: write_openvino(float32, file))
        },
        lambda file, loaded: openvino_answers(file),
        f"`model.xml`, with its weights in `model.bin`, {IN_AND_OUT} It is OpenVINO's IR, in float32.",
        lambda loaded: OPENVINO_SCRIPT,
        libraries=("openvino", *OF_ONNX),
        extras="openvino",
        float32=True,
    ),
    "torch-export": Shipped(
        "model.pt2",
        lambda loaded, file, shown: write_torch_export(loaded, file),
        lambda file, loaded: torch_export_answers(file),
        "`torch.export.load('model.pt2').module()` takes uint8 [batch, {channels}, {image_size}, "
        "{image_size}] and gives {output}, float32 [batch, {classes}], in the order of the labels. Normalisation "
        "and {answering} are inside; the batch may have any size.",
        lambda loaded: TORCH_EXPORT_SCRIPT,
    ),
    "safetensors": Shipped(
        "model.safetensors",
        lambda loaded, file, shown: write_safetensors(loaded, file),
        safetensors_answers,
        "`model.safetensors` has the weights of `{model}` under torch's names. The network takes float32 "
        "[batch, {channels}, {image_size}, {image_size}], pixels from 0 to 1 with `mean` subtracted and divided by "
        "`sd` (both in `model.json`), and gives outputs before {answering}, in the order of the labels.",
        safetensors_script,
    ),
    "hub": Shipped(
        "model.safetensors",
        lambda loaded, file, shown: write_hub(loaded, file),
        hub_answers,
        "This folder has the layout of the Hugging Face hub. `transformers.pipeline('image-classification', "
        "model='FOLDER')` and `AutoModelForImageClassification.from_pretrained('FOLDER')` load it{by_timm}.",
        lambda loaded: None,
        libraries=("timm", "transformers"),
        extras="hf,timm",
        readers=readers,
    ),
}


class WholeModel(nn.Module):
    """Images [N, channels, size, size] uint8 to answers [N, L] float32: probabilities, or numbers."""

    def __init__(
        self, network: nn.Module, normalisation: Normalisation, answers: Callable[[Tensor], Tensor], *, half: bool
    ) -> None:
        """Take the network, in float16 if `half`; normalisation and what makes `answers` stay in float32."""
        super().__init__()
        self.network = deepcopy(network).half() if half else network
        self.half_precision, self.answers = half, answers
        self.register_buffer("mean", torch.tensor(normalisation.mean).mul(LEVELS).view(-1, 1, 1))
        self.register_buffer("sd", torch.tensor(normalisation.sd).mul(LEVELS).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        values = (images.float() - self.get_buffer("mean")) / self.get_buffer("sd")
        logits: Tensor = self.network(values.half() if self.half_precision else values)
        return self.answers(logits.float())


def whole(loaded: LoadedModel, *, half: bool = False) -> WholeModel:
    """The whole of a run's winner, in evaluation mode."""
    return WholeModel(loaded.module, loaded.card.inputs.normalisation, loaded.answers.targets.answers, half=half).eval()


def facts_of(loaded: LoadedModel) -> dict[str, Any]:
    """The facts that a program needs to use the model, as plain data."""
    card = loaded.card
    return {
        "labels": list(card.classes),
        "channels": card.inputs.channels,
        "image_size": card.inputs.image_size,
        "resize": card.inputs.resize,
        "interpolation": card.inputs.interpolation,
        "squash": card.inputs.squash,
        "scale": asdict(card.inputs.scale or NO_DEEP),
        "mean": list(card.inputs.normalisation.mean),
        "sd": list(card.inputs.normalisation.sd),
        "model": card.model,
        "test_time_flip": card.test_time_flip,
        "answers": loaded.answers.facts,
    } | ({} if card.is_function or card.parts else {"network": _settings(loaded)})


def _settings(loaded: LoadedModel) -> Mapping[str, Any]:
    """With which arguments the model's library makes the network."""
    facts = declared_trial(loaded.card).model_facts.for_images(loaded.card.inputs.image_size)
    return builder(facts).settings(facts)
