"""Draws: by (seed, epoch, row) alone, and with the distributions that are promised."""

import numpy as np
import pytest
import torch

from pellucid.augment.plan import order, plan
from pellucid.augment.presets import OFF, PRESETS, AugmentConfig
from pellucid.errors import UsageError

S = 64
CONFIG = AugmentConfig(mixup=0.3)


def flat(chosen):
    """All numbers of a plan."""
    parts = [chosen.color, torch.tensor([chosen.share])]
    for view in chosen.views:
        parts += [torch.tensor(view.rows), torch.tensor(view.meet), view.matrix.flatten()]
    return torch.cat([part.double() for part in parts]).tolist()


def test_equal_keys_give_equal_plans_and_others_differ():
    base = flat(plan(50, CONFIG, S, 1, 2, 3))
    assert flat(plan(50, CONFIG, S, 1, 2, 3)) == base
    for other in ((0, 2, 3), (1, 3, 3), (1, 2, 4), (-1, 2, 3), (2**63 + 1, 2, 3)):
        assert flat(plan(50, CONFIG, S, *other)) != base


def test_partners_come_from_the_whole_set_and_the_centre_from_the_middle():
    views = [plan(20, PRESETS["default"], S, 0, epoch, 7).views[0] for epoch in range(400)]
    assert all(view.rows[0] == 7 and len(view.rows) == 4 for view in views)
    counts = np.bincount([row for view in views for row in view.rows[1:]], minlength=20)
    assert counts.min() > 30
    assert counts.max() < 95
    meet = np.array([view.meet for view in views])
    assert meet.min() == S // 2
    assert meet.max() == S * 3 // 2
    assert abs(meet.mean() - S) < 2


def test_affine_stays_in_its_ranges_and_fills_them():
    config = AugmentConfig(mosaic=0, scale=0.5, translate=0.1, fliplr=0.5, flipud=0.25)
    views = [plan(5, config, S, 0, epoch, 0).views[0] for epoch in range(400)]
    matrices = torch.stack([view.matrix for view in views])
    gains, flipped = matrices[:, 0, 0].abs(), matrices[:, :2, :2].diagonal(dim1=1, dim2=2) < 0
    assert gains.min() >= 0.5
    assert gains.max() <= 1.5
    assert gains.min() < 0.52
    assert gains.max() > 1.48
    assert (matrices[:, 0, 1] == 0).all()
    assert 0.4 < flipped[:, 0].double().mean() < 0.6
    assert 0.15 < flipped[:, 1].double().mean() < 0.35
    centre = matrices @ torch.tensor([S / 2, S / 2, 1.0], dtype=torch.float64)
    assert (centre[:, :2] - S / 2).abs().max() <= 0.1 * S + 1e-9
    assert (centre[:, :2] - S / 2).abs().max() > 0.09 * S


def test_mixup_has_its_own_view_and_shares_near_a_half():
    plans = [plan(50, CONFIG, S, 0, epoch, 0) for epoch in range(400)]
    mixed = [p for p in plans if len(p.views) == 2]
    assert 80 < len(mixed) < 160
    assert all(p.share == 1 for p in plans if len(p.views) == 1)
    assert all(not torch.equal(p.views[0].matrix, p.views[1].matrix) for p in mixed)
    shares = np.array([p.share for p in mixed])
    assert abs(shares.mean() - 0.5) < 0.03
    assert 0.04 < shares.std() < 0.08  # Beta(32, 32): 0.062


def test_closed_there_is_neither_mosaic_nor_mixup():
    plans = [plan(50, AugmentConfig(mixup=1), S, 0, epoch, 3, mosaic_on=False) for epoch in range(20)]
    assert all(len(p.views) == 1 and p.views[0].rows == (3,) and p.views[0].canvas == S for p in plans)
    assert len(plan(50, AugmentConfig(mixup=1), S, 0, 0, 3).views) == 2


def test_settings_are_compared_under_equal_draws():
    weak, strong = (plan(50, AugmentConfig(scale=scale, mixup=m), S, 0, 0, 0) for scale, m in ((0.1, 0), (0.9, 1)))
    assert weak.views[0].rows == strong.views[0].rows
    assert weak.views[0].meet == strong.views[0].meet
    assert torch.equal(weak.color, strong.color)


def test_off_changes_nothing():
    chosen = plan(3, OFF, S, 0, 0, 1)
    assert chosen.color.tolist() == [0, 1, 1]
    assert torch.equal(chosen.views[0].matrix, torch.eye(3, dtype=torch.float64))


def test_order_is_a_permutation_by_seed_and_epoch():
    first = order(100, 0, 0)
    assert sorted(first) == list(range(100))
    assert (first == order(100, 0, 0)).all()
    assert (first != order(100, 0, 1)).any()
    assert (first != order(100, 1, 0)).any()


@pytest.mark.parametrize(("name", "value"), [("mosaic", 1.5), ("scale", 1.0), ("fliplr", -0.1), ("degrees", float("nan"))])
def test_a_setting_out_of_range_is_refused(name, value):
    with pytest.raises(UsageError, match=f"{name} must be between 0 and"):
        AugmentConfig(**{name: value})


def test_published_policies():
    assert PRESETS["default"] == AugmentConfig()
    assert PRESETS["pretrain-x"].mixup == 0.2
    assert (PRESETS["finetune-n"].degrees, PRESETS["finetune-n"].fliplr, PRESETS["finetune-n"].hsv_v) == (1.11, 0.606, 0.566)
    assert PRESETS["finetune-m"].scale == 0.95


def test_no_plan_mirrors_unless_flips_are_asked_for():
    config = AugmentConfig(mosaic=0, fliplr=0, flipud=0, degrees=180, shear=44, scale=0.9)
    signs = [torch.det(plan(50, config, S, 0, 0, row).views[0].matrix) for row in range(400)]
    assert min(signs) > 0
    with pytest.raises(UsageError, match="shear"):
        AugmentConfig(shear=45)
