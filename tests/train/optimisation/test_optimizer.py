import pytest
import torch
from torch import nn

from tuner.train.optimisation.optimizer import (
    build_optimizer,
    drop_unfinished_state,
    load_optimizer,
    optimizer_tensors,
    parameter_groups,
    set_learning_rate,
)
from tuner.trial import ImageClassifier

NET = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def test_biases_and_norms_dont_decay_and_equal_treatment_is_one_group() -> None:
    groups = parameter_groups([(parameter, 1.0) for parameter in NET.parameters()], 0.1)
    assert [[tuple(parameter.shape) for parameter in group["params"]] for group in groups] == [
        [(2, 1, 3, 3), (3, 8)],
        [(2,), (2,), (2,), (3,)],
    ]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert len(parameter_groups([(parameter, 1.0) for parameter in NET.parameters()], 0.0)) == 1


def test_every_group_gets_its_share_of_the_rate() -> None:
    first, second = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = build_optimizer(
        parameter_groups([(first, 1.0), (second, 0.1)], 0.0), ImageClassifier().hyperparameters({"optimizer": "sgd"})
    )
    set_learning_rate(optimizer, 0.5)
    first.grad, second.grad = torch.ones(1), torch.ones(1)
    optimizer.step()
    assert (first.item(), second.item()) == pytest.approx((0.5, 0.95))


@pytest.mark.parametrize(
    ("config", "kind", "nesterov"),
    [
        ({"optimizer": "adam"}, torch.optim.Adam, None),
        ({"optimizer": "adamw"}, torch.optim.AdamW, None),
        ({"optimizer": "sgd", "nesterov": True}, torch.optim.SGD, True),
        ({"optimizer": "sgd", "nesterov": True, "momentum": 0}, torch.optim.SGD, False),
    ],
)
def test_each_name_is_torchs_optimizer(config: dict[str, object], kind: type, nesterov: bool | None) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = build_optimizer(parameter_groups([(parameter, 1.0)], 0.0), ImageClassifier().hyperparameters(config))
    assert type(optimizer).__bases__ == (kind,)  # with the same methods, see `uncompiled`
    assert optimizer.param_groups[0].get("nesterov") == nesterov


def stepped(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = build_optimizer(
        parameter_groups([(p, 1.0) for p in parameters], 0.0), ImageClassifier().hyperparameters({})
    )
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer


def test_state_travels_as_plain_tensors() -> None:
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    optimizer = stepped(parameters)
    tensors = optimizer_tensors(optimizer)
    assert sorted(tensors) == ["0.exp_avg", "0.exp_avg_sq", "0.step", "1.exp_avg", "1.exp_avg_sq", "1.step"]
    other = build_optimizer(
        parameter_groups([(p, 1.0) for p in parameters], 0.0), ImageClassifier().hyperparameters({})
    )
    load_optimizer(other, tensors, optimizer.state_dict()["param_groups"])
    assert all(torch.equal(value, tensors[name]) for name, value in optimizer_tensors(other).items())


def test_state_from_a_file_is_laid_out_as_its_parameter() -> None:
    weight = nn.Parameter(torch.ones(4, 3, 2, 2).to(memory_format=torch.channels_last))
    optimizer = stepped([weight])
    read = {name: tensor.contiguous() for name, tensor in optimizer_tensors(optimizer).items()}
    groups = optimizer.state_dict()["param_groups"]
    load_optimizer(optimizer, read, groups)
    assert optimizer.state[weight]["exp_avg"].stride() == weight.stride() != read["0.exp_avg"].stride()
    assert torch.equal(optimizer.state[weight]["exp_avg"], read["0.exp_avg"])
    with pytest.raises(ValueError, match=r"0.exp_avg has the shape \(\)"):
        load_optimizer(optimizer, {"0.exp_avg": torch.tensor(1.0)}, groups)


def test_what_was_begun_when_memory_ran_out_is_forgotten() -> None:
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    optimizer = stepped(parameters)
    del optimizer.state[parameters[1]]["exp_avg_sq"]
    drop_unfinished_state(optimizer)
    assert list(optimizer.state) == [parameters[0]]
    optimizer.step()
    assert set(optimizer.state[parameters[1]]) == {"step", "exp_avg", "exp_avg_sq"}
