import pytest
import torch

from tuner.errors import TrialOutOfMemory
from tuner.train.memory import is_out_of_memory, memory_errors


def test_a_real_failure_to_allocate_becomes_out_of_memory() -> None:
    with pytest.raises(TrialOutOfMemory) as caught, memory_errors("a step of 32 images"):
        torch.empty(2**50, dtype=torch.uint8)
    assert str(caught.value).startswith("a step of 32 images needs more memory than there is (")
    assert str(caught.value).endswith("); lower batch_size")
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_signs_of_exhaustion_are_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_other_errors_pass_as_they_are() -> None:
    error = RuntimeError("CUDA error: device-side assert triggered")
    with pytest.raises(RuntimeError) as caught, memory_errors("a step"):
        raise error
    assert caught.value is error
