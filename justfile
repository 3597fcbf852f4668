# The chores of this repository. `just` lists them; `just check` is what a change has to pass.

# Lists the recipes.
default:
    @just --list --unsorted

# All that must hold before a change is merged: format, lints, tests, dependencies, spelling.
check: fmt lint test deny typos

# The format, changing nothing.
fmt:
    cargo fmt --all -- --check

# Clippy over library, binaries, tests, benches and examples; a warning is an error.
lint:
    cargo clippy --locked --workspace --all-targets -- -D warnings

# Every test, doc tests too. Installs cargo-nextest where it is missing.
test:
    sh scripts/test.sh

# Licences, sources and bans of every dependency, and advisories where their database can be reached.
deny:
    cargo deny --locked check bans licenses sources
    @if cargo deny fetch >/dev/null 2>&1; then cargo deny --locked check advisories; \
    else echo "deny: the advisory database could not be fetched; advisories were NOT checked"; fi

# Spelling.
typos:
    typos

# Criterion benchmarks. `just bench append` runs those whose name has it.
bench *FILTER:
    cargo bench --locked --bench '*' -- {{FILTER}}

# The load run; prints JSON.
load *ARGS:
    cargo run --locked --release --example load -- {{ARGS}}

# What abusive clients do to others, some twenty minutes; `just abuse -idle` runs one case. Prints JSON.
abuse CASE="" *ARGS:
    cargo build --locked --release --bin scrollback
    cargo run --locked --release --example load -- --only abuse{{CASE}} {{ARGS}}

# Kills a writer at random moments and reopens its store.
crash *ARGS:
    cargo nextest run --locked --profile ci -E 'test(killed)' {{ARGS}}

# Kills the host under load at random moments and checks what it left; `just kills --rounds 100`.
kills *ARGS:
    cargo build --locked --bin scrollback
    cargo run --locked --example crash -- {{ARGS}}

# Cuts the power under the store, 50 times, and under sled without fdatasync, which must lose. Needs root.
powercut *ARGS:
    cargo run --locked --release --example powercut -- {{ARGS}}

# Makes a frozen data directory of the present format in the empty folder DIR. One that was released is never made again.
fixtures DIR:
    SCROLLBACK_MAKE_FIXTURE="{{DIR}}" cargo test --locked --lib makes_the_fixture

# Fuzzes what others send, SECONDS for each target: `just fuzz 60 frames uris`. Needs a nightly toolchain.
fuzz *ARGS:
    sh scripts/fuzz.sh {{ARGS}}
