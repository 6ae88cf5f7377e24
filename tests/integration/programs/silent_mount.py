"""Mount a FUSE file system that never answers at a path, as a lost NFS server; when this program ends, it is gone."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

REQUEST, INIT_REPLY = struct.Struct("<IIQQIIII"), struct.Struct("<IiQIIIIHHIIHHI7I")
INIT, VERSION = 26, (7, 31)

target = sys.argv[1]
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"silent", os.fsencode(target), b"fuse", 0, options.encode()):
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
while True:
    # A request that was read and is not answered keeps its process in state D, whatever signal it gets.
    request = os.read(device, 1 << 20)
    _length, opcode, number, *_rest = REQUEST.unpack_from(request)
    if opcode == INIT:
        limits = (0, 0, 12, 10, 1 << 16, 1, 0, 0, 0)
        os.write(device, INIT_REPLY.pack(INIT_REPLY.size, 0, number, *VERSION, *limits, *[0] * 7))
        print("mounted", flush=True)
