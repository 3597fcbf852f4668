#!/bin/sh
# Runs the fuzz targets, one after the other: scripts/fuzz.sh [SECONDS [TARGET...]], 600 seconds each without a number.
#
# Needs a nightly toolchain and a C++ compiler; installs cargo-fuzz where it is missing. What is found is written to
# fuzz/artifacts, inputs that lead somewhere new to fuzz/corpus. Without a sanitizer: the host has no unsafe code.
set -eu

cd "$(dirname "$0")/.."

seconds=${1:-600}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- frames actions records uris configuration lines

PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
export PATH

if ! cargo fuzz --version >/dev/null 2>&1; then
    printf '%s\n' "fuzz.sh: cargo-fuzz is missing; installing it (some minutes)"
    cargo install --locked cargo-fuzz
fi

for target in "$@"; do
    printf '%s\n' "fuzz.sh: $target, $seconds s"
    mkdir -p "fuzz/corpus/$target"
    cargo +nightly fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -dict="fuzz/dictionaries/$target.dict"
done
