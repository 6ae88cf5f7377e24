"""The end of a log, compressed."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ansible_collections.backendai.cluster.plugins.module_utils._docker.logs import Allowance, tail_of_kept
from ansible_collections.backendai.cluster.plugins.module_utils._session import kept_end
from ansible_collections.backendai.cluster.plugins.module_utils._session.kept_end import KeptEnd


def lines_of(kind: str, count: int) -> Iterator[bytes]:
    numbers = random.Random(1)
    for number in range(count):
        yield {
            "noise": numbers.randbytes(3000).hex().encode() + b"\n",
            "numbers": b"step %d\n" % number,
            "zeros": b"\0" * 60_000 + b"\n",
        }[kind]


def test_short_log_is_kept_whole() -> None:
    kept = KeptEnd(1 << 20)
    for chunk in (b"one\n", b"", b"two\n"):
        kept.add(chunk)
    assert gzip.decompress(kept.content()) == b"one\ntwo\n"
    assert gzip.decompress(KeptEnd(1 << 20).content()) == b""


@pytest.mark.parametrize(("kind", "count"), [("noise", 300), ("numbers", 60_000), ("zeros", 400)])
@pytest.mark.parametrize("size", [2_000, 50_000, 200_000])
def test_of_a_long_log_the_end_is_kept_within_the_size(kind: str, count: int, size: int) -> None:
    kept, whole = KeptEnd(size), b"".join(lines_of(kind, count))
    for line in lines_of(kind, count):
        kept.add(line)
    content = kept.content()
    end = gzip.decompress(content)
    assert len(content) <= size
    assert whole.endswith(end)
    # Less than half of it only where the newest half has just begun.
    assert len(content) > size // 2 - 1000 or end == whole


@given(chunks=some.lists(some.binary(max_size=3000), max_size=30), size=some.integers(200, 5000))
def test_whatever_is_added_what_is_kept_is_its_end_and_no_larger(chunks: list[bytes], size: int) -> None:
    kept = KeptEnd(size)
    for chunk in chunks:
        kept.add(chunk)
    content = kept.content()
    assert len(content) <= size
    assert b"".join(chunks).endswith(gzip.decompress(content))


def test_what_can_be_compressed_well_is_limited_as_it_was_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_end, "RAW_BYTES", 50_000)
    kept = KeptEnd(1 << 20)
    for _line in range(100):
        kept.add(b"x" * 9_999 + b"\n")
    (tmp_path / "kept.gz").write_bytes(kept.content())
    assert len(tail_of_kept(str(tmp_path / "kept.gz"), 100, Allowance(1 << 20, 60))) in range(5, 12)
