"""What a new detector takes from given weights: class outputs by class name, everything else by place."""

from dataclasses import replace

import pytest
import torch

from pellucid.config import TrainConfig
from pellucid.models.blocks import ClassOutput
from pellucid.tasks import TASKS
from pellucid.train.run import open_all
from pellucid.train.start import take_weights
from pellucid.zoo import Card, create, save_weights
from tests.train.conftest import make_squares

OLD = ("cat", "dog", "emu")


def card_of(task, names):
    return Card(task, "n", tuple(names), tuple(range(len(names))), 64)


def pair(task, old, new):
    """Given weights whose class outputs all differ, a fresh detector, and the fresh one's first values."""
    given, detector = create(card_of(task, old), 1), create(card_of(task, new), 2)
    with torch.no_grad():
        for name in class_tensors(given):
            given.get_parameter(name).normal_(generator=torch.Generator().manual_seed(3))
    return given, detector, {name: value.clone() for name, value in detector.state_dict().items()}


def class_tensors(model):
    return [f"{name}.{part}" for name, module in model.named_modules() if isinstance(module, ClassOutput) for part in ("weight", "bias")]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("new", [("emu", "dog", "cat"), ("dog", "bee"), ("bee", "cat", "yak", "emu"), ("ant", "bee", "yak")], ids=",".join)
def test_class_outputs_are_taken_by_name(task, new, capsys):
    given, detector, fresh = pair(task, OLD, new)
    outputs = class_tensors(detector)
    assert len(outputs) >= 12
    assert outputs == class_tensors(given)
    take_weights(detector, given, new, OLD)
    have, had = detector.state_dict(), given.state_dict()
    for name in outputs:
        for row, label in enumerate(new):
            wanted = had[name][OLD.index(label)] if label in OLD else fresh[name][row]
            assert torch.equal(have[name][row], wanted)
    assert all(torch.equal(have[name], had[name]) for name in have.keys() - set(outputs))
    told = capsys.readouterr().err.splitlines()
    known, unknown = [name for name in new if name in OLD], [name for name in new if name not in OLD]
    start = f", the others start fresh: {', '.join(unknown)}" if unknown else ""
    assert told == [f"{len(known)} of {len(new)} classes are taken by name from the weights given{start}"]


@pytest.mark.parametrize("task", TASKS)
def test_every_tensor_that_knows_the_number_of_classes_is_a_class_output(task):
    two, three = (create(card_of(task, OLD[:count])).state_dict() for count in (2, 3))
    assert {name for name in two if two[name].shape != three[name].shape} == set(class_tensors(create(card_of(task, OLD))))


def test_the_same_names_in_order_change_nothing(capsys):
    given, detector, _ = pair("segment", OLD, OLD)
    take_weights(detector, given, OLD, OLD)
    assert all(torch.equal(value, given.state_dict()[name]) for name, value in detector.state_dict().items())
    assert capsys.readouterr().err == ""


def test_one_class_against_one_class_is_the_same(capsys):
    given, detector, fresh = pair("detect", ("tree",), ("palm",))
    take_weights(detector, given, ("palm",), ("tree",))
    have, had = detector.state_dict(), given.state_dict()
    assert all(torch.equal(have[name], had[name]) for name in have)
    assert not any(torch.equal(have[name], fresh[name]) for name in class_tensors(detector))
    assert capsys.readouterr().err == ""


def test_of_equal_names_the_first_is_the_first():
    given, detector, _ = pair("detect", ("cat", "dog", "cat"), ("dog", "cat", "cat", "cat"))
    take_weights(detector, given, ("dog", "cat", "cat", "cat"), ("cat", "dog", "cat"))
    for name in class_tensors(detector):
        assert torch.equal(detector.state_dict()[name][:3], given.state_dict()[name][[1, 0, 2]])


def test_class_outputs_of_another_width_start_fresh_with_their_biases(capsys):
    many = tuple(f"kind{number}" for number in range(70))  # more than the class branches of n are wide
    given, detector, fresh = pair("segment", many, ("kind5", "cat"))
    take_weights(detector, given, ("kind5", "cat"), many)
    have, had = detector.state_dict(), given.state_dict()
    branches = [name for name in class_tensors(detector) if ".classes." in name]
    assert len(branches) == 12
    assert all(torch.equal(have[name], fresh[name]) for name in branches)
    for name in set(class_tensors(detector)) - set(branches):  # the semantic map, whose width is that of the finest level
        assert torch.equal(have[name][0], had[name][5])
        assert torch.equal(have[name][1], fresh[name][1])
    first, second = capsys.readouterr().err.splitlines()
    assert first == "1 of 2 classes are taken by name in 1 of 7 outputs from the weights given, the others start fresh: cat"
    assert "tensors do not fit these classes and start fresh" in second


def test_the_names_told_are_few(capsys):
    given, detector, _ = pair("detect", ("cat",), tuple("abcdefgh"))
    take_weights(detector, given, tuple("abcdefgh"), ("cat",))
    assert (
        capsys.readouterr().err == "0 of 8 classes are taken by name from the weights given, the others start fresh: a, b, c, d, e, ...\n"
    )


def test_training_takes_the_classes_of_a_file_by_name(tmp_path, capsys):
    data = make_squares(tmp_path / "data", train=2, val=1)
    given, _, _ = pair("detect", ("kind1", "kind0"), ("kind0",))
    weights = tmp_path / "given.safetensors"
    save_weights(weights, given.state_dict(), card_of("detect", ("kind1", "kind0")))
    config = TrainConfig(model=str(weights), data=str(data), imgsz=64, device="cpu")
    _, detector, card = open_all(config)
    assert card.names == ("kind0", "kind1")
    for name in class_tensors(detector):
        assert torch.equal(detector.state_dict()[name], given.state_dict()[name].flip(0))
    assert "2 of 2 classes are taken by name" in capsys.readouterr().err
    again = open_all(replace(config, seed=5), tell=False)[1]
    assert all(torch.equal(value, detector.state_dict()[name]) for name, value in again.state_dict().items())
    assert capsys.readouterr().err == ""
