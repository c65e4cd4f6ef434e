"""Settings written behind the name of a kind, as in `gamma:shape=0.5`.

Text in, numbers out; every fault is a `SpecError` that says what was expected.
Knows none of the kinds; `draftgate.load.arrival_text` does.
"""

from draftgate.errors import SpecError


class Settings:
    """The settings behind one kind; each is taken once, and none may be left over.

    Args:
        what: What the kind is a kind of, for messages: "arrivals".
        kind: Its name.
        text: What stands behind the colon: settings between commas.

    Raises:
        SpecError: If a setting is given twice.
    """

    def __init__(self, what: str, kind: str, text: str) -> None:
        self.kind = kind
        self._place = f"{what} {kind!r}"
        entries = [entry.partition("=") for entry in text.split(",")] if text else []
        self._named = {name: value for name, equals, value in entries if equals}
        self._unnamed = tuple(name for name, equals, _ in entries if not equals)
        self._known: list[str] = []
        if len(self._named) + len(self._unnamed) < len(entries):
            raise SpecError(f"{self._place}: a setting is given twice in {text!r}. Drop one.")

    def number(self, name: str, *, default: float | None = None) -> float:
        """Return the number called `name`.

        Raises:
            SpecError: If it is no number, or absent and has no default.
        """
        text = self._take(name)
        if text is not None:
            return self.as_number(name, text)
        if default is None:
            raise SpecError(
                f"{self._place}: got no {name}, expected a number. Write {self.kind}:{name}=NUMBER."
            )
        return default

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return the word called `name`; the first of `choices` if it is absent.

        Raises:
            SpecError: If it is none of `choices`.
        """
        word = self._take(name)
        if word is not None and word not in choices:
            expected = " or ".join(repr(choice) for choice in choices)
            raise SpecError(f"{self._place}: {name} must be {expected}, got {word!r}.")
        return word or choices[0]

    def unnamed(self, form: str) -> tuple[str, ...]:
        """Return the settings without a name, which `form` describes for messages."""
        self._known.append(form)
        entries, self._unnamed = self._unnamed, ()
        return entries

    def as_number(self, name: str, text: str) -> float:
        """Return `text` as a number.

        Raises:
            SpecError: If it is none.
        """
        try:
            return float(text)
        except ValueError:
            raise SpecError(f"{self._place}: {name} must be a number, got {text!r}.") from None

    def check_all_used(self) -> None:
        """Refuse what nobody took.

        Raises:
            SpecError: If something was left over; the message lists what is known.
        """
        for name in (*self._named, *self._unnamed):
            known = ", ".join(self._known) or "none"
            raise SpecError(f"{self._place}: unknown setting {name!r}. Known: {known}.")

    def _take(self, name: str) -> str | None:
        self._known.append(name)
        return self._named.pop(name, None)
