"""Bind memory of this process to NUMA node 0, and print as JSON what works."""

from __future__ import annotations

import ctypes
import json
import mmap
import os

NUMBERS = {"x86_64": {"mbind": 237, "set_mempolicy": 238}, "aarch64": {"mbind": 235, "set_mempolicy": 237}}
BIND = 2

kernel = ctypes.CDLL(None, use_errno=True)
numbers = NUMBERS[os.uname().machine]
nodes = ctypes.c_ulong(1)
area = mmap.mmap(-1, mmap.PAGESIZE)
start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area)))
size, bits, flags = ctypes.c_ulong(mmap.PAGESIZE), ctypes.c_ulong(64), ctypes.c_ulong(0)
results = {
    "set_mempolicy": kernel.syscall(numbers["set_mempolicy"], BIND, ctypes.byref(nodes), bits),
    "mbind": kernel.syscall(numbers["mbind"], start, size, BIND, ctypes.byref(nodes), bits, flags),
}
print(json.dumps(results))
