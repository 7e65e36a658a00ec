import torch

from tuner.train.randomness import derive_seed, seeded


def test_derived_seeds_depend_on_every_number_and_their_order() -> None:
    seeds = [derive_seed(0, 1), derive_seed(1, 0), derive_seed(0, 1, 0), derive_seed(0, 2)]
    assert len(set(seeds)) == 4
    assert derive_seed(0, 1) == seeds[0]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_torchs_own_generator_goes_on_untouched() -> None:
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(3):
        assert torch.equal(torch.rand(4), first)
