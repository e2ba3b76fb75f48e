"""Tries, within a sandbox, what none may allow: `inside.py FACTS` prints as JSON which tries succeeded.

Every try is harmless where it succeeds: what is opened is not written to, calls have arguments that fail behind the
check of permission, and what is changed belongs to the probes.
"""

# ruff: noqa: PERF401, PTH101, PTH102, PTH104, PTH108, PTH114, PTH115, PTH116, PTH118, PTH121, PTH123, PTH208, PTH211, T201

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile

FACTS = json.loads(sys.argv[1])
os.chdir("work")
ARM = os.uname().machine == "aarch64"
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS, errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT)
REFUSALS += (errno.EPROTONOSUPPORT,)
LIBC = ctypes.CDLL(None, use_errno=True)
TRIES = {}


def tries(function):
    TRIES[function.__name__.replace("_", " ")] = function
    return function


def call(x86, arm, *arguments):
    """Whether a system call gets past the checks of permission."""
    number = arm if ARM else x86
    if number is None:
        return False
    ctypes.set_errno(0)
    padded = [each if isinstance(each, bytes | ctypes.Array) else ctypes.c_long(each) for each in arguments]
    return LIBC.syscall(ctypes.c_long(number), *padded) >= 0 or ctypes.get_errno() not in REFUSALS


def opens(path, flags=os.O_WRONLY):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        return False
    return True


def works(attempt):
    try:
        attempt()
    except OSError:
        return False
    return True


def files(root, skip=()):
    for directory, inner, names in os.walk(root):
        inner[:] = [each for each in inner if not (directory == root and (each.isdigit() or each in skip))]
        yield from (os.path.join(directory, name) for name in names)


# The kernel's settings

TRIES |= {
    "set kernel settings": lambda: [path for path in files("/proc/sys") if opens(path)],
    "set core pattern": lambda: opens("/proc/sys/kernel/core_pattern"),
    "press sysrq": lambda: opens("/proc/sysrq-trigger"),
}


@tries
def write_elsewhere_in_proc():
    found = [path for path in files("/proc", ("sys", "self", "thread-self")) if not os.path.islink(path)]
    return [path for path in found if opens(path) and not os.path.samefile(path, os.devnull)]


TRIES |= {
    "write to sys": lambda: [path for path in files("/sys") if opens(path)],
    "join a cgroup": lambda: [path for path in ("/sys/fs/cgroup/cgroup.procs", "/proc/self/cgroup") if opens(path)],
    "read kernel memory": lambda: any(
        opens(path, os.O_RDONLY) for path in ("/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port")
    ),
    "read the kernels log": lambda: (
        opens("/proc/kmsg", os.O_RDONLY) or opens("/dev/kmsg", os.O_RDONLY) or call(103, 116, 10, 0, 0)
    ),
}


@tries
def open_devices():
    names = (
        "kmsg loop-control kvm fuse net/tun mapper/control vda sda nvme0n1 rtc0 uinput vhost-vsock ptmx0 console tty1"
    )
    return [name for name in names.split() if opens(f"/dev/{name}", os.O_RDWR)]


@tries
def make_a_device():
    def make():
        for kind in (0o020666, 0o060666):
            os.mknod("device", kind, os.makedev(1, 1))

    return works(make)


TRIES |= {
    "change the permissions of a device": lambda: [
        name for name in FACTS["devices"] if works(lambda path=name: os.chmod(path, os.stat(path).st_mode & 0o777))
    ],
    "change the times of a device": lambda: [
        name for name in FACTS["devices"] if works(lambda path=name: os.utime(path))
    ],
}


@tries
def change_the_owner_of_a_device():
    owned = {name: os.stat(name) for name in FACTS["devices"]}
    return [name for name, its in owned.items() if works(lambda p=name, its=its: os.chown(p, its.st_uid, its.st_gid))]


# The machine

TRIES |= {
    "load a kernel": lambda: call(246, 104, 0, 100000, 0, 0) or call(320, 294, -1, -1, 0, b"", 0),
    "load a module": lambda: call(175, 105, 0, 0, b"") or call(313, 273, -1, b"", 0),
    "unload a module": lambda: call(176, 106, b"no_such_module", 0),
    "swap": lambda: call(167, 224, b"/no/such/file", 0) or call(168, 225, b"/no/such/file"),
    "set quotas": lambda: call(179, 60, 0x7FFFFF00, b"/no/such/file", 0, 0),
    "reboot": lambda: call(169, 142, 1, 2, 3, 0),
    "account for processes": lambda: call(163, 89, b"/no/such/file"),
    "name the machine": lambda: call(170, 161, b"x", -1) or call(171, 162, b"x", -1),
}


@tries
def set_the_time():
    wrong = struct.pack("=qq", 0, 10**10)
    return (
        call(164, 170, wrong, 0)
        or call(227, 112, 0, wrong)
        or call(159, 171, bytes(256))
        or call(305, 266, 0, bytes(256))
    )


TRIES |= {
    "use ports": lambda: call(172, None, 3) or call(173, None, 0x80, 1, 1),
    "hang up a terminal": lambda: call(153, 58),
}

# Mounts and namespaces

TRIES |= {
    "mount a file system": lambda: call(165, 40, b"x", b"/no/such/place", b"tmpfs", 0, 0),
    "unmount": lambda: call(166, 39, b"/no/such/place", 0),
    "change the root": lambda: call(155, 41, b"/no/such/place", b"/no/such/place") or call(161, 51, b"."),
    "mount by descriptors": lambda: (
        call(430, 430, b"tmpfs", 0)
        or call(428, 428, -100, b".", 1)
        or call(429, 429, -1, b"", -1, b"", 4)
        or call(433, 433, -100, b".", 0)
        or call(442, 442, -100, b".", 0, bytes(32), 32)
    ),
}


@tries
def join_a_namespace():
    for name in ("user", "mnt", "net", "pid"):
        for process in ("self", "1", FACTS["process"]):
            with contextlib.suppress(OSError):
                descriptor = os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY)
                if call(308, 268, descriptor, 0):
                    return True
    return call(308, 268, -1, 0)


@tries
def make_a_namespace():
    flags = (0x10000000, 0x00020000, 0x40000000, 0x08000000, 0x20000000, 0x04000000, 0x02000000)
    return [flag for flag in flags if call(272, 97, flag)]


@tries
def make_a_process_in_a_namespace():
    result = LIBC.syscall(ctypes.c_long(220 if ARM else 56), ctypes.c_long(0x10000011), 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    return result > 0 or call(435, 435, bytes(88), 88)


TRIES |= {
    "open by handle": lambda: (
        call(303, 264, -100, b".", bytes(200), bytes(8), 0) or call(304, 265, -100, bytes(200), 0)
    ),
    "watch a file system": lambda: call(300, 262, 0, 0) or call(300, 262, 0x200, 0),
}

# Parts of the kernel that are large and often broken

TRIES |= {
    "use bpf": lambda: call(321, 280, 0, bytes(128), 128) or call(321, 280, 5, bytes(128), 128),
    "count events": lambda: call(298, 241, bytes(128), 0, -1, -1, 0),
    "handle page faults": lambda: call(323, 282, 1),
    "use io uring": lambda: (
        call(425, 425, 1, ctypes.create_string_buffer(256))
        or call(426, 426, -1, 0, 0, 0, 0)
        or call(427, 427, -1, 0, 0, 0)
    ),
    "use keyrings": lambda: (
        call(250, 219, 0, -3, 1) or call(248, 217, b"user", b"x", b"x", 1, -3) or call(249, 218, b"user", b"x", 0, 0)
    ),
}


@tries
def use_calls_of_another_architecture():
    child = os.fork()
    if not child:
        LIBC.syscall(ctypes.c_long(0x40000000 + 39))
        os._exit(ARM or ctypes.get_errno() == errno.ENOSYS)
    status = os.waitpid(child, 0)[1]
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


@tries
def gain_capabilities():
    with open("/proc/self/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file)
    # A user cannot narrow what programs with capabilities may get; without new privileges they get none.
    bare = all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    return not bare or status["NoNewPrivs"].strip() != "1" or status["Seccomp"].strip() != "2"


# Other processes

TRIES |= {
    "trace a process": lambda: call(101, 117, 16, FACTS["process"], 0, 0),
    "read a processes memory": lambda: (
        call(310, 270, FACTS["process"], bytes(16), 1, bytes(16), 1, 0)
        or opens(f"/proc/{FACTS['process']}/mem", os.O_RDONLY)
        or opens(f"/proc/{FACTS['process']}/maps", os.O_RDONLY)
    ),
    "write a processes memory": lambda: (
        call(311, 271, FACTS["process"], bytes(16), 1, bytes(16), 1, 0) or opens(f"/proc/{FACTS['process']}/mem")
    ),
}


@tries
def reach_a_processes_files():
    place = f"/proc/{FACTS['process']}"
    return works(lambda: os.listdir(os.path.join(place, "root", ""))) or works(lambda: os.readlink(f"{place}/fd/0"))


TRIES |= {
    "take a processes descriptor": lambda: (
        call(438, 438, -1, 0, 0) or call(312, 272, os.getpid(), os.getpid(), 0, 0, 0)
    ),
    "advise on a processes memory": lambda: (
        call(440, 440, -1, 0, 0, 0, 0) or call(279, 239, FACTS["process"], 0, 0, 0, 0, 0)
    ),
    "set what is ended first": lambda: [
        name for name in ("oom_score_adj", "timerslack_ns", "comm") if opens(f"/proc/{FACTS['process']}/{name}")
    ],
    "set a processes limits": lambda: prevails(lambda: call(302, 261, FACTS["process"], 7, 0, 0)),
    "set a processes priority": lambda: works(lambda: os.setpriority(os.PRIO_PROCESS, FACTS["process"], 1)),
    "set a processes input priority": lambda: prevails(lambda: call(251, 30, 1, FACTS["process"], 0)),
    "set a processes processors": lambda: works(
        lambda: os.sched_setaffinity(FACTS["process"], os.sched_getaffinity(0))
    ),
    "set a processes scheduler": lambda: works(
        lambda: os.sched_setscheduler(FACTS["process"], os.SCHED_BATCH, os.sched_param(0))
    ),
    "send a signal": lambda: (
        works(lambda: os.kill(FACTS["process"], 0)) or works(lambda: os.kill(FACTS["process"], signal.SIGCONT))
    ),
    "send a signal by handle": lambda: works(
        lambda: signal.pidfd_send_signal(os.pidfd_open(FACTS["process"]), signal.SIGCONT)
    ),
}


@tries
def have_the_kernel_send_a_signal():
    """Judged by whether the process is still there."""
    with contextlib.suppress(OSError):
        reading, writing = os.pipe()
        fcntl.fcntl(reading, fcntl.F_SETOWN, FACTS["process"])
        fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        os.write(writing, b"x")
        select.select([reading], [], [], 0)


def prevails(attempt):
    """Whether a call found the process; in a namespace of its own there is none of that number."""
    return attempt() and ctypes.get_errno() != errno.ESRCH


# What processes have in common

TRIES |= {
    "attach shared memory": lambda: prevails_over_id(lambda: call(30, 196, FACTS["shared memory"], 0, 0o10000)),
    "remove shared memory": lambda: prevails_over_id(lambda: call(31, 195, FACTS["shared memory"], 0, 0)),
    "write to a message queue": lambda: prevails_over_id(
        lambda: call(69, 189, FACTS["messages"], struct.pack("=q8s", 1, b"x"), 1, 0o4000)
    ),
    "read from a message queue": lambda: prevails_over_id(
        lambda: call(70, 188, FACTS["messages"], ctypes.create_string_buffer(64), 8, 0, 0o4000)
    ),
    "use a semaphore": lambda: prevails_over_id(
        lambda: call(65, 193, FACTS["semaphores"], struct.pack("=Hhh", 0, 1, 0o4000), 1)
    ),
    "set a semaphore": lambda: prevails_over_id(lambda: call(66, 191, FACTS["semaphores"], 0, 16, 1)),
}


def prevails_over_id(attempt):
    return attempt() and ctypes.get_errno() not in (errno.EINVAL, errno.EIDRM)


TRIES |= {
    "open a named message queue": lambda: (
        call(240, 180, FACTS["queue"].encode(), os.O_RDWR, 0, 0) and ctypes.get_errno() != errno.ENOENT
    ),
    "remove a named message queue": lambda: (
        call(241, 181, FACTS["queue"].encode()) and ctypes.get_errno() != errno.ENOENT
    ),
    "open named shared memory": lambda: (
        opens(f"/dev/shm/{FACTS['shm']}", os.O_RDONLY) or opens(f"/dev/shm/{FACTS['shm']}", os.O_RDWR | os.O_NOFOLLOW)
    ),
    "remove named shared memory": lambda: works(lambda: os.unlink(f"/dev/shm/{FACTS['shm']}")),
    "use a memory file": lambda: works(lambda: os.memfd_create("x")),
}

# Sockets that lead out of a network namespace, or load a module

TRIES |= {
    "open a packet socket": lambda: (
        works(lambda: socket.socket(17, socket.SOCK_RAW)) or works(lambda: socket.socket(2, 10))
    ),
    "open a raw socket": lambda: (
        works(lambda: socket.socket(2, socket.SOCK_RAW, 1)) or works(lambda: socket.socket(10, socket.SOCK_RAW, 58))
    ),
    "open a netlink socket of the kernel": lambda: [
        protocol
        for protocol in (2, 4, 6, 9, 10, 11, 12, 15, 16, 21)
        if works(lambda p=protocol: socket.socket(16, 3, p))
    ],
    "open a socket of another family": lambda: [
        family
        for family in (3, 4, 5, 9, 21, 26, 29, 30, 31, 38, 39, 40, 43, 44)
        if works(lambda f=family: socket.socket(f, 1))
    ],
}


@tries
def have_a_module_loaded_for_a_socket():
    kinds = ((2, 1, 132), (2, 5, 0), (2, 5, 132), (2, 6, 33), (2, 1, 262), (10, 5, 132), (2, 2, 136), (2, 1, 256))
    return [kind for kind in kinds if works(lambda k=kind: socket.socket(*k))] or works(
        lambda: socket.socketpair(30, 5)
    )


# What is known of a file that may be read, and is not in the workspace


def victim(attempt):
    """Tries it by the file's path, by a link, by a descriptor, and by the descriptor's path."""
    path = FACTS["readable"]
    done = []
    for name, file in (("path", path), ("link", FACTS["link"])):
        if works(lambda each=file: attempt(each)):
            done.append(name)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        for name, file in (("descriptor", descriptor), ("its path", f"/proc/self/fd/{descriptor}")):
            if works(lambda each=file: attempt(each)):
                done.append(name)
        os.close(descriptor)
    for each in FACTS["unreadable"]:
        if works(lambda file=each: attempt(file)):
            done.append(each)
    return done


TRIES |= {
    "change permissions": lambda: victim(lambda file: os.chmod(file, 0o600)),
    "change times": lambda: victim(os.utime),
    "set times": lambda: victim(lambda file: os.utime(file, (1, 1))),
    "change the owner": lambda: victim(lambda file: os.chown(file, os.getuid(), os.getgid())),
    "set an attribute": lambda: victim(lambda file: os.setxattr(file, "user.x", b"x")),
    "remove an attribute": lambda: victim(lambda file: os.removexattr(file, "user.mine")),
}


@tries
def set_flags():
    done = []
    for request, value in ((0x40086602, struct.pack("=q", 0x40)), (0x401C5820, bytes(28)), (0x40087602, bytes(8))):
        with contextlib.suppress(OSError):
            descriptor = os.open(FACTS["readable"], os.O_RDONLY)
            fcntl.ioctl(descriptor, request, value)
            done.append(hex(request))
    return done or call(469, 469, -100, FACTS["readable"].encode(), bytes(24), 24, 0)


TRIES |= {
    "shorten": lambda: victim(lambda file: os.truncate(file, 0)),
    "open for writing": lambda: victim(
        lambda file: os.close(os.open(file, os.O_WRONLY) if isinstance(file, str) else os.dup(-1))
    ),
    "link into the workspace": lambda: (
        works(lambda: os.link(FACTS["readable"], "hard")) or works(lambda: os.rename(FACTS["readable"], "moved"))
    ),
    "remove a file": lambda: works(lambda: os.unlink(FACTS["readable"])),
    "make a file beside": lambda: (
        works(lambda: os.mkdir(FACTS["readable"] + "-new"))
        or works(lambda: os.symlink("x", FACTS["readable"] + "-new"))
    ),
}


@tries
def have_others_wait():
    descriptor = os.open(FACTS["readable"], os.O_RDONLY)
    return works(lambda: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK))


@tries
def watch_a_file():
    descriptor = LIBC.inotify_init1(0)
    return [path for path in FACTS["unreadable"] if LIBC.inotify_add_watch(descriptor, path.encode(), 0xFFF) >= 0]


# What ordinary work needs; without it the rest would say little


def needs():
    """What does not work that should."""
    failed = []
    with tempfile.NamedTemporaryFile(dir=".") as file:
        for name, attempt in (
            ("permissions", lambda: os.chmod(file.name, 0o640)),
            ("permissions of a descriptor", lambda: os.fchmod(file.fileno(), 0o600)),
            ("times", lambda: os.utime(file.name, ns=(10**18, 10**18 + 7))),
            ("times of a descriptor", lambda: os.utime(file.fileno())),
            ("owner", lambda: os.chown(file.name, os.getuid(), os.getgid())),
            ("watching", lambda: LIBC.inotify_add_watch(LIBC.inotify_init1(0), b".", 0xFFF) >= 0 or 1 / 0),
            ("a pair of sockets", socket.socketpair),
            (
                "own priority",
                lambda: os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + 1)),
            ),
            ("own processors", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
        ):
            try:
                attempt()
            except (OSError, ZeroDivisionError) as error:
                failed.append(f"{name}: {error}")
        if os.stat(file.name).st_mode & 0o777 != 0o600:
            failed.append("permissions are not what was set")
    return failed


print(json.dumps({"found": {name: bool(attempt()) for name, attempt in TRIES.items()}, "needs": needs()}))
