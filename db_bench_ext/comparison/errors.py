"""The errors that end a comparison, each reported once."""


class ComparisonError(Exception):
    """Stops the comparison; its text is one message with cause and remedy."""


class UsageError(ComparisonError):
    """The command line is wrong; exit status 2."""


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived; `number` is the signal."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number
