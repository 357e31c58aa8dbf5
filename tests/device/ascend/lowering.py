# SPDX-License-Identifier: Apache-2.0
"""Lowers a variant of the NPU's kernels on a machine without one: ``python lowering.py FOLDER < requests``.

A request is ``[what, [fields of a variant]]`` a line; the answer is a file: ``linalg``, what triton-ascend makes of the
kernel; ``hivm``, what its scheduler makes of that for a chip; ``library``, the linalg compiled for this CPU.
In a process of its own, because what the interpreter took over in this one can no longer be compiled.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import ir
from triton.backends.ascend import compiler
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from layout_kernels.backends import triton_ascend_kernels
from layout_kernels.backends.triton_ascend import AscendVariant, constants

CHIP = "Ascend910B1"
TYPES = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
SCHEDULE = [
    f"--target={CHIP}",
    "--enable-hfusion-compile=true",
    "--enable-hivm-compile=true",
    "--enable-triton-kernel-compile=true",
    "--enable-auto-multi-buffer=true",
]
TO_LLVM = [
    "--convert-elementwise-to-linalg",
    "--convert-linalg-to-loops",
    "--eliminate-empty-tensors",
    "--empty-tensor-to-alloc-tensor",
    "--one-shot-bufferize=allow-return-allocs-from-loops=true",
    "--convert-linalg-to-loops",
    "--expand-strided-metadata",
    "--lower-affine",
    "--convert-scf-to-cf",
    "--convert-arith-to-llvm",
    "--convert-math-to-llvm",
    "--convert-index-to-llvm",
    "--finalize-memref-to-llvm",
    "--convert-func-to-llvm",
    "--convert-cf-to-llvm",
    "--reconcile-unrealized-casts",
]


def linalg(variant: AscendVariant, folder: Path) -> Path:
    """The kernel as triton-ascend hands it to its scheduler."""
    kernel = triton_ascend_kernels.transposes if variant.transposed else triton_ascend_kernels.rows
    target = GPUTarget("npu", CHIP, 32)
    backend = compiler.AscendBackend(target)
    options = backend.parse_options({})
    ours, theirs = TYPES[variant.ours], TYPES[variant.theirs]
    signature = {"source": f"*{ours}", "target": f"*{theirs}", "tiles": "*i32", "words": "*i64", "count": "i32"}
    source = ASTSource(kernel, signature=signature, constants=constants(variant))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(options, backend.get_codegen_implementation(), backend.get_module_map(), context)
    metadata: dict[str, Any] = {**options.__dict__, "target": target}
    module = compiler.make_ttir(module, metadata, options)
    text = compiler.ttir_to_linalg(module, metadata, options, named_ops=True)
    text, _ = compiler._parse_linalg_metadata(text, metadata)
    path = folder / "kernel.mlir"
    path.write_text(text)
    return path


def hivm(variant: AscendVariant, folder: Path) -> Path:
    """The scheduled kernel; the tool stops behind it, where it would want the chip's own assembler."""
    tool = Path(triton.__file__).parent.parent / "ascendnpuir" / "bin" / "bishengir-compile"
    command = [tool, linalg(variant, folder), *SCHEDULE, f"--save-temps={folder}", "-o", folder / "kernel.o"]
    said = subprocess.run(command, capture_output=True, text=True)
    path = folder / "module.hivm.opt.mlir"
    if not path.exists():
        raise SystemExit(f"{variant}: {said.stdout}{said.stderr}")
    return path


def library(variant: AscendVariant, folder: Path) -> Path:
    """The linalg as a shared library for this CPU, by Debian's MLIR."""
    plain = folder / "plain.mlir"
    plain.write_text(re.sub(r" \{hivm\.\w+\}", "", linalg(variant, folder).read_text()))
    llvm, text, path = folder / "llvm.mlir", folder / "kernel.ll", folder / "kernel.so"
    subprocess.run(["mlir-opt-19", plain, *TO_LLVM, "-o", llvm], check=True)
    subprocess.run(["mlir-translate-19", llvm, "--mlir-to-llvmir", "-o", text], check=True)
    libraries = Path(
        subprocess.run(["llvm-config-19", "--libdir"], check=True, capture_output=True, text=True).stdout.strip()
    )
    links = [f"-L{libraries}", "-lmlir_c_runner_utils", f"-Wl,-rpath,{libraries}"]
    command = ["clang-19", "-O2", "-shared", "-fPIC", "-w", "-x", "ir", text, "-x", "none", *links, "-o", path]
    subprocess.run(command, check=True)
    return path


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        what, values = json.loads(line)
        values[-1] = tuple(values[-1])
        variant = AscendVariant(**dict(zip([field.name for field in fields(AscendVariant)], values, strict=True)))
        folder = Path(sys.argv[1]) / hashlib.sha256(line.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        print({"linalg": linalg, "hivm": hivm, "library": library}[what](variant, folder), flush=True)


if __name__ == "__main__":
    main()
