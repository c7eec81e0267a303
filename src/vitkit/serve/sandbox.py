"""What a decoder process gives up before it sees an untrusted image. Nothing here can be undone by the process.

                              Linux                            macOS
memory                        RLIMIT_AS                        not limited
files written, core dumps     none (RLIMIT_FSIZE, RLIMIT_CORE) none
new processes, not for root   none (RLIMIT_NPROC)              none
privileges from set-uid files none (no_new_privs)              not limited
files read                    libraries only (Landlock)        not limited
TCP, signals to others        none (Landlock of Linux 6.7, 6.12)  not limited
end of the fork server        kills it (PR_SET_PDEATHSIG)      ends it at its next request
"""

import ctypes
import os
import signal
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import PIL

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, equal on all architectures
_VERSION, _PATH_BENEATH = 1, 1
_READ = 1 << 2 | 1 << 3  # files, folders
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # version of Landlock → number of rights about files
_MAX_OPEN_FILES = 32


def enter_sandbox(memory: int) -> None:
    """Limit this process to `memory` more bytes, and to reading the libraries that it may still import."""
    _limit_resources(memory)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if landlock_version():
            files = (np.__file__, PIL.__file__, Path(__file__).parent)
            _restrict_files(libc, [Path(sysconfig.get_path("stdlib")), *(Path(file).parent for file in files)])


def landlock_version() -> int:
    """Return the version of Landlock, or 0 if this system has none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION))


def _limit_resources(memory: int) -> None:
    import resource  # POSIX only: the pool imports this module on every system

    statm = Path("/proc/self/statm")
    if statm.exists():  # the limit comes on top of what the imports have mapped
        most = int(statm.read_text("utf-8").split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(kind, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_OPEN_FILES, _MAX_OPEN_FILES))


def _restrict_files(libc: ctypes.CDLL, readable: Iterable[Path]) -> None:
    """Deny all access to files except reading below `readable`, and TCP and signals if the kernel can deny them."""
    version = landlock_version()
    files = 2 ** max(count for since, count in _FILE_RIGHTS.items() if version >= since) - 1
    network, scopes = 3 * (version >= 4), 3 * (version >= 6)
    ruleset = _call(libc, _CREATE_RULESET, np.array([files, network, scopes], np.uint64).tobytes(), 24, 0)
    for path in readable:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = np.uint64(_READ).tobytes() + np.int32(folder).tobytes()
        _call(libc, _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        os.close(folder)
    _call(libc, _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _call(libc: ctypes.CDLL, number: int, *arguments: int | bytes) -> int:
    wide = (ctypes.c_size_t(argument) if isinstance(argument, int) else argument for argument in arguments)
    result: int = libc.syscall(number, *wide)
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock")
    return result
