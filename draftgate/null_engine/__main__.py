"""`python -m draftgate.null_engine`: the null engine as a process of its own."""

import argparse
import sys

from draftgate.errors import DraftgateError
from draftgate.null_engine import command


def main() -> int:
    """Run the command; a wrong option ends it with status 2 and one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m draftgate.null_engine", description=__doc__)
    command.add_arguments(parser)
    try:
        return command.run(parser.parse_args())
    except DraftgateError as error:
        sys.stderr.write(f"draftgate: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
