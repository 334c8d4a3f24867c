"""What can go wrong, as one small tree; every message says what was expected, what came, what to do."""


class PellucidError(Exception):
    """Any failure that a user can cause or mend; the CLI prints it as one sentence and exits with `exit_code`."""

    exit_code = 1


class UsageError(PellucidError, ValueError):
    """A setting, argument or name that cannot be used as given."""

    exit_code = 2


class DataError(PellucidError, ValueError):
    """Files that cannot be read as the data set or picture that they should be."""

    exit_code = 3
    picture: str | None = None  # as the user sees it, where one of several pictures to look at is the reason


class MissingFileError(DataError, FileNotFoundError):
    """A file or folder that was named and is not there."""


class CheckpointError(DataError):
    """A weights file that is broken, hostile, or made for something else."""


class PellucidWarning(UserWarning):
    """A counted warning about the user's data: what was left out, and the first few places."""
