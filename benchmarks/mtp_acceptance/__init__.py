# SPDX-License-Identifier: Apache-2.0
"""Acceptance of a trained MTP draft in a live engine, after right and wrong ways to move its weights.

Two processes train a real Megatron-Core model, a third runs real vLLM, all on a CPU; between rounds of training the
engine's weights are written in place. `python -m benchmarks.mtp_acceptance` prints the table and draws the figure.
"""
