# SPDX-License-Identifier: Apache-2.0
"""Compiles a variant for a GPU that need not be there, and says what came of it: ``python compiling.py < variants``.

In a process of its own, because what the interpreter took over in this one can no longer be compiled.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from layout_kernels.backends import triton_kernels
from layout_kernels.backends.triton_variants import WARPS, Variant

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ALIGNED = [["tt.divisibility", 16]]  # what the launcher finds out of any tensor that torch allocates


def compiled(variant: Variant, arch: str) -> Any:
    """The variant as the launcher would compile it."""
    kernel = triton_kernels.transposes if variant.transposed else triton_kernels.rows
    names = [parameter.name for parameter in kernel.params]
    constants = triton_kernels.constants(variant)
    types = {"tiles": "*i32", "words": "*i64", "count": "i32"} | dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        kernel,
        {name: types[name] for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        {(0,): ALIGNED, (1,): ALIGNED},
    )
    options: dict[str, Any] = {"num_warps": WARPS}
    if arch.startswith("gfx"):
        return triton.compile(source, target=GPUTarget("hip", arch, 64), options=options)
    options["maxnreg"] = variant.registers
    return triton.compile(source, target=GPUTarget("cuda", int(arch), 32), options=options)


def facts_of_nvidia(kernel: Any) -> dict[str, Any]:
    """Accesses to tensors (they alone are predicated) and to the table, and what the machine code takes."""
    data, table = Counter(), Counter()
    for guard, access in re.findall(r"^\s*(@\S+ )?\s*((?:ld|st)\.global\S*)", kernel.asm["ptx"], re.MULTILINE):
        (data if guard else table)[access] += 1
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        said = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        )
    used = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", said.stdout)}
    local = len(re.findall(r"\b(?:ld|st)\.local", kernel.asm["ptx"]))
    return {"data": data, "table": table, "local": local, "shared": kernel.metadata.shared, **used}


def facts_of_amd(kernel: Any) -> dict[str, Any]:
    """Accesses in vectors, and what the machine code takes."""
    text = kernel.asm["amdgcn"]
    wide = Counter(re.findall(r"\b((?:global|flat|buffer|scratch)_(?:load|store)\w*)", text))
    found = re.findall(r"\.(vgpr_count|vgpr_spill_count|private_segment_fixed_size):\s*(\d+)", text)
    return {"accesses": wide, "shared": kernel.metadata.shared, **{name: int(number) for name, number in found}}


def main() -> None:
    """Read ``[arch, [fields of a variant]]`` a line; write a line of facts for each."""
    for line in sys.stdin:
        arch, values = json.loads(line)
        variant = Variant(**dict(zip([field.name for field in fields(Variant)], values, strict=True)))
        kernel = compiled(variant, arch)
        print(json.dumps(facts_of_amd(kernel) if arch.startswith("gfx") else facts_of_nvidia(kernel)), flush=True)


if __name__ == "__main__":
    main()
