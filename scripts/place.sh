#!/usr/bin/env bash
# `place.sh install PREFIX` puts what `make build` has built below PREFIX: the program with its manual
# pages and completions, its laboratory, the preload library, what fstab needs, and what C programs are
# compiled against. `place.sh uninstall PREFIX` removes just that.
# DESTDIR, if set, stands in front of PREFIX, for packagers.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { echo "usage: place.sh install|uninstall PREFIX" >&2; exit 2; }
[ $# = 2 ] || usage
action=$1
prefix=$2
case $prefix in
    /*) ;;
    # As make hands it on.
    \~/*) prefix=$HOME/${prefix#\~/} ;;
    *) prefix=$PWD/$prefix ;;
esac
root=${DESTDIR:-}$prefix
built=${CARGO_TARGET_DIR:-target}/release
version=$(sed -n '/^\[workspace.package\]/,/^\[/ s/^version = "\(.*\)"/\1/p' Cargo.toml)

# What goes where: mode, source, place below the prefix. Sources that are not there are left out,
# but the first three have to be.
files=(
    "755 $built/azekura bin/azekura"
    "755 $built/libazekura_preload.so lib/libazekura_preload.so"
    "755 $built/libazekura_recorder.so lib/libazekura_recorder.so"
    "755 $built/azekura-lab bin/azekura-lab"
    "755 scripts/mount.azekura sbin/mount.azekura"
    "644 $built/libazekura.a lib/libazekura.a"
    "644 crates/capi/include/azekura.h include/azekura.h"
    "644 crates/capi/man/azekura.3 share/man/man3/azekura.3"
)
for example in crates/capi/examples/*.c; do
    files+=("644 $example share/doc/azekura/examples/${example##*/}")
done
for published in share/forecast/*.toml; do
    files+=("644 $published share/azekura/forecast/${published##*/}")
done
# Shared libraries, and the directories that they go to. They are installed under the name that
# programs look for (the SONAME), with a link from the name that compilers look for. What bears the
# names of DAOS has directories of its own, so as not to stand in the way of the real one.
shared=("libazekura lib" "libdaos lib/azekura")
daos_headers=crates/daos/include
# One library stands for all that programs for DAOS are linked with.
daos_links=(libcart.so libdaos_common.so libdfs.so libduns.so libgurt.so)

# Where each shell looks for completions.
completions=(
    "bash share/bash-completion/completions/azekura"
    "zsh share/zsh/site-functions/_azekura"
    "fish share/fish/vendor_completions.d/azekura.fish"
)

put() {
    mkdir -p "$(dirname "$3")"
    # A running program keeps its old file: the new one takes its name only when it is whole.
    install -m "$1" "$2" "$3.new"
    mv -f "$3.new" "$3"
    printf '  %s\n' "${3#"${DESTDIR:-}"}"
}

soname() {
    local found
    found=$(readelf -d "$1" 2>/dev/null | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    printf '%s\n' "${found:-$(basename "$1")}"
}

install_all() {
    local line mode source place name dir made
    for line in "${files[@]:0:3}"; do
        read -r mode source place <<<"$line"
        [ -f "$source" ] || { echo "$source is not there: run 'make build' first" >&2; exit 1; }
    done
    echo "installing below $prefix:"
    for line in "${files[@]}"; do
        read -r mode source place <<<"$line"
        [ ! -f "$source" ] || put "$mode" "$source" "$root/$place"
    done
    for line in "${shared[@]}"; do
        read -r name dir <<<"$line"
        source=$built/$name.so
        [ -f "$source" ] || continue
        place=$(soname "$source")
        put 755 "$source" "$root/$dir/$place"
        [ "$place" = "$name.so" ] || ln -sf "$place" "$root/$dir/$name.so"
    done
    if [ -f "$built/libdaos.so" ]; then
        for name in "${daos_links[@]}"; do
            ln -sf libdaos.so "$root/lib/azekura/$name"
        done
    fi
    while IFS= read -r place; do
        put 644 "$daos_headers/$place" "$root/include/azekura/$place"
    done < <(cd "$daos_headers" && find . -name '*.h' -printf '%P\n' | sort)
    # What the program says of itself.
    made=$(mktemp -d)
    "$built/azekura" dev man "$made"
    for source in "$made"/*.1; do
        put 644 "$source" "$root/share/man/man1/${source##*/}"
    done
    for line in "${completions[@]}"; do
        read -r name place <<<"$line"
        "$built/azekura" completions "$name" >"$made/completions"
        put 644 "$made/completions" "$root/$place"
    done
    rm -rf "$made"
    if [ -f crates/capi/azekura.pc.in ]; then
        mkdir -p "$root/lib/pkgconfig"
        sed -e "s|@PREFIX@|$prefix|g" \
            -e "s|@LIBDIR@|\${prefix}/lib|g; s|@INCLUDEDIR@|\${prefix}/include|g" \
            -e "s|@VERSION@|$version|g" \
            crates/capi/azekura.pc.in >"$root/lib/pkgconfig/azekura.pc"
        printf '  %s\n' "$prefix/lib/pkgconfig/azekura.pc"
    fi
    case :$PATH: in
        *:"$prefix/bin":*) ;;
        *) echo "$prefix/bin is not in PATH: add it to use 'azekura' by its name" ;;
    esac
}

uninstall_all() {
    local line place name dir
    for line in "${files[@]}"; do
        read -r _ _ place <<<"$line"
        rm -f "$root/$place"
    done
    for line in "${shared[@]}"; do
        read -r name dir <<<"$line"
        rm -f "$root/$dir/$name.so" "$root/$dir/$name.so".[0-9]*
    done
    for line in "${completions[@]}"; do
        read -r _ place <<<"$line"
        rm -f "$root/$place"
    done
    rm -f "$root/share/man/man1/azekura.1" "$root/share/man/man1/azekura-"*.1
    rm -rf "$root/include/azekura" "${daos_links[@]/#/$root/lib/azekura/}"
    rmdir "$root/lib/azekura" "$root/share/azekura/forecast" "$root/share/azekura" \
        "$root/share/doc/azekura/examples" "$root/share/doc/azekura" \
        2>/dev/null || true
    rm -f "$root/lib/pkgconfig/azekura.pc"
    echo "removed from $prefix"
}

case $action in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) usage ;;
esac
