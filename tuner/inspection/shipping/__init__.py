"""The winner as files that other programs use: ONNX, torch.export, safetensors; each checked against the original."""

from tuner.inspection.shipping.writing import FORMS, Form, ship

__all__ = ["FORMS", "Form", "ship"]
