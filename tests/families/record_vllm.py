# SPDX-License-Identifier: Apache-2.0
"""Writes `vllm_cpu.json`: what the parameters of live vLLM engines are called, and their shapes and dtypes.

    python tests/families/record_vllm.py NAME [--draft]

It needs vLLM 0.32 for CPUs (`tests/peers/requirements-vllm.txt`), builds the engine of the config that stands in the
file under NAME, with random weights, and writes what it holds. ``--draft`` adds its model of multi-token prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "vllm_cpu.json"
SHORT = {"torch.bfloat16": "bf16", "torch.float32": "f32"}
RUNNING = {"max_position_embeddings": 256, "torch_dtype": "bfloat16", "rope_theta": 10000.0}
DRAFTING = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}


def held(model: Any) -> dict[str, list[Any]]:
    return {name: [SHORT[str(one.dtype)], *one.shape] for name, one in model.named_parameters()}


def record(config: dict[str, Any], draft: bool) -> dict[str, dict[str, list[Any]]]:
    from layout_kernels.integrations import vllm as integration

    integration.use_plain_linears()
    from vllm import LLM

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**RUNNING, **config}))
        how = {"skip_tokenizer_init": True, "enforce_eager": True, "max_model_len": 256, "load_format": "dummy"}
        engine = LLM(folder, dtype="bfloat16", **how, **(DRAFTING if draft else {}))
    runner = integration.runner(engine)
    found = {"target": held(runner.model)}
    return found | ({"draft": held(runner.drafter.model)} if draft else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--draft", action="store_true")
    asked = parser.parse_args()
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")
    everything = json.loads(RECORD.read_text())
    everything[asked.name] |= record(everything[asked.name]["config"], asked.draft)
    RECORD.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
