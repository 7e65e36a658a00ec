"""The winner as files that other programs use: ONNX, torch.export, safetensors; each checked against the original."""

from tuner.inspection.shipping.forms import FORMS, Form
from tuner.inspection.shipping.writing import ship

__all__ = ["FORMS", "Form", "ship"]
