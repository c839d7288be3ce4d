"""Files that are longer than what was written of them."""

from __future__ import annotations

import sys
from typing import BinaryIO

_SET_SPARSE = 0x900C4  # FSCTL_SET_SPARSE
_END_OF_FILE = 6  # FileEndOfFileInfo


def extend(file: BinaryIO, size: int) -> None:
    """Make `file`, which is open for writing, `size` bytes long. What is not written takes no room on the disk, where
    its file system can leave that out. Raises OSError, or OverflowError for a size that no file can have."""
    if sys.platform == "win32":
        _extend_on_windows(file, size)
    file.truncate(size)


def _extend_on_windows(file: BinaryIO, size: int) -> None:
    """Its C library's truncate() writes zeros, gigabytes of them; it writes none if the file has its size by then. So
    nothing is lost if one of these calls fails."""
    import ctypes
    import msvcrt

    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    handle = ctypes.c_void_p(msvcrt.get_osfhandle(file.fileno()))  # type: ignore[attr-defined,unused-ignore]
    kernel.DeviceIoControl(handle, _SET_SPARSE, None, 0, None, 0, ctypes.byref(ctypes.c_uint32()), None)
    end = ctypes.c_int64(size)
    kernel.SetFileInformationByHandle(handle, _END_OF_FILE, ctypes.byref(end), ctypes.sizeof(end))
