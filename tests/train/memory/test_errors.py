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


def accelerator_error(message: str, code: int) -> torch.AcceleratorError:
    error = torch.AcceleratorError(message)
    error.error_code = code  # as torch sets it
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (accelerator_error("CUDA error: out of memory", 2), True),
        (accelerator_error("CUDA error", 2), True),
        (accelerator_error("CUDA error: misaligned address", 716), False),
    ],
)
def test_an_accelerators_error_is_told_by_its_code(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


DOUBTFUL = [
    "Unable to find a valid cuDNN algorithm to run convolution",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
]


def with_free(monkeypatch: pytest.MonkeyPatch, free: float, total: float, share: float, reserved: float) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free), int(total)))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: int(reserved))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: share)


@pytest.mark.parametrize("message", DOUBTFUL)
@pytest.mark.parametrize(
    ("free", "total", "share", "reserved", "expected"),
    [
        (3e9, 80e9, 1.0, 0, True),
        (5e9, 80e9, 1.0, 0, False),
        (0.9e9, 8e9, 1.0, 0, True),
        (2e9, 8e9, 1.0, 0, False),
        (60e9, 80e9, 0.1, 7.5e9, True),  # it has nearly used up its part
        (60e9, 80e9, 0.1, 5e9, False),
        (3e9, 80e9, 0.1, 0, False),
    ],
)
def test_errors_of_many_causes_mean_memory_only_where_little_of_it_can_be_taken(
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    free: float,
    total: float,
    share: float,
    reserved: float,
    expected: bool,
) -> None:
    with_free(monkeypatch, free, total, share, reserved)
    assert is_out_of_memory(RuntimeError(message)) is expected
    assert not is_out_of_memory(ValueError(message))


@pytest.mark.parametrize("message", DOUBTFUL)
def test_they_never_mean_it_without_a_gpu(message: str) -> None:
    assert torch.cuda.is_available() or not is_out_of_memory(RuntimeError(message))


def test_other_errors_pass_as_they_are() -> None:
    error = RuntimeError("CUDA error: device-side assert triggered")
    with pytest.raises(RuntimeError) as caught, memory_errors("a step"):
        raise error
    assert caught.value is error
