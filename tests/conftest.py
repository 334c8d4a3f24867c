"""What holds for all tests."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Threads that wait for each other on a busy machine make small steps a hundred times slower."""
    torch.set_num_threads(1)
