"""Runs bubblewrap as nobody in particular, for root. A script of its own: `launcher.py USER SOURCE... -- BWRAP ...`.

Root's processes are bound by no limit on their number, and `--uid` alone changes nothing of that. So this process
becomes USER, a number that nobody has, and shows it each SOURCE in /tmp, by its place in the list, through a mount
that maps the owner of the files to USER and back: what is written is the owner's on disk. See mount_setattr(2),
MOUNT_ATTR_IDMAP. All of that is in a mount namespace of its own. Fails where the kernel or a file system cannot
do it.
"""

from __future__ import annotations

# ruff: noqa: PTH102, PTH112, PTH116, PTH123  # each module that is imported costs a command its time
import ctypes
import os
import struct
import sys

# linux/sched.h, linux/mount.h, linux/fcntl.h. These numbers are the same on every architecture.
_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _EMPTY_PATH, _RECURSIVE = -100, 0x1000, 0x8000
_CLONE, _CLOSE_ON_EXEC, _FROM_EMPTY_PATH = 1, 0o2000000, 4
_MAP_IDS = 0x00100000
_RECURSIVELY, _PRIVATE, _NO_SET_ID, _NO_DEVICES = 0x4000, 0x40000, 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _mapping(owner: int, group: int, user: int) -> int:
    """A user namespace in which `owner` is `user` outside."""
    ready, go = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        os.write(ready[1], bytes([_libc.unshare(_NEW_USERS) == 0]))
        os.close(go[1])
        os.read(go[0], 1)
        os._exit(0)
    try:
        if os.read(ready[0], 1) != b"\1":
            raise OSError("no user namespace")
        for name, number in (("uid_map", owner), ("gid_map", group)):
            with open(f"/proc/{process}/{name}", "w", encoding="ascii") as file:
                file.write(f"{number} {user} 1")
        return os.open(f"/proc/{process}/ns/user", os.O_RDONLY)
    finally:
        for end in (*ready, *go):
            os.close(end)
        os.waitpid(process, 0)


def _taken(source: str, mappings: dict[tuple[int, int], int], user: int) -> int:
    """A mount of what is at a path, that is nowhere yet."""
    tree = _checked(_libc.syscall(_OPEN_TREE, _HERE, os.fsencode(source), _CLONE | _CLOSE_ON_EXEC | _RECURSIVE))
    found = os.stat(source)
    owner = (found.st_uid, found.st_gid)
    if owner not in mappings:
        mappings[owner] = _mapping(*owner, user)
    attributes = struct.pack("=QQQQ", _MAP_IDS, 0, 0, mappings[owner])
    _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH | _RECURSIVE, attributes, len(attributes)))
    return tree


def _shown(sources: list[str], user: int) -> None:
    _checked(_libc.unshare(_NEW_MOUNTS))
    _checked(_libc.mount(None, b"/", None, _RECURSIVELY | _PRIVATE, None))
    mappings: dict[tuple[int, int], int] = {}
    trees = [(_taken(source, mappings, user), os.path.isdir(source)) for source in sources]
    _checked(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", _NO_SET_ID | _NO_DEVICES, b"mode=755"))
    for place, (tree, is_directory) in enumerate(trees):
        path = f"/tmp/{place}"  # noqa: S108  # ours alone
        if is_directory:
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, path.encode(), _FROM_EMPTY_PATH))


def _main(user: int, sources: list[str], command: list[str]) -> None:
    # By its number, since USER may not reach its path.
    program = os.open(command[0], os.O_RDONLY)
    try:
        _shown(sources, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:
        sys.exit("this machine cannot map users")
    os.execve(program, command, dict(os.environ))  # noqa: S606  # which is the purpose


if __name__ == "__main__":
    _between = sys.argv.index("--")
    _main(int(sys.argv[1]), sys.argv[2:_between], sys.argv[_between + 1 :])
