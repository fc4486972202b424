#!/usr/bin/env bash
# `make stop`: undoes `make run` but for the files; with --destroy (`make clean`) the files go too.
# Nothing to stop is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

POOL=demo
AZEKURA=${CARGO_TARGET_DIR:-$PWD/target}/release/azekura

if [ ! -x "$AZEKURA" ]; then
    echo "nothing was built here, so nothing runs"
    exit 0
fi
if findmnt -rn "$PWD/mnt" >/dev/null; then
    "$AZEKURA" umount "$PWD/mnt"
fi
if [ "${1:-}" = --destroy ]; then
    [ ! -e .azekura/pool ] || "$AZEKURA" down "$POOL" --destroy --yes
    rm -rf .azekura
    echo "stopped and removed"
else
    [ ! -e .azekura/pool ] || "$AZEKURA" down "$POOL"
    echo "stopped; the files of the pool stay in .azekura ('make clean' removes them)"
fi
rmdir mnt 2>/dev/null || true
