"""The lab: six hosts on one machine, without access to other networks.

``python3 -m tests.lab up|images|status|down``, run as root from the checkout, standard library only.
"""
