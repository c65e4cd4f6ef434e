"""The exception tree, which answers "whose fault is it?".

    DraftgateError
    |-- SpecError         the user's profile, flag or file
    |-- EngineError       the server: did not start, died, answered nonsense
    |-- MeasurementError  this run cannot be used
    `-- BaselineError     absent, incompatible or corrupt baseline or run record

Every message names the thing, what was got, what was expected and what to do
next. The command line turns each class into its own exit code.
"""


class DraftgateError(Exception):
    """Base of every error that draftgate raises on purpose."""


class SpecError(DraftgateError):
    """The user's profile, option or input file is wrong."""


class EngineError(DraftgateError):
    """The server did not start, died, or answered outside its contract."""


class MeasurementError(DraftgateError):
    """A run was taken but its numbers cannot be used."""


class BaselineError(DraftgateError):
    """A baseline or stored run is absent, incompatible or corrupt."""
