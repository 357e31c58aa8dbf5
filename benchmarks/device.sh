#!/usr/bin/env bash
# On a machine with a GPU, Python, torch and Triton, from which nothing else can be reached: check, then measure.
# Needs neither pytest nor a compiler. OUT is where device.json goes; PYTHON is the interpreter; 4 minutes at most.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${OUT:-.}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$(mktemp -d)}"
failed=0

step() {
  local limit=$1 title=$2
  shift 2
  printf '\n=== %s (%s s)\n' "$title" "$SECONDS"
  timeout "$limit" "$@" || { printf '=== %s: FAILED with %s\n' "$title" "$?"; failed=1; }
}

step 40 "what runs here" "$python" -c '
import platform, torch, layout_kernels as lk
print("Python", platform.python_version(), "torch", torch.__version__, "CUDA", torch.version.cuda, torch.cuda.get_device_name())
for name, about in lk.backends().items():
    print(f"  {name}: {about}")
'
step 90 "the kernels on the device" "$python" tests/device/on_device.py
step 60 "a whole sync" "$python" tests/device/device_sync.py
step $((235 - SECONDS > 30 ? 235 - SECONDS : 30)) "measured" "$python" -m benchmarks.device --json "$out/device.json"
printf '\n=== done in %s s\n' "$SECONDS"
exit "$failed"
