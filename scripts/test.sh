#!/bin/sh
# Runs every test of the repository, from any working directory, as root or not.
#
# Installs what the tests need where it is missing: cargo-nextest, and nginx and Chromium with apt-get, as root or by sudo;
# where that cannot be done the test that goes through nginx is skipped, unless SCROLLBACK_TEST_NGINX is 1, and so are the
# tests of the pages in a browser, unless SCROLLBACK_TEST_BROWSER is 1. The power-cut check (`just powercut`) needs more,
# root among it, and is not run here. Arguments are handed to nextest: `sh scripts/test.sh rewind` runs the tests
# whose name has "rewind".
set -eu

cd "$(dirname "$0")/.."

say() { printf '%s\n' "test.sh: $*"; }

# cargo installs into a folder that is not on everybody's PATH.
PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
export PATH

if ! command -v cargo >/dev/null 2>&1; then
    say "cargo is not installed; see rust-toolchain.toml for the version that is needed" >&2
    exit 1
fi

if cargo nextest --version >/dev/null 2>&1; then
    say "$(cargo nextest --version 2>/dev/null | head -n 1)"
else
    say "cargo-nextest is missing; installing it (some minutes)"
    cargo install --locked cargo-nextest
fi

# Installed, not started: the tests start their own, on ports of their own.
install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" -eq 0 ]; then as_root=env; else as_root="sudo -n env"; fi
    $as_root apt-get update >/dev/null 2>&1 || true
    $as_root DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 RUNLEVEL=1 \
        apt-get install -y --no-install-recommends "$@" </dev/null >/dev/null 2>&1
}

has_nginx() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v nginx >/dev/null 2>&1; }

if ! has_nginx; then
    say "nginx is missing; installing it"
    install nginx || true
fi
if has_nginx; then
    SCROLLBACK_TEST_NGINX=1
    export SCROLLBACK_TEST_NGINX
elif [ "${SCROLLBACK_TEST_NGINX:-}" = 1 ]; then
    say "nginx cannot be installed here, and SCROLLBACK_TEST_NGINX=1 asks for it" >&2
    exit 1
else
    say "skipped: the test behind nginx, which cannot be installed here (it wants apt-get, and root or sudo)"
fi

has_browser() {
    for name in chromium chromium-browser google-chrome-stable google-chrome; do
        if command -v "$name" >/dev/null 2>&1; then return 0; fi
    done
    return 1
}

if ! has_browser; then
    say "Chromium is missing; installing it"
    install chromium || true
fi
if has_browser; then
    SCROLLBACK_TEST_BROWSER=1
    export SCROLLBACK_TEST_BROWSER
elif [ "${SCROLLBACK_TEST_BROWSER:-}" = 1 ]; then
    say "Chromium cannot be installed here, and SCROLLBACK_TEST_BROWSER=1 asks for it" >&2
    exit 1
else
    say "skipped: the pages in a browser, which cannot be installed here (it wants apt-get, and root or sudo)"
fi

# Doc tests first, so that the run closes on nextest's own summary.
if [ $# -eq 0 ]; then
    say "doc tests"
    cargo test --locked --doc
fi

# The programs that stand in for agents in tests, and the client that the documents use.
say "fake agents, and the example client"
cargo build --locked --workspace --bin client --example fake_acp --example fake_claude

if [ "${SCROLLBACK_TEST_AGENTS:-}" != 1 ]; then
    say "skipped: 6 real agents, since SCROLLBACK_TEST_AGENTS is not 1 (scripts/install-test-agents.sh installs them)"
fi

say "library, binary and integration tests"
cargo nextest run --locked --profile ci --lib --bins --tests "$@"
