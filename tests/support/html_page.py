"""A page taken apart: ids, text, and tags that do not nest."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "line", "circle", "rect", "path", "use"}


class Nesting(HTMLParser):
    """Collects ids and tags that were opened and closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an opened tag and its id."""
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the id of a tag that opens nothing."""
        del tag
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        """Note a tag that closes another one than the last opened."""
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.text.append(data)


def parsed_page(page: str) -> Nesting:
    """Return the page taken apart."""
    parser = Nesting()
    parser.feed(page)
    parser.close()
    return parser
