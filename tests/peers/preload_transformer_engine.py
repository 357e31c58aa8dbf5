# SPDX-License-Identifier: Apache-2.0
"""As `preload`, with the stand-in for TransformerEngine in place."""

import megatron_cpu

megatron_cpu.prepare(transformer_engine=True)

import preload  # noqa: E402, F401
