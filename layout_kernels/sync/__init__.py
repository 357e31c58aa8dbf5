# SPDX-License-Identifier: Apache-2.0
"""Weights from trainers to rollouts, over process groups of their own, in place, whole or marked."""

from __future__ import annotations

from .channel import Channel, SyncError, Transfer
from .connect import connect
from .handle import RunningSync
from .receiver import WeightReceiver
from .report import SyncReport
from .sender import WeightSender
from .state import ReceiverState

__all__ = [
    "Channel",
    "ReceiverState",
    "RunningSync",
    "SyncError",
    "SyncReport",
    "Transfer",
    "WeightReceiver",
    "WeightSender",
    "connect",
]
