"""`python -m draftgate.cli`: the same program as the console script."""

from draftgate.cli import entry

if __name__ == "__main__":
    entry()
