# SPDX-License-Identifier: Apache-2.0
"""One rank of the trainer: real Megatron-Core, which trains, writes checkpoints and sends its weights each round."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import megatron_cpu  # beside the tests, as the other two
import torch
import torch.distributed as dist

import layout_kernels as lk

from . import language, scenarios
from .processes import WAIT, meeting_place, say
from .settings import Settings

OTHER_SEED = 1000  # added for the weights from which the engine starts
RATE = 4e-3
LEVEL = 8.0


def main(settings: Settings, rank: int, folder: Path) -> None:
    """The life of a rank; leaves checkpoints and `trainer.npz` in the folder."""
    torch.set_num_threads(1)
    megatron_cpu.install()
    import megatron_models

    topology = megatron_models.TOPOLOGIES[settings.topology]
    megatron_models.start(topology, rank, f"file://{folder}/store")
    model = megatron_models.build(settings.config, topology, experts=settings.experts, seed=settings.seed + OTHER_SEED)
    specs, tensors = lk.megatron.specs(model, family=lk.family(settings.config))
    save_checkpoint(settings, specs, tensors, folder / "start")
    megatron_models.scatter_weights(model, settings.seed)
    lift_expert_biases(model)
    say("starts")
    address = meeting_place(folder, opens=rank == 0)
    channel = lk.connect(address, role="trainer", rank=rank, world=topology.world, time_limit=WAIT)
    senders = make_senders(settings, specs, tensors, channel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    answers: dict[str, Any] = {}
    for number in range(settings.rounds):
        train(settings, model, optimizer, number)
        save_checkpoint(settings, specs, tensors, folder / f"round{number}")
        answers |= {f"{number} {part}": logits for part, logits in answer(settings, model).items()}
        send(senders, tensors, channel, number)
        channel.barrier()  # the engine has measured all that needs no trainer; two cores are for one at a time
    if rank == 0:
        import numpy

        numpy.savez(folder / "trainer.npz", **answers)


def train(settings: Settings, model: Any, optimizer: torch.optim.Optimizer, number: int) -> None:
    """The steps before one sync: forward, backward and AdamW of real modules, on sentences of the language."""
    from megatron_models import forward
    from megatron_training import synchronise_gradients, update_expert_biases

    spoken = language.LANGUAGES[settings.language]
    data_rank = dist.get_rank() // model.config.tensor_model_parallel_size
    model.train()
    for step in range(number * settings.steps, (number + 1) * settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * schedule(step, settings.rounds * settings.steps)
        tokens = spoken.sentences(32, 33, 1000 * (settings.seed + 1) + 10 * step + data_rank)
        loss = forward(model, tokens[:, :-1], tokens[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        synchronise_gradients(model)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)  # by element: a norm would differ between ranks
        optimizer.step()
        update_expert_biases(model)
        say("trained", step=step + 1, of=settings.rounds * settings.steps)


def lift_expert_biases(model: Any) -> None:
    """To the level that long training may take them to: each step moves every one of them, by a fixed amount.

    A level that all experts share changes no choice; but bfloat16 has steps of 1 / 16 there.
    """
    for name, bias in model.named_buffers():
        if name.endswith("expert_bias"):
            bias += LEVEL


def schedule(step: int, steps: int) -> float:
    """Warm-up over 20 steps, level, then down to a twentieth over the last two fifths."""
    return min(1.0, (step + 1) / 20, max(0.05, (steps - step) / (0.4 * steps)))


def save_checkpoint(settings: Settings, specs: dict[str, Any], tensors: dict[str, Any], folder: Path) -> None:
    """A Hugging Face checkpoint of what all ranks hold together, as any converter would write it."""
    said = {name: spec.to_json() for name, spec in specs.items()}
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, (said, {name: tensor.detach() for name, tensor in tensors.items()}))
    if dist.get_rank() == 0:
        from safetensors.torch import save_file

        sources = {(rank, k): lk.Spec.from_json(v) for rank, (said, _) in enumerate(ranks) for k, v in said.items()}
        held = {(rank, k): v for rank, (_, tensors) in enumerate(ranks) for k, v in tensors.items()}
        targets = lk.family(settings.config).specs("hf", mtp="full")
        made = {name: torch.empty(spec.shape(), dtype=spec.dtype or torch.float32) for name, spec in targets.items()}
        lk.compile(sources, targets, replicas="first").run(held, made)
        folder.mkdir()
        save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(settings.config))
    dist.barrier()


def make_senders(settings: Settings, specs: Any, tensors: Any, channel: Any) -> list[tuple[Any, dict[str, Any]]]:
    """For each scenario that syncs: its sender, and the tensors that its mistake has copied."""
    made = []
    for scenario in scenarios.chosen(settings.scenarios, settings.experts).values():
        if scenario.how == "sync":
            believed, held = scenario.held(specs, tensors)
            sender = lk.WeightSender(believed, held, channel, unused=None if scenario.draft else "allow")
            made.append((sender, {name: held[name] for name in held if held[name] is not tensors[name]}))
    return made


def send(senders: Any, tensors: dict[str, Any], channel: Any, version: int) -> None:
    """One sync for each scenario, in the order in which the engine takes them."""
    for sender, copies in senders:
        for name, copy in copies.items():
            copy.copy_(tensors[name])
        channel.barrier()
        sender.sync(version)


def answer(settings: Settings, model: Any) -> dict[str, Any]:
    """The logits of the trainer after each probe, and those of its draft after the token that it chooses there.

    With the margin of each probe: how near a router came to a tie anywhere in it. There engine and trainer may choose
    differently for no more reason than rounding.
    """
    import megatron_models

    probes = language.prompts(settings.language, settings.probes, settings.prompt_length, settings.seed + 1)
    vocabulary = settings.config["vocab_size"]
    with first_position_masked(model), margins_of_routers(model) as margins:
        target = megatron_models.logits(model, probes, vocabulary)["main"][:, -1]
        # One token more than the next, since sequence parallelism wants an even length; the mask is causal.
        longer = torch.cat([probes, target.argmax(-1, keepdim=True), probes[:, :1]], dim=1)
        draft = megatron_models.logits(model, longer, vocabulary)["draft"][:, probes.shape[1] - 1]
    nearest = torch.stack(margins).amin(0)
    dist.all_reduce(nearest, op=dist.ReduceOp.MIN)
    return {"target": target.numpy(), "draft": draft.numpy(), "margin": nearest.numpy()}


@contextmanager
def margins_of_routers(model: Any) -> Iterator[list[torch.Tensor]]:
    """For each call of a router: [batch] smallest distances of the last expert chosen to the first one left out."""
    margins: list[torch.Tensor] = []

    @torch.no_grad()
    def measure(router: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        scores = router.gating(inputs[0]).sigmoid() + router.expert_bias  # [position, batch, expert]
        best = scores.topk(router.topk + 1, dim=-1).values
        margins.append((best[..., -2] - best[..., -1]).amin(0))

    hooks = [m.register_forward_pre_hook(measure) for m in model.modules() if type(m).__name__ == "TopKRouter"]
    try:
        yield margins
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def first_position_masked(model: Any) -> Iterator[None]:
    """vLLM gives its draft a zero instead of the embedding at position 0; so does the trainer when it is compared."""
    from megatron.core import parallel_state

    first = not model.config.sequence_parallel or parallel_state.get_tensor_model_parallel_rank() == 0

    def mask(_module: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        embedded = inputs[0].clone()
        if first:
            embedded[0] = 0
        return (embedded, *inputs[1:])

    hook = model.mtp.layers[0].enorm.register_forward_pre_hook(mask)
    try:
        yield
    finally:
        hook.remove()
