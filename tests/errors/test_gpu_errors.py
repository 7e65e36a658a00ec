import pytest
import torch

from tuner.errors import TrialOutOfMemory, describe_failure
from tuner.errors.gpu_errors import advice, context_is_dead, dead_context, is_device_fault

BOILERPLATE = """
Search for `cudaErrorMisalignedAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
DEAD = [
    torch.AcceleratorError(f"CUDA error: misaligned address{BOILERPLATE}"),
    torch.AcceleratorError(f"CUDA error: an illegal instruction was encountered{BOILERPLATE}"),
    torch.AcceleratorError(f"CUDA error: an illegal memory access was encountered{BOILERPLATE}"),
    torch.AcceleratorError(f"CUDA error: device-side assert triggered{BOILERPLATE}"),
    torch.AcceleratorError("an accelerator without CUDA's words"),
    RuntimeError(f"CUDA error: unspecified launch failure{BOILERPLATE}"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    RuntimeError("CUDA driver error: an illegal memory access was encountered"),
    RuntimeError("HIP error: an illegal memory access was encountered"),
]
FAULTS = [
    torch.AcceleratorError(f"CUDA error: uncorrectable ECC error encountered{BOILERPLATE}"),
    torch.AcceleratorError(f"CUDA error: the launch timed out and was terminated{BOILERPLATE}"),
    torch.AcceleratorError("CUDA error: the remote procedural call between the MPS server and the MPS client failed"),
    torch.AcceleratorError("CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server"),
    torch.AcceleratorError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
]
ALIVE = [
    torch.AcceleratorError(f"CUDA error: out of memory{BOILERPLATE}"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError(
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input."
    ),
    RuntimeError("Expected all tensors to be on the same device"),
    ValueError("CUDA error: no error of torch's"),
    MemoryError(),
]


def caused_by(error: BaseException) -> RuntimeError:
    """The error as a cause, as where a user's code raises its own."""
    try:
        raise RuntimeError("training failed") from error
    except RuntimeError as raised:
        return raised


@pytest.mark.parametrize("error", DEAD + FAULTS, ids=lambda error: str(error).splitlines()[0])
def test_a_process_whose_context_is_dead_is_told(error: BaseException) -> None:
    assert context_is_dead(error)
    assert context_is_dead(caused_by(error))
    assert is_device_fault(error) == (error in FAULTS)


@pytest.mark.parametrize("error", ALIVE, ids=lambda error: str(error).splitlines()[0] if str(error) else "empty")
def test_one_that_goes_on_is_told(error: BaseException) -> None:
    assert not context_is_dead(error)
    assert not context_is_dead(caused_by(error))
    assert not is_device_fault(error)


def test_memory_that_ran_out_does_not_replace_the_worker_whatever_it_was_called() -> None:
    error = TrialOutOfMemory("too big")
    error.__cause__ = ALIVE[0]
    assert not context_is_dead(error)


def test_what_a_trial_is_told_says_what_to_look_at() -> None:
    cause, message, _ = describe_failure(DEAD[3])
    assert cause == "error"
    assert message == (
        "AcceleratorError: CUDA error: device-side assert triggered; most often a label lies outside the model's classes"
    )
    assert describe_failure(DEAD[0])[1].endswith(
        "misaligned address; set CUDA_LAUNCH_BLOCKING=1 to see which operation it was"
    )
    assert describe_failure(FAULTS[0])[0] == "lost"
    assert "nvidia-smi -q -d ECC" in advice(FAULTS[0])


def test_an_error_that_comes_of_itself_ends_the_search_for_causes() -> None:
    error = caused_by(ValueError("first"))
    error.__cause__.__cause__ = error  # type: ignore[union-attr]
    assert not context_is_dead(error)


def test_a_swallowed_error_is_found_when_the_gpu_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: only a GPU can raise it by itself."""
    asked = []

    def synchronize(device: int) -> None:
        asked.append(device)
        raise DEAD[0]

    assert dead_context() is None  # CUDA isn't initialised
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    assert dead_context() is None  # no context is made to find out
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**20 * device)
    assert dead_context() is DEAD[0]
    assert asked == [1]
