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

# Time of a check in the core, beside other limiters in one process; `QUORATE_LONG=1` also for ten million keys.
bench-core *args:
    cargo bench --package quorate-bench --bench checks -- {{args}}

# Instructions of a check in the core, counted by callgrind: needs valgrind and gungraun-runner, and says so.
bench-instructions *args:
    cargo bench --package quorate-bench --bench instructions -- {{args}}

# Quorate on three processes beside Redis, throttlecrab-server and bare gRPC, by turns; see `just bench-peers --help`.
bench-peers *args:
    cargo build --release --package quorate-node --bin quorated --package quorate-peers --bin bench-peers
    cargo run --release --package quorate-peers --bin bench-peers -- {{args}}

# The long forms of the property tests: a million events an algorithm.
long:
    QUORATE_LONG=1 cargo test --release --package quorate-core -- --include-ignored

# Whole clusters in one thread on virtual time: 500 seeds, or the story of the one named; see `just sim --help`.
sim *args:
    cargo run --profile sim --package quorate-sim --features planted -- {{args}}

# Real processes killed again and again under load: the long form, with `QUORATE_SEED=N` another one.
chaos:
    QUORATE_LONG=1 cargo test --release --package quorate-tests --test chaos -- --nocapture

# What an outage costs the requests of a service, and how soon it is over: three processes killed, paused and slowed down.
outage:
    cargo bench --package quorate-tests --bench outage
