"""Whether the home of user work is that of the image."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.image_look import HomeFolder, ImageLook


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "keeps"),
    [
        (1000, 0, 0o700, True),
        (1000, 0, 0o500, False),
        (1000, 0, 0o077, False),
        (0, 1000, 0o770, True),
        (0, 50, 0o730, True),
        (0, 50, 0o707, False),
        (0, 0, 0o777, True),
        (0, 0, 0o1777, True),
        (0, 0, 0o775, False),
        (0, 0, 0o772, False),
    ],
)
def test_a_home_stays_the_images_if_its_user_may_write_there(uid: int, gid: int, mode: int, keeps: bool) -> None:
    look = ImageLook(home=HomeFolder(uid, gid, mode))
    assert look.has_home
    assert look.keeps_home(1000, 1000, [50]) is keeps


def test_an_image_without_a_home_keeps_none() -> None:
    assert not ImageLook().has_home
    assert not ImageLook().keeps_home(1000, 1000)
