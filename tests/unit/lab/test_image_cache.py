"""Built images that outlive the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.identity import Lab
from tests.lab.image_cache import cached, remove_others, writing


@pytest.fixture(name="lab")
def a_lab(tmp_path: Path) -> Lab:
    """A lab with one built image."""
    lab = Lab(tmp_path)
    with writing(lab, "bookworm-1.tar") as draft:
        draft.write_bytes(b"image")
    return lab


def names(lab: Lab) -> list[str]:
    return sorted(path.name for path in lab.cache.iterdir())


def test_an_image_is_found_by_its_name(lab: Lab) -> None:
    image = cached(lab, "bookworm-1.tar")
    assert image is not None
    assert image.read_bytes() == b"image"
    assert cached(lab, "bookworm-2.tar") is None


@pytest.mark.parametrize("content", [b"imag", b"", b"Image"])
def test_a_damaged_image_is_removed(lab: Lab, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (lab.cache / "bookworm-1.tar").write_bytes(content)
    assert cached(lab, "bookworm-1.tar") is None
    assert names(lab) == []
    assert "bookworm-1.tar is damaged: it is built again" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["bookworm-1.tar", "bookworm-1.sha256"])
def test_an_image_that_a_killed_run_has_left_is_removed(lab: Lab, missing: str) -> None:
    (lab.cache / missing).unlink()
    assert cached(lab, "bookworm-1.tar") is None
    assert names(lab) == []


def test_a_failed_build_leaves_nothing(lab: Lab) -> None:
    def build() -> None:
        with writing(lab, "trixie-1.tar") as draft:
            draft.write_bytes(b"ima")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        build()
    assert names(lab) == ["bookworm-1.sha256", "bookworm-1.tar"]


def test_images_of_earlier_recipes_and_drafts_are_removed(lab: Lab) -> None:
    with writing(lab, "bookworm-2.tar") as draft:
        draft.write_bytes(b"newer image")
    (lab.cache / "trixie-2.new").write_bytes(b"half an image")
    remove_others(lab, {"bookworm-2.tar", "trixie-2.tar"})
    assert names(lab) == ["bookworm-2.sha256", "bookworm-2.tar"]
