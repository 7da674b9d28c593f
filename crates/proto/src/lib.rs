//! The wire protocol, generated from `/proto/quorate/v1/*.proto`. No logic: messages, services, and their descriptors.

/// Version 1 of the protocol.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("quorate.v1");
}

/// The encoded descriptors of every file, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
