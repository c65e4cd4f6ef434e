"""Programs that tests call where they are installed."""

import os
import shutil

import pytest


def require(program: str, *, promised_by: str, missing: str) -> str:
    """Return the path of a program; skip the test without it, or fail it where it was promised.

    Args:
        program: Looked for on PATH.
        promised_by: Environment variable that says "1" where the program has to be there.
        missing: What is not tried without it, and how to get it.
    """
    found = shutil.which(program)
    if found is None:
        message = f"no {program} on PATH: {missing}"
        if os.environ.get(promised_by) == "1":
            pytest.fail(f"{promised_by} is set, but there is {message}")
        pytest.skip(message)
    return found
