"""Why a lake cannot be written, as one sentence: the system's reason out of an error of Python, Arrow, Delta or Spark.

Arrow, Delta and Spark give the number of a system error only in their texts.
"""

import errno
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from mew.pipeline.lake.values import LakeError

_NUMBER: Final = re.compile(r"\[errno (\d+)\]|\(os error (\d+)\)|Os \{ code: (\d+)", re.IGNORECASE)
_JAVA_IS_FULL: Final = re.compile(r"IOException: (?:No space left on device|Disk quota exceeded)")
_WRITING: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
}
"""System errors that only writing can cause."""
_OF_A_PATH: Final = {
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.EIO: "the disk reports an error",
    errno.EEXIST: "it is a file, not a folder",
    errno.ENOTDIR: "it is a file, not a folder",
}
"""System errors that concern the lake only if they name a path in it."""
_ADVICE: Final = "Nothing is lost: solve this, and run the same command again"


class LakeUnwritable(LakeError):
    """The system does not let this process write the lake, or Spark its temporary files."""


def unwritable(error: BaseException, lake: Path) -> LakeUnwritable | None:
    """The error as a sentence with the path, if its reason is that something cannot be written."""
    text = str(error)
    if _JAVA_IS_FULL.search(text):
        folder = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
        return LakeUnwritable(f"Spark cannot write its temporary files to {folder}: the disk is full. {_ADVICE}")
    number = error.errno if isinstance(error, OSError) else None
    match = _NUMBER.search(text)
    if number is None and match is not None:
        number = int(next(filter(None, match.groups())))
    reason = _WRITING.get(number or 0)
    if reason is None and str(lake) in text:
        reason = _OF_A_PATH.get(number or 0)
    return LakeUnwritable(f"the lake {lake} cannot be written: {reason}. {_ADVICE}") if reason is not None else None
