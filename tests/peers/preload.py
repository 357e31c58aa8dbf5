# SPDX-License-Identifier: Apache-2.0
"""Imported once by the process from which the peers are forked, so that no test pays for these imports again."""

import megatron_cpu

megatron_cpu.prepare()

import megatron.core.models.gpt.gpt_model  # noqa: E402, F401
import transformers.models.auto.modeling_auto  # noqa: E402, F401
