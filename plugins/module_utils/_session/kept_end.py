# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compresses the end of a log."""

from __future__ import annotations

import zlib

# The maximum size of half of a kept log before it is compressed.
RAW_BYTES = 64 << 20

# A gzip file has so much beside its data, and so does each flush.
_FRAME_BYTES = 32

# How much is compressed at once at most, before its size is looked at.
_PIECE_BYTES = 16 << 10


class KeptEnd:
    """The end of a log as a gzip file of at most ``size`` bytes.

    It has two halves, of which the older one is dropped when the newer one is full.
    """

    def __init__(self, size: int) -> None:
        self._half = size // 2
        self._piece = max(1, min(_PIECE_BYTES, self._half // 8))
        self._older = b""
        self._begin()

    def _begin(self) -> None:
        # Little is kept back before it is written: the size is known soon.
        self._compressor = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16, 5)
        self._chunks: list[bytes] = []
        # Of what was written, of what was added since the last flush, and of what was added at all.
        self._size, self._pending, self._raw_size = _FRAME_BYTES, 0, 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk at the end of the log."""
        for at in range(0, len(chunk), self._piece):
            self._add(chunk[at : at + self._piece])

    def _add(self, piece: bytes) -> None:
        if self._would_be_full(piece):
            self._write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
            self._pending = 0
        if self._would_be_full(piece) or self._raw_size >= RAW_BYTES:
            self._older = self._newer()
            self._begin()
        if not self._would_be_full(piece):
            self._write(self._compressor.compress(piece))
            self._pending += len(piece)
            self._raw_size += len(piece)

    def _would_be_full(self, piece: bytes) -> bool:
        # What cannot be compressed becomes a little larger.
        added = self._pending + len(piece)
        return self._size + added + (added >> 10) + _FRAME_BYTES > self._half

    def _write(self, compressed: bytes) -> None:
        self._chunks.append(compressed)
        self._size += len(compressed)

    def _newer(self) -> bytes:
        return b"".join([*self._chunks, self._compressor.flush()])

    def content(self) -> bytes:
        """Return both halves: a gzip file may have several members."""
        return self._older + self._newer()
