# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command ``backendai``: sessions for the users of a manager, without access to the manager's keys.

``user`` runs as the user: reads files and keys, shows results, starts ssh. ``manager`` runs as the manager's account,
behind sudo: decides who may do what, and runs the playbooks. Both speak :mod:`.protocol`.
"""
