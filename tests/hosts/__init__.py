"""Tests on hosts that the lab does not have: other engines, and other stores of images."""
