"""What is sent: request number n of a plan, whoever sends it and whenever.

Puts prompts and output lengths together, and conversations out of several
turns. A function of plan, seed and number, except that a later turn also holds
the answers before it. Knows neither HTTP nor clocks nor arrivals.
"""

from dataclasses import dataclass

from draftgate.errors import SpecError
from draftgate.load.apis import LoadPrompt
from draftgate.load.lengths import Lengths, draw
from draftgate.load.prompts import Prompts

__all__ = ["PlannedRequest", "RequestPlan", "Session"]


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request before it is put into an API's form.

    Attributes:
        number: Its number in the plan; no two requests of a plan share one.
        prompt: What to ask.
        max_tokens: Longest output.
        session: Number of its conversation; None where each request is one.
        turn: Which turn of the conversation it is, from 0.
    """

    number: int
    prompt: LoadPrompt
    max_tokens: int
    session: int | None
    turn: int


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """All requests of a load, by number.

    Attributes:
        prompts: What is asked.
        output: How long outputs may be, where the prompt does not say.
        seed: Decides every draw.
        turns: Turns of each conversation, >= 1.
    """

    prompts: Prompts
    output: Lengths
    seed: int
    turns: int = 1

    def __post_init__(self) -> None:
        """Check the turns.

        Raises:
            SpecError: If there are none, or several of prompts that cannot go
                into a conversation.
        """
        if self.turns < 1:
            raise SpecError(f"turns must be >= 1, got {self.turns}.")
        if self.turns > 1 and self.prompts.has_token_ids():
            raise SpecError(
                f"turns: got {self.turns} turns of {self.prompts.describe()}, but token ids cannot "
                "take an answer's text between them. Use messages or text, or one turn."
            )

    def describe(self) -> str:
        """Return one line for reports."""
        text = f"{self.prompts.describe()}; max_tokens: {self.output.describe()}"
        return text if self.turns == 1 else f"{text}; sessions of {self.turns} turns"

    def request(self, number: int) -> PlannedRequest:
        """Return request `number`, which needs no answer to an earlier one.

        Raises:
            ValueError: If it is a later turn of a conversation, which holds
                what the server answered; `session` takes that.
        """
        session, turn = divmod(number, self.turns)
        if turn:
            raise ValueError(
                f"request {number} is turn {turn} of session {session} and holds the answers "
                "before it; use session()"
            )
        return _planned(self, session, 0, self.prompts.prompt(number, self.seed))

    def session(self, number: int) -> "Session":
        """Return conversation `number`; with one turn, that of request `number` alone."""
        return Session(self, number)


class Session:
    """One conversation: each turn sends all earlier turns with the answers received.

    The turn after an answer can only be sent once the answer's text is known.
    Whoever sends takes the text out of the ended exchange, between two turns
    and outside the receive path, and hands it to `next_turn`.

    Args:
        plan: Where its turns come from.
        number: Which conversation of the plan it is.
    """

    def __init__(self, plan: RequestPlan, number: int) -> None:
        self._plan = plan
        self._number = number
        self._turn = 0
        self._over = False
        self._history: tuple[tuple[str, str], ...] = ()

    def next_turn(self, answer_text: str | None) -> PlannedRequest | None:
        """Return the next request; None once the conversation is over.

        Args:
            answer_text: The answer to the request returned last; None for the
                first turn. None later on means that there was no answer: the
                conversation ends, since what would follow is not known.

        Raises:
            ValueError: If an answer is given before anything was asked.
        """
        if self._turn == 0 and answer_text is not None:
            raise ValueError(f"session {self._number}: got an answer before the first turn")
        if self._turn > 0 and answer_text is None:
            self._over = True
        if self._over or self._turn == self._plan.turns:
            return None
        planned = self._first() if answer_text is None else self._later(answer_text)
        self._turn += 1
        return planned

    def _first(self) -> PlannedRequest:
        planned = self._plan.request(self._number * self._plan.turns)
        self._history = _as_messages(planned.prompt)
        return planned

    def _later(self, answer_text: str) -> PlannedRequest:
        plan = self._plan
        asked = plan.prompts.prompt(self._number * plan.turns + self._turn, plan.seed)
        # A system message opens a conversation; inside one it has no place.
        new = tuple(entry for entry in _as_messages(asked) if entry[0] != "system")
        self._history = (*self._history, ("assistant", answer_text), *new)
        prompt = LoadPrompt(asked.prompt_id, messages=self._history)
        return _planned(plan, self._number, self._turn, prompt)


def _planned(plan: RequestPlan, session: int, turn: int, prompt: LoadPrompt) -> PlannedRequest:
    number = session * plan.turns + turn
    listed = plan.prompts.max_tokens(number)
    drawn = plan.output.at(number, draw(plan.seed, "output length", number))
    return PlannedRequest(
        number=number,
        prompt=prompt,
        max_tokens=drawn if listed is None else listed,
        session=session if plan.turns > 1 else None,
        turn=turn,
    )


def _as_messages(prompt: LoadPrompt) -> tuple[tuple[str, str], ...]:
    """Return a prompt as a conversation; raw text is what the user says."""
    return prompt.messages or (("user", prompt.text or ""),)
