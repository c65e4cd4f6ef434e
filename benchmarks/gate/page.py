"""One part of RESULTS.md that is made from a JSON file, between two markers."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """Where a part stands.

    Attributes:
        name: Of its markers and of its JSON file.
        heading: What is written above it when it is added to the page.
    """

    name: str
    heading: str = ""

    @property
    def start(self) -> str:
        """The marker before it."""
        return f"<!-- {self.name} -->\n"

    @property
    def end(self) -> str:
        """The marker after it."""
        return f"<!-- /{self.name} -->\n"

    def placed(self, page: str, tables: str) -> str:
        """Return the page with the tables between the markers.

        Markers that are absent are added at the page's end, if the part has a heading.

        Raises:
            ValueError: If they are absent and there is no heading.
        """
        if self.heading and self.start not in page:
            page = f"{page.rstrip()}\n{self.heading}{self.start}{self.end}"
        before, rest = page.split(self.start)
        _, after = rest.split(self.end)
        return f"{before}{self.start}\n{tables}\n{self.end}{after}"

    def rewrite(self, folder: Path, render: Callable[[Any], str]) -> None:
        """Rewrite the part of a folder's RESULTS.md from its JSON file."""
        result = json.loads((folder / f"{self.name}.json").read_text(encoding="utf-8"))
        page = folder / "RESULTS.md"
        page.write_text(
            self.placed(page.read_text(encoding="utf-8"), render(result)), encoding="utf-8"
        )
