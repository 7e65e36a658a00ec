"""Where a model looked: Grad-CAM, laid over the images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.train.memory.errors import is_out_of_memory
from tuner.trial.models import ModelFacts

COARSEST = 4  # positions along either edge that a map needs to be useful
AT_ONCE = 16  # images
WITHOUT_MAPS = ("vit", "swin", "maxvit")  # models whose last layers are attention, without a map of positions
HEAT = ((0.0, 0.0, 0.1), (0.45, 0.05, 0.45), (0.9, 0.3, 0.15), (1.0, 0.95, 0.4))  # dark to bright, clear without hue
SHARE = 0.6  # of the heat map in the overlay; the rest is the image in grey

Normalise = Callable[[Tensor], Tensor]


def has_maps(facts: ModelFacts) -> bool:
    """Whether the last layers of a library's model are convolutions, with maps of positions."""
    return not facts.fixed_size and not facts.name.startswith(WITHOUT_MAPS)  # one size: positions, and so attention


def saliency(
    module: nn.Module, images: Tensor, answers: Tensor, normalise: Normalise, device: torch.device
) -> Tensor | None:
    """How much each position of each image contributed to the prediction; None if the model has no such maps.

    Grad-CAM (Selvaraju et al. 2017) at the last block whose map has at least 4 by 4 places.

    Args:
        module: on the device, in evaluation mode
        images: [N, C, H, W] as they are stored
        answers: [N] int64, the classes that are explained
        normalise: from images to what the model takes
        device: where to compute

    Returns:
        [N, H, W] float32 from 0 to 1, on the CPU
    """
    try:
        block = last_block(module, normalise(images[:1].to(device)))
        if block is None:
            return None
        parts = zip(torch.split(images, AT_ONCE), torch.split(answers, AT_ONCE), strict=True)
        maps = [_maps(module, block, normalise(part.to(device)), asked.to(device)) for part, asked in parts]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None
    return torch.cat(maps).cpu()


def last_block(module: nn.Module, inputs: Tensor) -> nn.Module | None:
    """The last part of the module whose output maps have at least 4 by 4 places."""
    found: list[nn.Module] = []

    def note(part: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[2:]) >= COARSEST:
            found.append(part)

    hooks = [part.register_forward_hook(note) for part in module.modules() if part is not module]
    try:
        with torch.no_grad():
            module.forward(inputs)  # without its mirror image
    finally:
        for hook in hooks:
            hook.remove()
    return found[-1] if found else None


def overlay(image: Tensor, place_map: Tensor) -> Tensor:
    """The image [1 or 3, H, W] uint8 or of floats from 0 to 1 in grey, under its map [H, W]: [3, H, W] float32."""
    grey = (image.float() / 255 if image.dtype == torch.uint8 else image).mean(0).clamp(0, 1)
    stops = torch.tensor(HEAT)
    place = place_map.clamp(0, 1) * (len(HEAT) - 1)
    below = place.floor().long().clamp(max=len(HEAT) - 2)
    heat = torch.lerp(stops[below], stops[below + 1], (place - below)[..., None])
    return SHARE * heat.permute(2, 0, 1) + (1 - SHARE) * grey


# Inside


def _maps(module: nn.Module, block: nn.Module, inputs: Tensor, answers: Tensor) -> Tensor:
    """Maps [N, H, W] of one batch."""
    put_out: list[Tensor] = []

    def keep(_: nn.Module, __: object, output: Tensor) -> Tensor:
        put_out[:] = [output.detach().requires_grad_()]
        return put_out[0] * 1  # later layers may change it in place

    hook = block.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            logits = module.forward(inputs)
            chosen = logits.gather(1, answers[:, None]).sum()
            slopes = torch.autograd.grad(chosen, put_out[0])[0]
    finally:
        hook.remove()
    weights = slopes.mean((2, 3), keepdim=True)
    maps = (weights * put_out[0].detach()).sum(1, keepdim=True).relu()
    maps = F.interpolate(maps.float(), size=inputs.shape[-2:], mode="bilinear", align_corners=False)[:, 0]
    return maps / maps.amax((1, 2), keepdim=True).clamp(min=1e-12)
