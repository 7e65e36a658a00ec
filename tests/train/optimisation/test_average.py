import torch
from torch import nn

from tuner.train.optimisation.average import AveragedWeights


def test_the_average_follows_slowly_and_faster_at_first() -> None:
    live = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        live.weight.fill_(0.0)
    average = AveragedWeights(live, decay=0.5)
    expected = 0.0
    for step, value in enumerate((1.0, 2.0, 3.0, 4.0)):
        with torch.no_grad():
            live.weight.fill_(value)
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
        assert abs(float(average.module.weight) - expected) < 1e-6
    assert float(live.weight.detach()) == 4.0
    assert average.updates == 4


def test_what_doesnt_learn_isnt_touched_and_statistics_are_averaged() -> None:
    live = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    live[0].requires_grad_(False)
    live[2].eval()
    average = AveragedWeights(live, decay=0.5)
    before = {name: value.clone() for name, value in average.module.state_dict().items()}
    with torch.no_grad():
        for value in live.state_dict().values():
            value.add_(1)
    average.update()
    changed = {name for name, value in average.module.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {
        *("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"),
        *("2.weight", "2.bias"),
    }
    assert not average.module.training
