//! The node's gRPC services, and the server that they stand behind.
//!
//! Handlers decode, call, and encode; whatever they lean on comes in from outside. Every refusal says what to do next.

pub mod admin;
mod census;
pub mod checks;
mod connections;
pub mod frames;
pub mod front;
pub mod ingress;
pub mod peer_calls;
pub mod reports;
pub mod server;
#[cfg(test)]
mod tests;
pub mod topology;
#[cfg(test)]
mod wire_tests;

pub use admin::{Admin, Cluster};
pub use checks::Checks;
pub use connections::room;
pub use frames::Frames;
pub use front::Front;
pub use ingress::{ClusterView, Door, Ingress};
pub use reports::Reports;
pub use server::{Health, routes, serve};
pub use topology::Topology;

/// What a node in no cluster says to whoever asks more than who it is.
pub const NO_CLUSTER: &str =
    "this node is in no cluster yet; run `quorate cluster init --nodes …` with the addresses of all its nodes";
/// What a node says that is a member and has yet to learn of its cluster.
pub const JOINING: &str = "this node has yet to hear from its cluster; try again in a moment, or ask another node";
