#!/usr/bin/env bash
# Real NCCL with libnccl-net-sprat.so as its network: two processes on one GPU.
#   tests/gpu/nccl_net.sh PLUGIN.so [FOLDER]
# Steps: the network; the same with NCCL's own sockets, for a rate beside ours; all-reduces that the hosts' processors add up (CollNet);
# the tuner's model; the profiler's trace. NCCL refuses two ranks on a GPU unless they say that they are on different hosts, which
# NCCL_HOSTID does; then all that they exchange goes through the network. Collectives and messages of several dtypes are checked, and NCCL's
# log must say that it chose the plugin. Latency means nothing here: two processes take turns on one GPU. Prints a JSON line for each
# step; logs are left in FOLDER. 77 where there is no GPU or no PyTorch with NCCL.
set -uo pipefail
plugin=$(realpath "${1:?the path of libnccl-net-sprat.so}")
folder=${2:-$(mktemp -d)}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
mkdir -p "$folder"
if ! "$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() and torch.distributed.is_nccl_available() else 1)' 2>"$folder/look.log"; then
  echo '{"step": "nccl_net", "result": "refused", "why": "needs a GPU and PyTorch with NCCL"}'
  exit 77
fi
# A library that cannot be loaded is passed over by NCCL in silence.
if ! "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]).ncclNetPlugin_v11' "$plugin" 2>"$folder/load.log"; then
  echo "{\"step\": \"nccl_net\", \"result\": \"failed\", \"why\": \"$(tail -1 "$folder/load.log" | tr '"' "'")\"}"
  exit 1
fi

# play NAME NCCL_NET_PLUGIN [VARIABLE=VALUE ...]: both ranks, at most two minutes.
play() {
  local name=$1 net=$2 rank worst=0 pids=() port
  shift 2
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  for rank in 0 1; do
    env CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" NCCL_HOSTID="sprat$rank" NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 \
      NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}" SPRAT_INTERFACE="${SPRAT_INTERFACE:-lo}" NCCL_NET_PLUGIN="$net" \
      NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,COLL,TUNING NCCL_DEBUG_FILE="$folder/$name.$rank.nccl" \
      RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$@" \
      timeout -k 5 120 "$python" "$here/nccl_net.py" "$name" >"$folder/$name.$rank.out" 2>&1 &
    pids+=($!)
  done
  for rank in 0 1; do
    wait "${pids[rank]}" || worst=$?
  done
  grep '^{' "$folder/$name.0.out"
  if [[ $worst -ne 0 ]]; then
    echo "{\"step\": \"$name\", \"result\": \"failed\", \"status\": $worst, \"log\": \"$folder/$name.*\"}"
    tail -20 "$folder/$name.0.out" "$folder/$name.1.out" >&2
    grep -h WARN "$folder/$name".?.nccl >&2
  fi
  return "$worst"
}

# say NAME PATTERN: NCCL's log of both ranks must have it.
say() {
  local rank
  for rank in 0 1; do
    if ! grep -qiE "$2" "$folder/$1.$rank.nccl"; then
      echo "{\"step\": \"$1\", \"result\": \"failed\", \"why\": \"NCCL's log of rank $rank has nothing like $2\"}"
      return 1
    fi
  done
  echo "{\"step\": \"$1\", \"result\": \"ok\", \"said\": \"$(grep -ihoE "$2.*" "$folder/$1.0.nccl" | head -1 | tr '"' "'")\"}"
}

failed=0
play net "$plugin" && say net 'Assigned NET plugin Sprat|Using network Sprat' || failed=1
play own_sockets none NCCL_NET=Socket || failed=1
# Only all-reduces have this algorithm.
play collnet "$plugin" NCCL_COLLNET_ENABLE=1 'NCCL_ALGO=ring;allreduce:collnetchain' SPRAT_NCCL_CHECK_ONLY=1 &&
  say collnet 'via COLLNET/Sprat' || failed=1
mkdir -p "$folder/trace"
play tuner_and_trace "$plugin" SPRAT_NCCL_TUNING=model SPRAT_NCCL_TRACE="$folder/trace" SPRAT_NCCL_CHECK_ONLY=1 || failed=1
"$python" "$here/nccl_net.py" --trace "$folder/trace" || failed=1
exit $failed
