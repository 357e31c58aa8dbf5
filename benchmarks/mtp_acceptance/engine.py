# SPDX-License-Identifier: Apache-2.0
"""The engine's process: real vLLM on a CPU, whose weights are written in place between generations."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy

import layout_kernels as lk
from layout_kernels.integrations import vllm as live

from . import language, scenarios
from .processes import WAIT, meeting_place, say, wait_for
from .settings import Settings


class Engine:
    """A vLLM engine in this process that generates with its MTP draft and lets its logits be seen."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        from vllm import LLM

        started = time.monotonic()
        self.llm = LLM(
            str(folder),
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            max_model_len=128,
            enable_prefix_caching=False,  # cached keys and values belong to the weights that made them
            disable_log_stats=False,  # without them there are no counters of acceptance
            speculative_config={"method": "mtp", "num_speculative_tokens": 1},
        )
        self.seconds = time.monotonic() - started
        self.runner = live.runner(self.llm)
        self.seen: dict[str, list[numpy.ndarray]] = {"target": [], "draft": []}
        for part, model in (("target", self.runner.get_model()), ("draft", self.runner.get_draft_model())):
            _tap(model, self.seen[part])
        drawn = language.prompts(settings.language, settings.prompts, settings.prompt_length, settings.seed)
        self.prompts, self.new_tokens = drawn.tolist(), settings.new_tokens
        self.probes = language.prompts(
            settings.language, settings.probes, settings.prompt_length, settings.seed + 1
        ).tolist()
        self.generate(self.prompts[:2], 4)  # the first one is slow

    def generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        """Greedy continuations."""
        from vllm import SamplingParams

        for part in self.seen.values():
            part.clear()
        wanted = SamplingParams(temperature=0, detokenize=False, ignore_eos=True, max_tokens=new_tokens)
        outputs = self.llm.generate([{"prompt_token_ids": p} for p in prompts], wanted, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def counters(self) -> tuple[int, int]:
        """Drafts and accepted tokens since this engine started.

        `LLM.get_metrics` reads what the process registered last, and there are several engines in this one.
        """
        loggers = [log for log in self.llm.llm_engine.logger_manager.stat_loggers if hasattr(log, "spec_decoding_prom")]
        found = loggers[0].spec_decoding_prom
        pair = (found.counter_spec_decode_num_drafts[0], found.counter_spec_decode_num_accepted_tokens[0])
        drafts, accepted = (
            next(s.value for m in c.collect() for s in m.samples if s.name.endswith("_total")) for c in pair
        )
        return int(drafts), int(accepted)

    def measure(self) -> tuple[dict[str, Any], dict[str, numpy.ndarray]]:
        """What it generates, how often the draft was right, and the logits after each probe."""
        chosen = self.generate(self.probes, 1)
        logits = {part: calls[0] for part, calls in self.seen.items()}
        if logits["target"].argmax(-1).tolist() != [tokens[0] for tokens in chosen]:
            raise AssertionError("the rows of the logits are not in the order of the prompts")
        before, started = self.counters(), time.monotonic()
        tokens = self.generate(self.prompts, self.new_tokens)
        seconds = time.monotonic() - started
        drafts, accepted = (now - then for now, then in zip(self.counters(), before, strict=True))
        record = {
            "tokens": tokens,
            "drafts": drafts,
            "accepted": accepted,
            "tokens_per_second": len(tokens) * self.new_tokens / seconds,
            "digests": {part: _digest(calls) for part, calls in self.seen.items()},
        }
        return record, logits


def _tap(model: Any, calls: list[numpy.ndarray]) -> None:
    compute = model.compute_logits

    def compute_logits(*inputs: Any, **options: Any) -> Any:
        logits = compute(*inputs, **options)
        calls.append(logits.numpy().copy())
        return logits

    model.compute_logits = compute_logits


def _digest(calls: list[numpy.ndarray]) -> str:
    """Of every logit of a generation, bit for bit."""
    return hashlib.sha256(b"".join(logits.tobytes() for logits in calls)).hexdigest()


def rotate_in_torch() -> None:
    """vLLM's own rotation in torch instead of its kernel for CPUs.

    In 0.32.0 that kernel turns the queries of latent attention, which have a dimension for heads, wrongly: off by as
    much as the numbers themselves, whatever the weights are. Without this no engine agrees with the trainer.
    """
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    RotaryEmbedding.forward_cpu = RotaryEmbedding.forward_native


class Rollout:
    """The engines of a run, and one receiver for each scenario that syncs."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.scenarios = scenarios.chosen(settings.scenarios, settings.experts)
        live.use_plain_linears()
        if "kv_lora_rank" in settings.config:
            rotate_in_torch()
        self.engine = Engine(settings, folder / "start")
        self.fresh: list[Engine] = []
        self.reloaded = Engine(settings, folder / "start") if "reload" in self.scenarios else None
        family = lk.family(settings.config)
        self.tensors = live.specs(self.engine.runner, family=family)[1]
        self.start = {name: tensor.clone() for name, tensor in self.tensors.items()}
        address = meeting_place(folder, opens=False)
        self.channel = lk.connect(address, role="rollout", rank=0, world=1, time_limit=WAIT)
        self.receivers = {
            name: lk.WeightReceiver(*live.specs(self.engine.runner, family=family, draft=one.draft), self.channel)
            for name, one in self.scenarios.items()
            if one.how == "sync"
        }

    def take(self, name: str, version: int) -> tuple[dict[str, Any], dict[str, numpy.ndarray]]:
        """Brings the weights of a round into an engine in one way, and measures that engine."""
        how = self.scenarios[name].how
        checkpoint = self.folder / f"round{version}"
        if how == "fresh":
            engine = Engine(self.settings, checkpoint)
            self.fresh.append(engine)  # one that is collected takes the process's parallel state with it
            seconds = engine.seconds
        elif how == "reload":
            assert self.reloaded is not None
            engine, started = self.reloaded, time.monotonic()
            engine.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(checkpoint)})
            seconds = time.monotonic() - started
        else:
            engine, seconds = self.engine, self.write(name, version)
        record, logits = engine.measure()
        return {**record, "seconds": seconds}, logits

    def write(self, name: str, version: int) -> float:
        """From the weights of the other seed, so that nothing is right that this way did not bring."""
        for tensor, bytes_before in zip(self.tensors.values(), self.start.values(), strict=True):
            tensor.copy_(bytes_before)
        if name not in self.receivers:
            return 0.0
        addresses = [tensor.data_ptr() for tensor in self.tensors.values()]
        self.channel.barrier()
        report = self.receivers[name].sync(version)
        assert addresses == [tensor.data_ptr() for tensor in self.tensors.values()]
        return float(report.seconds)


def main(settings: Settings, folder: Path) -> None:
    """Leaves `engine.json` and `engine.npz` in the folder."""
    wait_for(folder / "start" / "config.json")
    rollout = Rollout(settings, folder)
    say("starts")
    records: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for version in range(settings.rounds):
        order = sorted(rollout.scenarios, key=lambda name: rollout.scenarios[name].how != "sync")  # trainers wait
        for name in order:
            record, logits = rollout.take(name, version)
            records.append({"round": version, "scenario": name, **record})
            arrays |= {f"{version} {name} {part}": array for part, array in logits.items()}
            say("measured", round=version, scenario=name, done=len(records), of=settings.rounds * len(order))
        rollout.channel.barrier()
    (folder / "engine.json").write_text(json.dumps(records))
    numpy.savez(folder / "engine.npz", **arrays)
