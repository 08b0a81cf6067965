"""The one exception that the command turns into exit code 3."""


class CannotRunError(Exception):
    """The run could not be made, for the reason in the message, one line."""
