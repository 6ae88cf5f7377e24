"""The lab: five real hosts on one machine, with no way out.

``python3 -m tests.lab up|images|status|down``, run as root from the checkout, standard library only.
"""
