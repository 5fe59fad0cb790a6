"""What SQLite writes, syncs and removes, told to a `Recording`: a layer over SQLite's own access to files.

SQLite is asked for it by its C interface (https://www.sqlite.org/vfs.html): calls that change something are
noted before they are made. A folder's sync is seen where SQLite opens the folder, which it does for nothing
else.
"""

from __future__ import annotations

import _sqlite3
import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int64, c_void_p, cast
from pathlib import Path
from typing import Any

from tests.journal.forgetful_disk import Cut, Named, Recording

_METHODS = 18  # of a file, as many as version 3 has
_WRITE, _TRUNCATE, _SYNC = 3, 4, 5  # their places among them; 0 holds the version
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_WRITING = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATING = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNCING = CFUNCTYPE(c_int, c_void_p, c_int)
_OPEN_FOLDER = CFUNCTYPE(c_int, c_char_p, POINTER(c_int))
_SET_CALL = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GET_CALL = CFUNCTYPE(c_void_p, c_void_p, c_char_p)


class _Vfs(Structure):
    _fields_ = [
        ("version", c_int),
        ("file_bytes", c_int),
        ("path_bytes_max", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
        ("others", c_void_p * 11),
        ("set_call", c_void_p),
        ("get_call", c_void_p),
        ("next_call", c_void_p),
    ]


class _Layer:
    """Over the system's files, for what lies in the recording's folder."""

    def __init__(self, library: Any, recording: Recording) -> None:
        self._recording = recording
        self._library = library
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        self._below = library.sqlite3_vfs_find(None)
        self._really_open = _OPEN(self._below.contents.open)
        self._really_delete = _DELETE(self._below.contents.delete)
        self._files: dict[int, tuple[int, Any]] = {}  # by their address: the recording's number, the methods
        self._kept: list[Any] = []  # what C points to
        self.vfs = _Vfs.from_buffer_copy(self._below.contents)
        self.vfs.name = b"forgetful"
        self.vfs.open = self._pointer(_OPEN(self._open))
        self.vfs.delete = self._pointer(_DELETE(self._delete))

    def _pointer(self, function: Any) -> int | None:
        self._kept.append(function)
        return cast(function, c_void_p).value

    def _open(self, _: int, name: int | None, file: int, flags: int, out: int) -> int:
        code = self._really_open(cast(self._below, c_void_p), name, file, flags, out)
        if code == 0 and name is not None:
            methods = cast(cast(file, POINTER(c_void_p))[0], POINTER(c_void_p * (_METHODS + 1))).contents
            path = Path(ctypes.string_at(name).decode())
            self._files[file] = (self._recording.file_at(path), methods)
            ours = (c_void_p * (_METHODS + 1))(*methods)
            ours[_WRITE] = self._pointer(_WRITING(self._write))
            ours[_TRUNCATE] = self._pointer(_TRUNCATING(self._truncate))
            ours[_SYNC] = self._pointer(_SYNCING(self._sync))
            self._kept.append(ours)
            cast(file, POINTER(c_void_p))[0] = ctypes.addressof(ours)
        return int(code)

    def _write(self, file: int, data: int, size: int, offset: int) -> int:
        number, methods = self._files[file]
        self._recording.written(number, offset, ctypes.string_at(data, size))
        return int(_WRITING(methods[_WRITE])(file, data, size, offset))

    def _truncate(self, file: int, size: int) -> int:
        number, methods = self._files[file]
        self._recording.steps.append(Cut(number, size))
        return int(_TRUNCATING(methods[_TRUNCATE])(file, size))

    def _sync(self, file: int, flags: int) -> int:
        number, methods = self._files[file]
        self._recording.done(number, "registry")
        return int(_SYNCING(methods[_SYNC])(file, flags))

    def _delete(self, _: int, name: bytes, sync_folder: int) -> int:
        path = Path(name.decode())
        if path.exists():
            self._recording.named(Named(self._recording.relative(path), None))
        return int(self._really_delete(cast(self._below, c_void_p), name, sync_folder))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The default for every database that is opened in this block."""
        below = self._below.contents
        really = _GET_CALL(below.get_call)(cast(self._below, c_void_p), b"openDirectory")

        def open_folder(name: bytes, out: Any) -> int:
            self._recording.done(self._recording.relative(Path(name.decode()).parent), "registry")
            return int(_OPEN_FOLDER(really)(name, out))

        pointer = self._pointer(_OPEN_FOLDER(open_folder))
        set_call = _SET_CALL(below.set_call)
        assert set_call(cast(self._below, c_void_p), b"openDirectory", pointer) == 0
        assert self._library.sqlite3_vfs_register(byref(self.vfs), 1) == 0
        try:
            yield
        finally:
            self._library.sqlite3_vfs_unregister(byref(self.vfs))
            self._library.sqlite3_vfs_register(self._below, 1)
            set_call(cast(self._below, c_void_p), b"openDirectory", None)


@contextmanager
def sqlite_recorded(recording: Recording) -> Iterator[None]:
    """SQLite writes to the recording's disk; all databases are to be closed before the end."""
    with _Layer(ctypes.CDLL(_sqlite3.__file__), recording).in_place():
        yield
