"""Make mounts that bubblewrap cannot make. A forked supervisor's child does this and becomes bubblewrap.

The supervisor's restrictions choose one of two ways:

  launch=nested
  launch=mapped user=USER tree=TREE source=SOURCE ...

Both ways make the devices of /dev read-only in a separate mount namespace. Bubblewrap shows these very devices, and has
no option to make them read-only devices, so a command could set their times and, as their owner, their permissions.
Writing to a device stays possible, because it does not write to its file system.

`nested` needs a user namespace; users keep their numbers in it.

`mapped` is for root. The number of root's processes has no limit, and they own the kernel's files; `--uid` alone does
not change that. So this process becomes USER, an unused number. USER sees each SOURCE in /tmp, by its list index,
through a mount that maps the owner of the files to USER and back: on disk, new files belong to the owner. See
mount_setattr(2), MOUNT_ATTR_IDMAP. Bubblewrap is opened first, since USER may have no access to it. TREE, if not
empty, is a directory with bubblewrap and its libraries, and is copied to a place that USER can read.

If the kernel or a file system does not support this, `prepare` raises an OSError that says which.
"""

from __future__ import annotations

# ruff: noqa: PTH102, PTH112, PTH116, PTH118, PTH123, S108
# Each module that is imported costs the first command its time; /tmp is this process's own.
import ctypes
import os
import struct

# linux/sched.h, linux/mount.h, linux/fcntl.h. These numbers are the same on every architecture.
_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _EMPTY_PATH, _RECURSIVE = -100, 0x1000, 0x8000
_CLONE, _CLOSE_ON_EXEC, _FROM_EMPTY_PATH = 1, 0o2000000, 4
_MAP_IDS = 0x00100000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVELY, _PRIVATE, _NO_SET_ID, _NO_DEVICES = 1, 0x20, 0x1000, 0x4000, 0x40000, 2, 4
# Flags that a remount must preserve, as statvfs(3) and as mount(2) number them.
_FLAGS = ((2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Those in bubblewrap's /dev."""

_PROGRAM = "/tmp/program"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _make_mounts_private() -> None:
    """Keep the mounts that follow from the other processes."""
    _check(_libc.mount(None, b"/", None, _RECURSIVELY | _PRIVATE, None), "mounts cannot be made private")


def _guard_devices() -> None:
    for name in DEVICES:
        device = f"/dev/{name}"
        if not os.path.exists(device):  # noqa: PTH110  # as above
            continue
        path = device.encode()
        _check(_libc.mount(path, path, None, _BIND, None), device)
        flags = os.statvfs(device).f_flag
        preserved = sum(flag for flag_seen, flag in _FLAGS if flags & flag_seen)
        _check(_libc.mount(None, path, None, _REMOUNT | _BIND | _READ_ONLY | preserved, None), device)


def _make_id_mapping(owner: int, group: int, user: int) -> int:
    """Make a user namespace that maps `owner` to `user`; return its descriptor."""
    ready, go = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        os.write(ready[1], bytes([_libc.unshare(_NEW_USERS) == 0]))
        os.close(go[1])
        os.read(go[0], 1)
        os._exit(0)
    try:
        if os.read(ready[0], 1) != b"\1":
            raise OSError(0, "user namespaces are not to be had")
        for name, number in (("uid_map", owner), ("gid_map", group)):
            with open(f"/proc/{process}/{name}", "w", encoding="ascii") as file:
                file.write(f"{number} {user} 1")
        return os.open(f"/proc/{process}/ns/user", os.O_RDONLY)
    finally:
        for end in (*ready, *go):
            os.close(end)
        os.waitpid(process, 0)


def _open_mapped(source: str, mappings: dict[tuple[int, int], int], user: int) -> int:
    """Return a detached mount of a path, with mapped owners."""
    flags = _CLONE | _CLOSE_ON_EXEC | _RECURSIVE
    tree = _check(_libc.syscall(_OPEN_TREE, _HERE, os.fsencode(source), flags), source)
    status = os.stat(source)
    owner = (status.st_uid, status.st_gid)
    if owner not in mappings:
        mappings[owner] = _make_id_mapping(*owner, user)
    attributes = struct.pack("=QQQQ", _MAP_IDS, 0, 0, mappings[owner])
    mapped = _libc.syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH | _RECURSIVE, attributes, len(attributes))
    _check(mapped, f"the owner of {source} cannot be mapped")
    return tree


def _read_files(tree: str) -> list[tuple[str, bytes]]:
    files = []
    for directory, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                files.append((os.path.relpath(path, tree), file.read()))
    return files


def _show(sources: list[str], copies: list[tuple[str, bytes]], user: int) -> None:
    """Show each source by its number, and the program, in a new /tmp."""
    mappings: dict[tuple[int, int], int] = {}
    trees = [(_open_mapped(source, mappings, user), os.path.isdir(source)) for source in sources]
    _check(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", _NO_SET_ID | _NO_DEVICES, b"mode=755"), "/tmp")
    for place, (tree, is_directory) in enumerate(trees):
        path = f"/tmp/{place}"
        if is_directory:
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _check(_libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, path.encode(), _FROM_EMPTY_PATH), sources[place])
    for name, content in copies:
        path = os.path.join(_PROGRAM, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120  # as above
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o755)  # noqa: PTH101, S103  # as above; the program of a user who is nobody


def _unshare_nested() -> None:
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USERS | _NEW_MOUNTS), "user namespaces are not to be had")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    _make_mounts_private()
    _guard_devices()


def _become_mapped(user: int, tree: str, sources: list[str], program: str) -> str | int:
    opened = os.open(program, os.O_RDONLY)
    copies = _read_files(tree) if tree else []
    _check(_libc.unshare(_NEW_MOUNTS), "mount namespaces are not to be had")
    _make_mounts_private()
    _guard_devices()
    _show(sources, copies, user)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    return os.path.join(_PROGRAM, os.path.relpath(program, tree)) if tree else opened


def prepare(options: list[tuple[str, str]], program: str) -> str | int:
    """Make the mounts. Return the path or the descriptor at which this process can run the program."""
    values = dict(options)
    try:
        if values["launch"] == "mapped":
            sources = [value for kind, value in options if kind == "source"]
            return _become_mapped(int(values["user"]), values["tree"], sources, program)
        _unshare_nested()
    except OSError as error:
        raise OSError(error.errno, f"launcher: {error.strerror}", error.filename) from None
    return program
