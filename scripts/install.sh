#!/usr/bin/env bash
# Installs what is missing: `install.sh build` for building and mounting, `install.sh test` for the
# tests as well. Asks for nothing that is there already, and never asks on the terminal.
set -euo pipefail

purpose=${1:-build}
export DEBIAN_FRONTEND=noninteractive

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n --preserve-env=DEBIAN_FRONTEND "$@"
    elif command -v sudo >/dev/null && [ -t 0 ]; then
        sudo --preserve-env=DEBIAN_FRONTEND "$@"
    else
        die "this needs root: $*. Run it as root, or again with sudo at hand."
    fi
}

# wants PROGRAM PACKAGE: note the package if the program is not there.
missing=()
wants() { command -v "$1" >/dev/null || missing+=("$2"); }

wants cc build-essential
wants make build-essential
wants fusermount3 fuse3
if [ "$purpose" = test ]; then
    wants g++ build-essential
    wants gfortran gfortran
    wants git git
    wants python3 python3
    wants rsync rsync
    wants sqlite3 sqlite3
    wants shellcheck shellcheck
    wants ed ed
    wants mpicc libopenmpi-dev
    wants pkg-config pkg-config
    wants mpirun openmpi-bin
    wants flock util-linux
    wants findmnt util-linux
    wants musl-gcc musl-tools
    wants ps procps
    wants nfs-ls libnfs-utils
    [ -e /usr/include/nfsc/libnfs-raw.h ] || missing+=(libnfs-dev)
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
fi
if [ ${#missing[@]} -gt 0 ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    command -v apt-get >/dev/null || die "please install: ${missing[*]}"
    say "installing ${missing[*]}"
    as_root apt-get update -qq
    as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! command -v cargo >/dev/null; then
    [ -x "$HOME/.cargo/bin/cargo" ] || die "cargo is missing: install Rust with rustup, then try again."
    die "cargo is in ~/.cargo/bin but not in PATH: run '. ~/.cargo/env', then try again."
fi
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
if [ "$(printf '%s\n%s\n' "$needed" "$found" | sort -V | head -n 1)" != "$needed" ]; then
    die "rustc $found is too old, $needed or newer is needed: run 'rustup update stable'."
fi
if [ "$purpose" = test ]; then
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
    done
fi

if [ ! -e /dev/fuse ]; then
    as_root modprobe fuse 2>/dev/null || true
    [ -e /dev/fuse ] || as_root mknod -m 666 /dev/fuse c 10 229 \
        || die "/dev/fuse is missing and cannot be made: this kernel or container has no FUSE."
fi
# Where no udev runs, the device is closed to ordinary users.
if [ "$(stat -c %a /dev/fuse)" != 666 ] && { [ "$purpose" = test ] || [ ! -w /dev/fuse ]; }; then
    as_root chmod 666 /dev/fuse
fi
