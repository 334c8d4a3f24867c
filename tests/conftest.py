"""What holds for all tests."""

import pytest
import torch

NO_ACCELERATOR = "no accelerator on this machine"


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Threads that wait for each other on a busy machine make small steps a hundred times slower."""
    torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Tests of the GPU are skipped where there is none, all for one reason."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip(NO_ACCELERATOR)
