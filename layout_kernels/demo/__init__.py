# SPDX-License-Identifier: Apache-2.0
"""The main job on one machine: trainers and rollouts as processes, several syncs, every byte verified.

`settings.py` says what is run, `rank.py` is one process, `run.py` starts them all and listens, `show.py` is what people
see, and `outlook.py` says what would move without moving it.
"""
