"""The lab: six hosts on one machine, without access to other networks.

``python3 -m tests.lab all|up|provision|images|status|down``, run as root from the checkout, standard library only.
``create`` and ``destroy`` are for the hosts of Molecule scenarios. The images that it builds stay in ``.cache/lab`` for
the next lab.
"""
