"""Start a program as the engine does: ``begin.py ROOT ENVIRONMENT PROGRAM ARGUMENT...``, in namespaces of its own.

It becomes user 1000 of a root folder, without a capability or a way to get one; the bounding set holds what the
collection leaves in it.
"""

import ctypes
import json
import os
import signal
import sys

DROP_BOUNDING, NO_NEW_PRIVILEGES = 24, 38
LAST_CAPABILITY, BOUNDING = 63, (13, 23)


def main() -> None:
    root, environment, *words = sys.argv[1:]
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.chroot(root)
    os.chdir("/")
    kernel = ctypes.CDLL(None)
    for capability in range(LAST_CAPABILITY):
        if capability not in BOUNDING:
            kernel.prctl(DROP_BOUNDING, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    kernel.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.execve(words[0], words, json.loads(environment))


main()
