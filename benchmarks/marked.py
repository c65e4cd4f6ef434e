"""Tables between two marks on a page whose other text is written by hand."""

import re
from collections.abc import Mapping


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Return a page with each table between `<!-- NAME -->` and the `<!-- end -->` after it.

    Args:
        text: The page.
        tables: Table by name; each ends with a line break.

    Raises:
        SystemExit: If the page has no place for one.
    """
    for name, table in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, found = re.subn(
            pattern, lambda m, t=table: m[1] + t + m[2], text, count=1, flags=re.DOTALL
        )
        if not found:
            raise SystemExit(f"RESULTS.md has no place for the table {name!r}")
    return text
