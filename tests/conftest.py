"""Options of this repository's own tests."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    parser.addoption(
        "--case",
        type=Path,
        metavar="FILE",
        help="put the server into a stored situation again (tests/correctness/test_situations.py)",
    )
