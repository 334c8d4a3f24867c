"""The noise floor, on models that have nothing to do with this package: what it admits, what it catches, what it refuses."""

import copy
import json
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from pellucid.numerics.noise import HALF, Noise, NotExactError, Observed, Yardstick, measure, report, table

DOCS = Path(__file__).parents[2] / "docs" / "noise.md"


@pytest.fixture
def start():
    torch.manual_seed(0)
    return nn.ModuleDict({"body": nn.Linear(8, 16), "head": nn.Linear(16, 3), "small": nn.Linear(8, 3)})


def runner(start, dtype=torch.float32, change=None, steps=1, rate=0.1, later_rate=0.1):
    """A run of SGD; `small` counts for a millionth; `change` may alter the gradients before they are looked at."""
    x, y = torch.randn(10, 8, generator=torch.Generator().manual_seed(1)), torch.arange(10) % 3

    def run(noise):
        model, seen = copy.deepcopy(start).to(dtype), []
        for number in range(steps):
            model.zero_grad()
            out = noise({"logits": [model["head"](model["body"](x.to(dtype)).relu()) + 1e-6 * model["small"](x.to(dtype))]})["logits"][0]
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            if change is not None:
                change(model)
            seen.append(Observed.of(loss, model))
            with torch.no_grad():
                for p in model.parameters():
                    p -= (later_rate if number else rate) * p.grad
        return tuple(seen) if steps > 1 else seen[0]

    return run


def quiet(run):
    return run(Noise())


def scaled(name, factor):
    def change(model):
        model[name].weight.grad *= factor

    return change


def test_metrics_alone_are_a_yardstick(start):
    run = runner(start)
    by_name, by_yardstick = (measure(run, draws=2, yardstick=chosen) for chosen in (HALF, Yardstick(HALF)))
    assert by_name.draws == by_yardstick.draws
    assert "cosine" in by_name.draws
    assert "cosine" not in measure(run, draws=2).draws
    for wrong in ("loss", ("loss", "hole")):
        with pytest.raises(ValueError, match="metrics: expected some of loss, parameter, whole, group, cosine, got"):
            measure(run, draws=2, yardstick=wrong)


def test_a_step_without_backward_is_told_so(start):
    def run(noise):
        return Observed.of(noise(start["head"](torch.ones(2, 16))).sum(), start)

    with pytest.raises(ValueError, match="gradients: expected those of some parameters, got none; call backward"):
        measure(run, draws=2)


def test_runs_of_other_lengths_are_not_compared(start):
    floor = measure(runner(start, steps=2), draws=2)
    with pytest.raises(ValueError, match="steps: expected 2, as the first run has, got 3 of the other"):
        floor.judge("longer", quiet(runner(start, steps=3)))
    count = iter((2, 3))
    with pytest.raises(ValueError, match="steps: expected 2, as the first run has, got 3 of the other"):
        measure(lambda noise: runner(start, steps=next(count))(noise), draws=2)


def test_the_page_runs_and_says_what_comes_out(capsys):
    text = DOCS.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    space = {}
    exec(compile(code, str(DOCS), "exec"), space)
    printed = capsys.readouterr().out
    stated = {
        tuple(line.split("|")[1:3]): float(line.split("|")[6]) for line in text.splitlines() if re.match(r"\| (reordered|wrong) ", line)
    }
    assert len(stated) == 2
    for line in printed.splitlines():
        key = tuple(line.split("|")[1:3])
        if key in stated:
            assert float(line.split("|")[6]) == pytest.approx(stated.pop(key), rel=3)  # another machine sums in another order
    assert not stated
    assert json.loads(space["text"])["passed"] is False
    assert len(json.loads(space["text"])["cases"][0]["rows"][0]["draws"]) == 20


def test_noise_is_at_most_one_unit_in_the_last_place_and_has_its_own_random_state():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = (torch.rand(2000, dtype=torch.float64) + 1).to(dtype).requires_grad_()
        state = torch.get_rng_state()
        noise = Noise(3)
        y = noise(x)
        y.backward(torch.ones_like(y))
        assert torch.equal(torch.get_rng_state(), state)
        assert noise.calls == 1
        for moved in ((y.detach() - x.detach()).double(), (x.grad - 1).double()):
            assert 0 < moved.abs().max() <= 2 * torch.finfo(dtype).eps
            assert (moved > 0).any()
            assert (moved < 0).any()
        assert torch.equal(Noise(3)(x), y)
        assert not torch.equal(Noise(4)(x), y)


def test_it_walks_into_what_heads_return():
    given = {"a": [torch.ones(3), (torch.ones(2), "text")], "index": torch.arange(3)}
    found = Noise(0)(given)
    assert found["index"] is given["index"]
    assert found["a"][1][1] == "text"
    assert not torch.equal(found["a"][0], given["a"][0])
    assert Noise()(given["a"][0]) is given["a"][0]


def test_either_side_alone():
    x = torch.ones(100, requires_grad=True)
    forward, backward = Noise(0, backward=False)(x), Noise(0, forward=False)(x)
    assert not torch.equal(forward, x)
    assert torch.equal(backward, x)
    assert torch.equal(torch.autograd.grad(forward.sum(), x)[0], torch.ones(100))
    assert not torch.equal(torch.autograd.grad(backward.sum(), x)[0], torch.ones(100))


def test_the_floor_of_a_step_admits_the_step_itself(start):
    floor = measure(runner(start), draws=20)
    assert {len(draws) for draws in floor.draws.values()} == {20}
    parameters = {f"parameter {name}" for name, _ in start.named_parameters()}
    assert set(floor.draws) == {"loss", "whole", "group body", "group head", "group small"} | parameters
    assert 1e-9 < floor.largest("whole") < 1e-6
    again = floor.judge("again", quiet(runner(start)))
    assert again.passed
    assert all(row.value == row.ratio == 0 for row in again.rows)
    assert again.row("whole").bound == 2.5 * floor.largest("whole")


@pytest.mark.parametrize("group", ["body", "head", "small"])
def test_a_defect_in_one_group_is_caught_by_its_own_row(start, group):
    """The gradient of `small` is a millionth of the whole: a defect there is invisible in the whole and plain in its group."""
    floor = measure(runner(start), draws=20, yardstick=Yardstick(absolute=1e-12))
    verdict = floor.judge("defect", quiet(runner(start, change=scaled(group, 1 + 1e-4))))
    assert not verdict.passed
    assert not verdict.row(f"group {group}").passed
    assert verdict.row("whole").passed == (group == "small")
    assert [row.metric for row in verdict.rows if row.metric.startswith("group") and not row.passed] == [f"group {group}"]
    assert verdict.row("parameter").metric == f"parameter {group}.weight"
    assert sum(row.metric.startswith("parameter") for row in verdict.rows) == 1


def test_residue_below_the_absolute_floor_is_no_defect(start):
    verdict = measure(runner(start), draws=3).judge("residue", quiet(runner(start, change=scaled("small", 1.001))))
    assert verdict.row("group small").value < 1e-3
    ours = Yardstick().differences(Observed(torch.ones(()), {"w": torch.zeros(3)}), Observed(torch.ones(()), {"w": torch.full((3,), 1e-9)}))
    assert ours["parameter w"] == pytest.approx(math.sqrt(3) * 1e-4)


def test_metrics_are_their_formulas():
    draw = torch.Generator().manual_seed(0)
    a, b = ({name: torch.randn(n, generator=draw) for name, n in (("x.w", 5), ("y.w", 7))} for _ in range(2))
    found = Yardstick((*HALF, "parameter")).differences(Observed(torch.tensor(2.0), a), Observed(torch.tensor(2.5), b))
    whole = [torch.cat(list(part.values())).double() for part in (a, b)]
    assert found["loss"] == 0.25
    assert found["whole"] == pytest.approx(((whole[0] - whole[1]).norm() / whole[0].norm()).item())
    assert found["cosine"] == pytest.approx(1 - torch.cosine_similarity(*whole, dim=0).item())
    shares = {name: ((a[name] - b[name]).norm() / a[name].norm()).item() for name in a}
    assert found["parameter y.w"] == pytest.approx(shares["y.w"])
    assert found["group x"] == pytest.approx(shares["x.w"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_judged_by_whole_and_cosine(start, dtype):
    floor = measure(runner(start, dtype), draws=20, yardstick=Yardstick(HALF))
    assert not any(name.startswith("parameter") for name in floor.draws)
    assert floor.largest("whole") > 1e-4
    assert floor.judge("float32", quiet(runner(start))).row("whole").ratio < 10
    assert not floor.judge("wrong", quiet(runner(start, dtype, change=scaled("head", -1.0)))).passed


def test_a_stale_learning_rate_shows_at_the_next_step(start):
    floor = measure(runner(start, steps=3, later_rate=0.2), draws=20)
    assert {name for name in floor.draws if name.startswith("2: ")} == {"2: loss", "2: whole"}
    verdict = floor.judge("stale", quiet(runner(start, steps=3, later_rate=0.1)))
    assert [row.metric for row in verdict.rows if not row.passed] == ["2: loss", "2: whole"]
    assert verdict.row("2: whole").ratio > 1e3


def test_a_step_that_differs_from_itself_is_refused(start):
    calls = iter(range(100))
    with pytest.raises(NotExactError, match=r"the same bits twice, got a difference of .* in head\.weight at step 0"):
        measure(runner(start, change=lambda model: model["head"].weight.grad.add_(1e-9 * next(calls))))


def test_a_run_without_noise_is_refused(start):
    run = runner(start)
    with pytest.raises(ValueError, match="call it on them"):
        measure(lambda noise: run(Noise()))
    with pytest.raises(ValueError, match="20 make a claim"):
        measure(run, draws=0)


def test_other_parameters_are_refused(start):
    floor, other = measure(runner(start), draws=1), quiet(runner(start))
    del other.gradients["head.bias"]
    with pytest.raises(ValueError, match=r"same parameters .* 'head\.bias'"):
        floor.judge("other", other)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_passes_no_bound(start, bad):
    verdict = measure(runner(start), draws=2, yardstick=Yardstick(HALF)).judge("bad", quiet(runner(start, change=scaled("head", bad))))
    assert [row.metric for row in verdict.rows if not row.passed] == ["whole", "cosine", "group head"]
    assert "inf" in table([verdict])
    json.dumps(report([verdict]), allow_nan=False)
