# SPDX-License-Identifier: Apache-2.0
"""A model, as every system holds it: ``family(config).specs("megatron", mesh=...)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..errors import LayoutError, nearest
from ..spec import Spec, dtype_named
from . import systems
from .expand import View, expand
from .expression import evaluate
from .model import Model
from .models import MODELS
from .quantities import DERIVED, FIELDS, Quantities, read_config
from .selection import WHOLE, Stage, meshes, placed, stages
from .table import Block, choose

DRAFT = "draft."  # begins the names of an engine's draft model


class Family:
    """One model of a known family; made by `family`.

    Attributes
    ----------
    config : dict
        The fields of its config.
    model_type : str
        The family's name, as Hugging Face configs have it.
    systems : tuple of str
        The systems that `specs` describes.
    storages : tuple of str
        The storages of routed experts that the tables describe for it in training.
    """

    def __init__(self, model: Model, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        self.model_type = str(self.config["model_type"])
        self.systems = tuple(systems.SYSTEMS)
        self.storages = model.storages
        self._model = model
        self._quantities = Quantities(self.config, {**FIELDS, **model.fields}, _derived(model))
        for condition, what in model.refused.items():
            if evaluate(condition, self._quantities):
                raise LayoutError(f"{self.model_type}: {what} has no row in the tables ({condition} in the config)")

    def __repr__(self) -> str:
        return f"<Family {self.model_type}: {self.size('layers')} layers, hidden size {self.size('hidden')}>"

    def size(self, quantity: str) -> Any:
        """A quantity of the model by the tables' name for it, such as ``"hidden"``, ``"experts"``, ``"all_layers"``."""
        return self._quantities(quantity)

    def specs(
        self,
        system: str,
        *,
        mesh: Mapping[str, Any] | None = None,
        dtype: torch.dtype | str | None = None,
        layers: object = None,
        pre_process: bool | None = None,
        post_process: bool | None = None,
        **options: Any,
    ) -> dict[str, Spec]:
        """What one rank of a system holds: its tensors' names, each with a complete Spec.

        Parameters
        ----------
        system : str
            One of ``family.systems``.
        mesh : mapping, optional
            ``{"tp": (size, coordinate), "ep": ..., "etp": ..., "pp": ...}`` of the rank. ``etp`` (tensor parallelism
            inside experts) is ``tp`` where it is not given, in engines 1 under expert parallelism. ``ep`` may also be
            a slice or a list of experts.
        dtype : torch.dtype or str, optional
            The dtype of all tensors whose dtype the system does not fix (expert biases are float32 everywhere).
        layers : sequence, optional
            The layers of this pipeline stage, numbered from 0 in the model, instead of an even share of ``pp``; or a
            list of such lists, one a virtual chunk: names then begin with ``model0.``, ``model1.``, ….
        pre_process, post_process : bool, optional
            Whether the stage has the embedding, and the final norm, head and multi-token prediction; told by the
            layers if not given.
        **options
            ``"megatron"``: ``spec="te" | "local"`` decides names of norms, MLA down projections and experts, and each
            can be said by itself: ``norms="fused" | "split"``; ``down="sharded" | "replicated" | "fused-sharded" |
            "fused-replicated" | "mindspeed"`` (its ``linear_qkv`` of latent attention); ``experts="sequential" | "te" |
            "grouped" | "stacked" | "stacked-transposed"``. Further ``up="whole" | "mm-split"`` (MindSpeed's split up
            projections of latent attention), ``indexer="nope-first" | "rope-first"`` (Megatron-Core up to 0.16, or
            later), ``glu_interleave=32`` and ``shared_glu_interleave=32`` (blocks of rows in which gate and up take
            turns; 0: they do not), ``tp_extend_ep=True`` (MindSpeed), ``vocab_multiple=128`` (the vocabulary is padded
            to it times tp), ``mtp_layer="transformer_layer"`` (newer versions: ``"mtp_model_layer"``),
            ``mamba_conv="conv1d."`` (newer versions: ``"conv1d_"``).
            Where there is multi-token prediction: ``mtp="full" | "own" | "none"``, with or without the copies of the
            model's embedding and head that some checkpoints and all engines hold there, or not at all.
            Engines: ``kernel=...``, which the experts are laid out for (``systems.KERNELS``; what the notation cannot
            say is refused); ``placement="linear" | "round-robin"`` of experts on ranks; ``slots={layer: [expert,
            ...]}``, this rank's experts after load balancing; ``part="all" | "target" | "draft"``: with ``"all"`` the
            names of the draft model begin with ``draft.``. ``"hf"`` and ``"transformers"``: ``shard="rows" | "flat"``,
            how ``mesh={"fsdp": (size, rank)}`` cuts tensors.

        Returns
        -------
        dict
            ``{name: Spec}``; equal tensors of different systems are equal in ``of``, tags, axes and ``at``.

        Raises
        ------
        LayoutError
            Where a system, option, mesh or layer is not known, or the config lacks a field that is needed.
        """
        found = systems.find(system)
        chosen = systems.settle(system, options)
        selections = meshes(found, system, mesh, bool(chosen.get("tp_extend_ep")))
        if "placement" in chosen and selections["ep"] != WHOLE:
            selections["ep"] = placed(chosen["placement"], selections["ep"], self.size("experts"))
        held: dict[str, Spec] = {}
        for stage in stages(layers, selections["pp"], self.size("layers"), pre_process, post_process):
            view = View(
                systems.columns(system, chosen),
                self._known(found, chosen, selections, stage),
                selections,
                found.padding,
                dtype_named(dtype) if isinstance(dtype, str) else dtype,
                chosen.get("shard"),
                chosen.get("slots"),
            )
            for name, spec in self._walk(view, stage):
                if stage.prefix + name in held:
                    raise LayoutError(f"the tables give the name {name!r} twice in system {system!r}")
                held[stage.prefix + name] = spec
        return _part(held, chosen.get("part", "all"))

    def _known(
        self, system: systems.System, options: Mapping[str, Any], selections: Mapping[str, Any], stage: Stage
    ) -> Quantities:
        """The model's quantities, with those that the rank and the options give."""
        mtp = options.get("mtp", "own")
        choose("option mtp", mtp, systems.HELD)
        known = self._quantities.given(
            **{word: options[word] for word in systems.WORDS if word in options},
            **{mesh: held[0] for mesh, held in selections.items() if isinstance(held, tuple)},
            **system.words,
            first=stage.first,
            last=stage.last,
            drafts=self.size("mtp") if stage.last and mtp != "none" else 0,
            copies=mtp == "full",
        )
        return known.given(vocab_unit=evaluate(system.vocab_unit, known))

    def _walk(self, view: View, stage: Stage) -> Iterator[tuple[str, Spec]]:
        """All tensors of a stage, in the order of the model."""
        whole = view.quantities
        yield from _expand(self._model.model, "model", view)
        for n, layer in enumerate(stage.layers):
            yield from _expand(self._model.layer, "layers", view.of(whole.given(l=layer, n=n)))
        for n in range(whole("drafts")):
            drafting = view.of(whole.given(l=self.size("layers") + n, n=n))
            yield from _expand(self._model.mtp, f"drafts {self._model.drafts}", drafting)
            yield from _expand(self._model.layer, f"draft layers {self._model.drafts}", drafting)


def _expand(blocks: tuple[Block, ...], where: str, view: View) -> Iterator[tuple[str, Spec]]:
    prefix = systems.place(where, view.path)
    if prefix is not None:
        for block in blocks:
            yield from expand(block, prefix, view)


def _part(held: dict[str, Spec], part: object) -> dict[str, Spec]:
    """All tensors; or the draft model's, named as that model names them; or the rest."""
    choose("option part", part, systems.PARTS)
    if part == "draft":
        return {name.removeprefix(DRAFT): spec for name, spec in held.items() if name.startswith(DRAFT)}
    return {name: spec for name, spec in held.items() if part == "all" or not name.startswith(DRAFT)}


def _derived(model: Model) -> dict[str, str]:
    return {name: text for name, text in {**DERIVED, **model.derived}.items() if name not in model.fields}


def family(config: object) -> Family:
    """The family of a model, told by its config's ``model_type``.

    Parameters
    ----------
    config : mapping, path or object
        A Hugging Face config: its fields, ``config.json`` or the folder that holds it, or an object with ``to_dict()``.

    Raises
    ------
    LayoutError
        Where the ``model_type`` is not known (the message lists those that are, and says how to add one), or the
        config holds something that the tables do not describe.

    Examples
    --------
    >>> from layout_kernels.families import family, published
    >>> specs = family(published("qwen3-0.6b")).specs("vllm", mesh={"tp": (2, 0)})
    >>> specs["model.layers.0.mlp.gate_up_proj.weight"].shape()
    (3072, 1024)
    """
    fields = read_config(config)
    model_type = fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODELS:
        raise LayoutError(
            f"model_type {model_type!r} is not known: there are {', '.join(map(repr, MODELS))}"
            f"{nearest(model_type, MODELS)}. A family is an entry of MODELS in layout_kernels/families/models.py: its "
            "blocks of rows (families/blocks/) and the config fields that differ"
        )
    return Family(MODELS[model_type], fields)
