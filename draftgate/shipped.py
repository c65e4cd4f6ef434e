"""Folders that come with the project: in a checkout beside the package, else inside it."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped_folders(beside: str, inside: str) -> tuple[Path, ...]:
    """Return where shipped files lie, the checkout's folder first.

    Args:
        beside: Folder of the checkout, from its root.
        inside: Folder of the installed package that the wheel puts them in.
    """
    checkout = _PACKAGE.parent
    # Anybody's folder may lie beside an installed package: only a checkout's is ours.
    if (checkout / "pyproject.toml").is_file():
        return (checkout / beside, _PACKAGE / inside)
    return (_PACKAGE / inside,)


def shipped_heads() -> dict[str, Path]:
    """Return the folders of the draft heads that come with the project, by name."""
    return {
        path.parent.name: path.parent
        for folder in reversed(shipped_folders("models", "_models"))
        for path in sorted(folder.glob("*/config.json"))
    }
