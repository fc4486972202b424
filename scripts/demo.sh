#!/usr/bin/env bash
# `make run`: builds, starts a pool of 4 targets, mounts it at ./mnt, and puts it to work on real
# input. Needs no terminal, can be run again, and leaves the mount up. `make stop` ends it.
set -euo pipefail
cd "$(dirname "$0")/.."

POOL=demo
TARGETS=4
POOL_DIR=$PWD/.azekura/pool
ORIGIN=$PWD/.azekura/origin
MNT=$PWD/mnt
WORK=$MNT/tour
BIG_BYTES=$((1024 * 1024 * 1024))
ROOM_KIB=$((6 * 1024 * 1024))
AZEKURA=${CARGO_TARGET_DIR:-$PWD/target}/release/azekura
step="the start"

# Whatever ends the script early is named.
at_exit() {
    local code=$?
    [ "$code" = 0 ] || printf '\nmake run failed at: %s (exit code %s)\n' "$step" "$code" >&2
}
trap at_exit EXIT
begin() { step=$1; printf '== %s\n' "$step"; }
now_us() { date +%s%6N; }

rows=()
# row WHAT START_US AMOUNT UNIT: a line of the table; AMOUNT is what was moved since START_US.
row() {
    rows+=("$(awk -v what="$1" -v us="$(($(now_us) - $2))" -v amount="$3" -v unit="$4" \
        'BEGIN { s = us / 1e6; printf "%-46s %9.2f %12.1f %s", what, s, amount / s, unit }')")
}

begin "installing what is missing"
scripts/install.sh build
free_kib=$(df -kP . | awk 'NR == 2 { print $4 }')
if [ "$free_kib" -lt "$ROOM_KIB" ]; then
    echo "this needs $((ROOM_KIB >> 20)) GiB free here, and there are $((free_kib >> 20))" >&2
    exit 1
fi

begin "building the program and the libraries in target/release"
cargo build --release --locked -p azekura -p azekura-preload -p azekura-capi -p azekura-daos

begin "gathering real input: this project, its dependencies' sources, and 1 GiB of random bytes"
mkdir -p "$ORIGIN" "$MNT"
rm -rf "$ORIGIN/tree"
mkdir "$ORIGIN/tree"
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard
else
    find . \( -path ./target -o -path ./mnt -o -path ./.azekura \) -prune -o -type f -print0
fi | while IFS= read -r -d '' name; do
    [ ! -f "$name" ] || printf '%s\0' "$name"
done | tar -cf - --null -T - | tar -C "$ORIGIN/tree" -xf -
mkdir -p "$ORIGIN/tree/.cargo"
(cd "$ORIGIN/tree" && cargo vendor --quiet --locked vendor >.cargo/config.toml)
if [ "$(stat -c %s "$ORIGIN/random.bin" 2>/dev/null || echo 0)" != "$BIG_BYTES" ]; then
    head -c "$BIG_BYTES" /dev/urandom >"$ORIGIN/random.bin"
fi
(cd "$ORIGIN" && find tree random.bin -type f -print0 | sort -z | xargs -0 sha256sum) \
    >"$ORIGIN.sha256"
files=$(find "$ORIGIN/tree" -type f | wc -l)
tree_mib=$(du -sk --apparent-size "$ORIGIN/tree" | awk '{ print int($1 / 1024) }')

begin "starting the pool '$POOL' of $TARGETS targets in .azekura/pool"
"$AZEKURA" up --dir "$POOL_DIR" --name "$POOL" --targets "$TARGETS"

begin "mounting it at ./mnt"
if ! "$AZEKURA" fs ls "$POOL:/" >/dev/null; then
    echo "the pool does not answer" >&2
    exit 1
fi
findmnt -rn "$MNT" >/dev/null && ! ls "$MNT" >/dev/null 2>&1 && "$AZEKURA" umount "$MNT"
findmnt -rn "$MNT" >/dev/null || "$AZEKURA" mount "$POOL" "$MNT"
if [ -e "$WORK" ]; then
    begin "removing what an earlier run has left in ./mnt/tour"
    old=$(find "$WORK" | wc -l)
    start=$(now_us)
    rm -rf "$WORK"
    row "remove the $old files of the run before" "$start" "$old" files/s
fi
mkdir "$WORK"

begin "copying $files files, $tree_mib MiB, in"
start=$(now_us)
"$AZEKURA" fs put -r "$ORIGIN/tree" "$POOL:/tour"
row "copy a tree of $files files, $tree_mib MiB, in" "$start" "$files" files/s

begin "copying a file of 1 GiB in"
start=$(now_us)
"$AZEKURA" fs put "$ORIGIN/random.bin" "$POOL:/tour"
row "copy a file of 1 GiB in" "$start" 1024 MiB/s

begin "copying the tree through the mount (cp -a)"
start=$(now_us)
cp -a "$WORK/tree" "$WORK/build"
row "copy the tree within the mount, cp -a" "$start" "$(find "$WORK/build" -type f | wc -l)" files/s

begin "compiling the crate azekura-proto and what it needs, inside the mount"
start=$(now_us)
(
    cd "$WORK/build"
    unset CARGO_TARGET_DIR
    CARGO_INCREMENTAL=0 cargo build --offline --locked --quiet -p azekura-proto
)
units=$(find "$WORK/build/target" -name '*.rlib' -o -name '*.so' | wc -l)
row "compile $units Rust libraries inside the mount" "$start" "$units" libraries/s

begin "verifying every hash against the origin"
start=$(now_us)
(cd "$WORK" && sha256sum --quiet --strict -c "$ORIGIN.sha256")
total_mib=$((tree_mib + 1024))
row "read all back and verify $((files + 1)) hashes" "$start" "$total_mib" MiB/s

begin "checking the container"
start=$(now_us)
"$AZEKURA" fs check "$POOL" >/dev/null
objects=$(find "$WORK" | wc -l)
row "check that all of it fits together (fs check)" "$start" "$objects" files/s

printf '\n%-46s %9s %12s\n' what seconds speed
printf '%s\n' "${rows[@]}"
cat <<END

All $((files + 1)) hashes are right. The mount is up; look around:

    ls mnt/tour                               files like any others
    $AZEKURA status $POOL
    $AZEKURA fs get-attr $POOL:/tour/random.bin
    $AZEKURA bench md --pool $POOL --quick
    make stop                                 unmount and stop; the files stay in .azekura
    make clean                                the same, and remove them
END
