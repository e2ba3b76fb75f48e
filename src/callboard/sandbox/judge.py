"""Decide by the file what a command under Landlock may do to it. Imported by the script `supervisor` only.

Landlock does not check who sets permissions, owners, times and attributes of a file, and a seccomp filter cannot see
which file it is. So the filter stops the calls of `syscalls.JUDGED` and the kernel hands them to the supervisor; see
seccomp_unotify(2). The command's memory may change after it was read here. So a call is either made here, by a descriptor
of the very file that was judged; or it is let through where Landlock forbids whatever it could become meanwhile.

- Calls that set something of a file are made here if the command may write where the file is, else refused.
- /dev/shm is shared by all users, and so closed to the command. The names that shm_open(3) and sem_open(3) use are opened,
  linked and removed here, in a private directory.
- A symlink in the workspace to a directory that may not be listed appears to lead to an empty one, so that programs that
  list a tree go on. Test runners do not expect that it is refused, nor, as pytest 7, that it is gone.
- A file may be watched (inotify) if it may be read. A command that swaps the path meanwhile learns when another file is
  used, and no more.
"""

from __future__ import annotations

# ruff: noqa: PTH101, PTH115, PTH118, PTH123
# Each module that is imported costs a command its time; /dev/shm is not used, but stood in for.
import ctypes
import errno
import os
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# linux/seccomp.h
_RECEIVE, _SEND, _IS_VALID, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_CONTINUE = 1

# linux/fcntl.h
_HERE, _NO_FOLLOW, _EMPTY_PATH = -100, 0x100, 0x1000
_NOW = (1 << 30) - 1  # UTIME_NOW
_REMOVES_DIRECTORY = 0x200

_SHARED_MEMORY = b"/dev/shm/"
_PROCESSES = b"/proc/"
_SECONDS, _TIMES = "=2q", "=4q"  # struct utimbuf; struct timeval and struct timespec, twice
_MAX_PATH, _MAX_VALUE = 4096, 65536

_libc = ctypes.CDLL(None, use_errno=True)


class _LetThrough(Exception):  # no error
    """The kernel is to make the call as it is."""


class Judge:
    """`listener` is what the kernel hands calls to; `calls` are their names by their numbers.

    `writable` and `readable` are the places, without links, where a command may write and read; `shared` is the
    directory that stands in for /dev/shm, and `empty` one with nothing in it.
    """

    def __init__(
        self,
        listener: int,
        calls: dict[int, str],
        *,
        writable: list[bytes],
        readable: list[bytes],
        shared: bytes,
        empty: bytes,
    ) -> None:
        self.empty = empty
        self._listener = listener
        self._calls = calls
        self._writable = writable
        self._readable = [*writable, *readable]
        self._shared = os.open(shared, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def answer(self) -> None:
        """Take one call and answer it; also returns if the caller is gone."""
        notification = ctypes.create_string_buffer(_NOTIFICATION.size)
        if _libc.ioctl(self._listener, ctypes.c_ulong(_RECEIVE), notification) < 0:
            return
        identifier, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification.raw)
        call = _Call(self, identifier, thread, arguments)
        value, error, flags = 0, 0, 0
        try:
            value = _HANDLERS[self._calls[number]](call)
        except _LetThrough:
            flags = _CONTINUE
        except OSError as failed:
            error = -(failed.errno or errno.EPERM)
        except (KeyError, ValueError, OverflowError, MemoryError, struct.error):
            error = -errno.EPERM
        finally:
            call.close()
        answer = struct.pack("=QqiI", identifier, value, error, flags)
        _libc.ioctl(self._listener, ctypes.c_ulong(_SEND), answer)

    def is_valid(self, identifier: int) -> bool:
        """Whether the thread still waits; if so, what was read by its number belonged to it."""
        return bool(_libc.ioctl(self._listener, ctypes.c_ulong(_IS_VALID), struct.pack("=Q", identifier)) == 0)

    def may_write(self, place: bytes) -> bool:
        return _is_beneath(place, self._writable)

    def may_read(self, place: bytes) -> bool:
        return _is_beneath(place, self._readable)

    @property
    def shared(self) -> int:
        return self._shared

    @property
    def listener(self) -> int:
        return self._listener


class _Call:
    """A call that waits for its answer, with the files that were opened for it."""

    def __init__(self, judge: Judge, identifier: int, thread: int, arguments: list[int]) -> None:
        self.judge = judge
        self.identifier = identifier
        self.arguments = arguments
        self._thread = thread
        self._opened: list[int] = []

    def close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)

    def number(self, place: int) -> int:
        """An argument that is an int."""
        return int.from_bytes((self.arguments[place] & 0xFFFFFFFF).to_bytes(4, "little"), "little", signed=True)

    def memory(self, address: int, size: int) -> bytes:
        """Up to so many bytes of the caller's memory; fewer where it ends."""
        with open(f"/proc/{self._thread}/mem", "rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), size, address)
        self._check_valid()
        return data

    def text(self, place: int, most: int = _MAX_PATH) -> bytes:
        """An argument that is a string."""
        text, end, _ = self.memory(self.arguments[place], most).partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, "")
        return text

    def file(self, path: int | None, directory: int | None = None, *, follow: bool = True, empty: bool = False) -> int:
        """Open the file that the arguments name, with O_PATH."""
        name = b"" if path is None else self.text(path)
        base = _HERE if directory is None else self.number(directory)
        if not name and not empty:
            raise OSError(errno.ENOENT, "")
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        if not name:
            return self._open(self._of_caller(base), os.O_PATH | os.O_CLOEXEC)
        for mine in (b"/proc/self/", b"/proc/thread-self/"):
            if name.startswith(mine):
                name = b"/proc/%d/%s" % (self._thread, name[len(mine) :])
        if name.startswith(b"/"):
            return self._open(name, flags)
        start = self._open(self._of_caller(base), os.O_PATH | os.O_CLOEXEC)
        return self._open(name, flags, start)

    def writable(self, *arguments: Any, **options: Any) -> bytes:
        """A path to the very file, through its descriptor. Raises OSError if the command may not write it."""
        file = self.file(*arguments, **options)
        if not self.judge.may_write(_real_path(file)):
            raise OSError(errno.EPERM, "")
        return b"/proc/self/fd/%d" % file

    def directory_of(self, path: int, directory: int | None) -> bytes:
        """The absolute path of a file as the caller spells it."""
        name = self.text(path)
        if not name.startswith(b"/"):
            base = _HERE if directory is None else self.number(directory)
            name = os.path.join(os.readlink(self._of_caller(base)), name)
            self._check_valid()
        return os.path.normpath(name)

    def pass_descriptor(self, descriptor: int, flags: int) -> int:
        """Give the caller a descriptor of ours; returns the number that it has there."""
        self._opened.append(descriptor)
        request = struct.pack("=QIIII", self.identifier, 0, descriptor, 0, flags & os.O_CLOEXEC)
        number: int = _libc.ioctl(self.judge.listener, ctypes.c_ulong(_ADD_DESCRIPTOR), request)
        if number < 0:
            raise OSError(ctypes.get_errno(), "")
        return number

    def _of_caller(self, base: int) -> bytes:
        return b"/proc/%d/%s" % (self._thread, b"cwd" if base == _HERE else b"fd/%d" % base)

    def _open(self, path: bytes, flags: int, directory: int | None = None) -> int:
        descriptor = os.open(path, flags, dir_fd=directory)
        self._opened.append(descriptor)
        self._check_valid()
        return descriptor

    def _check_valid(self) -> None:
        if not self.judge.is_valid(self.identifier):
            raise OSError(errno.ESRCH, "")


def _is_beneath(place: bytes, roots: list[bytes]) -> bool:
    return any(place == root or place.startswith(root.rstrip(b"/") + b"/") for root in roots)


def _real_path(descriptor: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % descriptor)


def _read_flags(call: _Call, flags: int | None) -> dict[str, bool]:
    """The options in the flags of a call whose name ends in `at`."""
    value = 0 if flags is None else call.number(flags)
    return {"follow": not value & _NO_FOLLOW, "empty": bool(value & _EMPTY_PATH)}


def _set_mode(call: _Call, file: bytes, mode: int) -> int:
    os.chmod(file, stat.S_IMODE(call.number(mode) & 0o1777))
    return 0


def _set_owner(call: _Call, file: bytes, user: int) -> int:
    os.chown(file, call.number(user), call.number(user + 1))
    return 0


def _set_times(call: _Call, file: bytes, times: int, form: str, factor: int) -> int:
    """`form` is the struct of two times, `factor` converts the second part of each to nanoseconds."""
    address = call.arguments[times]
    if not address:
        spelled = (0, _NOW, 0, _NOW)
    elif form == _SECONDS:
        accessed, changed = struct.unpack(form, call.memory(address, 16))
        spelled = (accessed, 0, changed, 0)
    else:
        parts = struct.unpack(form, call.memory(address, 32))
        spelled = (parts[0], parts[1] * factor, parts[2], parts[3] * factor)
    if _libc.utimensat(_HERE, file, struct.pack("=4q", *spelled), 0) < 0:
        raise OSError(ctypes.get_errno(), "")
    return 0


def _at_times(call: _Call, form: str, factor: int, flags: int | None) -> int:
    """utimensat(2) and futimesat(2): without a path they apply to the descriptor."""
    named: dict[str, Any] = _read_flags(call, flags) if call.arguments[1] else {"empty": True}
    file = call.writable(1 if call.arguments[1] else None, 0, **named)
    return _set_times(call, file, 2, form, factor)


def _set_attribute(call: _Call, file: bytes) -> int:
    size = call.arguments[3]
    if size > _MAX_VALUE:
        raise OSError(errno.E2BIG, "")
    value = call.memory(call.arguments[2], size) if size else b""
    os.setxattr(file, call.text(1, 256), value, call.number(4))
    return 0


def _remove_attribute(call: _Call, file: bytes) -> int:
    os.removexattr(file, call.text(1, 256))
    return 0


def _shared_name(call: _Call, path: int) -> bytes | None:
    """The name beneath /dev/shm; None for a file elsewhere, and for a path that cannot be read."""
    try:
        path_text = call.text(path)
    except OSError:
        return None
    name = path_text[len(_SHARED_MEMORY) :].lstrip(b"/")
    if not path_text.startswith(_SHARED_MEMORY) or not name or b"/" in name or name in (b".", b".."):
        return None
    return name


def _open_shared(call: _Call, path: int, directory: int | None) -> int:
    flags, mode = call.number(path + 1), call.number(path + 2)
    name = _shared_name(call, path)
    if name is not None and not flags & os.O_DIRECTORY:
        open_flags = (flags & ~os.O_PATH) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return call.pass_descriptor(os.open(name, open_flags, mode & 0o777, dir_fd=call.judge.shared), flags)
    if flags & os.O_DIRECTORY and not flags & os.O_PATH and _leads_out(call, path, directory):
        return call.pass_descriptor(os.open(call.judge.empty, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), flags)
    raise _LetThrough


def _leads_out(call: _Call, path: int, directory: int | None) -> bool:
    try:
        named, place = call.directory_of(path, directory), _real_path(call.file(path, directory))
    except OSError:
        return False
    # Another process's open files are refused, as by the kernel: they are no links in a tree.
    return call.judge.may_read(named) and not call.judge.may_read(place) and not named.startswith(_PROCESSES)


def _link_shared(call: _Call, old: int, new: int) -> int:
    names = _shared_name(call, old), _shared_name(call, new)
    if names[0] is None or names[1] is None:
        raise _LetThrough
    shared = call.judge.shared
    os.link(names[0], names[1], src_dir_fd=shared, dst_dir_fd=shared, follow_symlinks=False)
    return 0


def _unlink_shared(call: _Call, path: int, flags: int | None) -> int:
    name = _shared_name(call, path)
    if name is None or (flags is not None and call.number(flags) & _REMOVES_DIRECTORY):
        raise _LetThrough
    os.unlink(name, dir_fd=call.judge.shared)
    return 0


def _check_watch(call: _Call) -> int:
    if not call.judge.may_read(_real_path(call.file(1))):
        raise OSError(errno.EACCES, "")
    raise _LetThrough


_HANDLERS: dict[str, Callable[[_Call], int]] = {
    "chmod": lambda call: _set_mode(call, call.writable(0), 1),
    "fchmod": lambda call: _set_mode(call, call.writable(None, 0, empty=True), 1),
    "fchmodat": lambda call: _set_mode(call, call.writable(1, 0), 2),
    "fchmodat2": lambda call: _set_mode(call, call.writable(1, 0, **_read_flags(call, 3)), 2),
    "chown": lambda call: _set_owner(call, call.writable(0), 1),
    "lchown": lambda call: _set_owner(call, call.writable(0, follow=False), 1),
    "fchown": lambda call: _set_owner(call, call.writable(None, 0, empty=True), 1),
    "fchownat": lambda call: _set_owner(call, call.writable(1, 0, **_read_flags(call, 4)), 2),
    "utime": lambda call: _set_times(call, call.writable(0), 1, _SECONDS, 1),
    "utimes": lambda call: _set_times(call, call.writable(0), 1, _TIMES, 1000),
    "futimesat": lambda call: _at_times(call, _TIMES, 1000, None),
    "utimensat": lambda call: _at_times(call, _TIMES, 1, 3),
    "setxattr": lambda call: _set_attribute(call, call.writable(0)),
    "lsetxattr": lambda call: _set_attribute(call, call.writable(0, follow=False)),
    "fsetxattr": lambda call: _set_attribute(call, call.writable(None, 0, empty=True)),
    "removexattr": lambda call: _remove_attribute(call, call.writable(0)),
    "lremovexattr": lambda call: _remove_attribute(call, call.writable(0, follow=False)),
    "fremovexattr": lambda call: _remove_attribute(call, call.writable(None, 0, empty=True)),
    "inotify_add_watch": _check_watch,
    "open": lambda call: _open_shared(call, 0, None),
    "openat": lambda call: _open_shared(call, 1, 0),
    "link": lambda call: _link_shared(call, 0, 1),
    "linkat": lambda call: _link_shared(call, 1, 3),
    "unlink": lambda call: _unlink_shared(call, 0, None),
    "unlinkat": lambda call: _unlink_shared(call, 1, 2),
}
