"""The public names: all there, all described, cheap to import."""

import subprocess
import sys

import pytest

import pellucid


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_list_is_what_is_promised():
    promised = {
        "Model",
        "Result",
        "open_dataset",
        "DataModule",
        "DetectorModule",
        "TrainConfig",
        "TASKS",
        "PellucidError",
        "PellucidWarning",
    }
    assert set(pellucid.__all__) == {*promised, "__version__"} == set(dir(pellucid))


@pytest.mark.parametrize("name", [name for name in pellucid.__all__ if name not in ("__version__", "TASKS")])
def test_every_name_exists_and_says_what_it_is(name):
    thing = getattr(pellucid, name)
    assert thing.__name__ == name
    assert len(thing.__doc__ or "") > 20
    assert "(*args" not in thing.__doc__
    assert not thing.__doc__.startswith(f"{name}(")  # what a dataclass makes by itself


def test_tasks_are_described():
    assert pellucid.TASKS
    assert all(task.__doc__ for task in pellucid.TASKS.values())


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"Modle.*public names"):
        pellucid.Modle  # noqa: B018
    with pytest.raises(ImportError):
        from pellucid import Modle  # noqa: F401


def test_importing_the_package_imports_no_torch():
    code = "import sys, pellucid; print([name for name in ('torch', 'numpy', 'pytorch_lightning') if name in sys.modules])"
    assert python(code) == "[]"


def test_the_facade_costs_less_than_a_second_over_torch():
    """Processor time, which a busy machine stretches little; Lightning stays out until something trains."""
    code = (
        "import sys, time, torch, torchvision; began = time.process_time(); from pellucid import Model; "
        "print(time.process_time() - began, 'pytorch_lightning' in sys.modules)"
    )
    seconds, lightning = python(code).split()
    assert float(seconds) < 1.0
    assert lightning == "False"


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "pellucid", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: pellucid")
    assert subprocess.run([sys.executable, "-m", "pellucid", "trian"], capture_output=True, check=False).returncode == 2
