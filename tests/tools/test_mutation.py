"""How mutation testing ends the tests of a mutant that loops."""

import time

import pytest

from tools import mutation


def test_a_test_fails_by_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "CPU_SECONDS", 0.05)
    limited = mutation.pytest_runtest_call()
    next(limited)
    started = time.process_time()
    for _ in range(2):
        with pytest.raises(pytest.fail.Exception, match="of processor time"):
            while time.process_time() < started + 10:
                pass
    limited.close()
    while time.process_time() < started + 0.3:
        pass
