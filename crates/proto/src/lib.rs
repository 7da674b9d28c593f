//! The wire protocol, generated from `/proto/quorate/v1/*.proto`: messages, services, their descriptors, and the way between
//! them and the core's types. No logic.

pub mod convert;

/// Version 1 of the protocol.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("quorate.v1");
}

/// The encoded descriptors of every file, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
