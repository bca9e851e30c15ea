#!/usr/bin/env bash
# Two ranks on two GPUs whose collectives libsprat_nccl.so.2 hands over to the NCCL that PyTorch has brought, by PyTorch's own
# backend for it: values of tests/gpu/tensors.py, and the log must say that they went over.
#   tests/gpu/hand_over.sh LIBSPRAT_NCCL      (status 77 with fewer than two GPUs: NCCL refuses two ranks on one)
set -euo pipefail
drop_in=$(realpath "${1:?the file libsprat_nccl.so.2}")
python=${PYTHON:-python3}
here=$(dirname "$0")

count=$("$python" -c 'import torch; print(torch.cuda.device_count())')
if [ "$count" -lt 2 ]; then
  echo "two GPUs are needed, and there are $count here"
  exit 77
fi
nccl=$("$python" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
LD_PRELOAD=$drop_in SPRAT_NCCL_LIB=$nccl SPRAT_LOG=info "$python" -m torch.distributed.run --nproc-per-node 2 \
  "$here/tensors.py" --device cuda --backend nccl --spread 2>&1 | tee "$log" || status=$?
if ! grep -q 'are handed over to NCCL' "$log"; then
  echo "nothing was handed over to $nccl"
  status=1
fi
exit $status
