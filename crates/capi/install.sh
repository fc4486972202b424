#!/bin/sh
# Lays out the C interface under a prefix: header, libraries with their links, pkg-config file, man
# page, examples. Builds nothing: 'cargo build --release -p azekura-capi' comes first.
set -eu

usage() {
	echo "usage: $0 PREFIX [DIRECTORY WITH libazekura.so]" >&2
	exit 2
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	usage
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
built=${2:-${CARGO_TARGET_DIR:-$root/target}/release}
if [ ! -f "$built/libazekura.so" ]; then
	echo "$0: $built/libazekura.so is not there: run 'cargo build --release -p azekura-capi'" >&2
	exit 1
fi
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/share/man/man3" \
	"$prefix/share/doc/azekura/examples"
install -m 644 "$here/include/azekura.h" "$prefix/include/"
install -m 755 "$built/libazekura.so" "$prefix/lib/libazekura.so.$version"
ln -sf "libazekura.so.$version" "$prefix/lib/libazekura.so.${version%%.*}"
ln -sf "libazekura.so.${version%%.*}" "$prefix/lib/libazekura.so"
if [ -f "$built/libazekura.a" ]; then
	install -m 644 "$built/libazekura.a" "$prefix/lib/"
fi
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|\${prefix}/lib|" \
	-e "s|@INCLUDEDIR@|\${prefix}/include|" -e "s|@VERSION@|$version|" \
	"$here/azekura.pc.in" >"$prefix/lib/pkgconfig/azekura.pc"
chmod 644 "$prefix/lib/pkgconfig/azekura.pc"
install -m 644 "$here/man/azekura.3" "$prefix/share/man/man3/"
install -m 644 "$here"/examples/*.c "$prefix/share/doc/azekura/examples/"
