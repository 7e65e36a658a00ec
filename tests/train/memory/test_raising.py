import pytest
import torch

from tuner.train.memory.raising import room_for_twice

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("held", "peak", "reserved", "free", "share", "expected"),
    [
        (1e9, 5e9, 5e9, 70e9, 1.0, True),  # 4 GB of activations, 74 beyond what is held
        (1e9, 5e9, 5e9, 4e9, 1.0, False),  # 8 of 8: some of it lies in pieces
        (1e9, 5e9, 5e9, 5e9, 1.0, True),
        (1e9, 5e9, 5e9, 70e9, 0.1, False),  # of 80 GB this process may have 8
        (1e9, 5e9, 13e9, 0.1e9, 1.0, True),  # kept by the allocator
    ],
)
def test_there_is_room_where_twice_the_activations_fit(
    monkeypatch: pytest.MonkeyPatch,
    held: float,
    peak: float,
    reserved: float,
    free: float,
    share: float,
    expected: bool,
) -> None:
    values = {"memory_allocated": held, "max_memory_allocated": peak, "memory_reserved": reserved}
    for name, value in values.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: int(value))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free), int(80e9)))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: share)
    assert room_for_twice(CUDA) is expected


def test_nobody_knows_on_the_cpu() -> None:
    assert not room_for_twice(torch.device("cpu"))
