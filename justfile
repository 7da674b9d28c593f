# The daily acts. `just verify` reads and never writes; `just fix` writes.

# A three-node cluster on this machine.
run *args:
    cargo run --release --bin quorated -- dev {{args}}

# All tests.
test *args:
    cargo test --workspace {{args}}

# What CI checks after the tests.
verify:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    cargo deny check bans licenses sources

# Formats and applies what clippy can.
fix:
    cargo clippy --workspace --all-targets --fix --allow-dirty
    cargo fmt --all

# Load on a cluster.
bench *args:
    cargo run --release --bin quorate -- bench {{args}}

# The long forms of the property tests: a million events an algorithm.
long:
    QUORATE_LONG=1 cargo test --release --package quorate-core -- --include-ignored

# Whole clusters in one thread on virtual time: 500 seeds, or the story of the one named; see `just sim --help`.
sim *args:
    cargo run --profile sim --package quorate-sim --features planted -- {{args}}

# Real processes killed again and again under load: the long form, with `QUORATE_SEED=N` another one.
chaos:
    QUORATE_LONG=1 cargo test --release --package quorate-tests --test chaos -- --nocapture
