"""Choose the driver of the tests in this folder: an NVIDIA driver or the mock driver."""

import pytest
import usmq


@pytest.fixture(scope="session", autouse=True)
def card() -> None:
    """Skip with a reason if neither is available."""
    try:
        usmq.asarray([0], device="cuda:0")
    except usmq.RuntimeNotFoundError as missing:
        pytest.skip(str(missing))
