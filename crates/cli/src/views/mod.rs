//! What commands show: plain data, rendered by pure functions, so that golden tests need no cluster.

pub mod bench;
pub mod bench_url;
pub mod check;
pub mod cluster;
pub mod policy;

/// `-` where there is nothing to show.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

/// Bytes as lowercase hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
