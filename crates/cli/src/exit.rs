//! How a command ends: a code that scripts can rely on, and, where it failed, one message that says what to do.
//!
//! The numbers are part of the interface: documented in `--help` and docs/cli.md, never changed.

use std::fmt;

use crate::policies::PolicyFileError;

/// A process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Done; of a check: allowed.
    Ok = 0,
    /// It did not work, and no other code says why: a wrong policy file, a call that the cluster refused as wrong.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// No endpoint answered in time.
    Unreachable = 3,
    /// The cluster does not permit it to this caller.
    NotPermitted = 4,
    /// A node answered, but the shard or the control group has no leader.
    NoLeader = 5,
    /// There is no such policy.
    NotFound = 6,
    /// Somebody else changed it first, or the node belongs to another cluster.
    Conflict = 7,
    /// The check was denied.
    Denied = 8,
    /// `cluster status`: a node or a shard does not work.
    Unhealthy = 9,
}

/// The codes as `--help` prints them.
pub const HELP: &str = "\
Exit codes:
  0  done; of a check: allowed
  1  failed
  2  wrong usage
  3  unreachable: no endpoint answered in time
  4  not permitted
  5  no leader: the shard or the control group has none just now
  6  not found: no such policy
  7  conflict: changed by somebody else, or a node of another cluster
  8  denied: the check, or what was peeked at
  9  unhealthy: cluster status saw a node or a shard that does not work";

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What went wrong and what to do about it; may have several lines.
    pub message: String,
}

impl Failure {
    /// A failure with its code.
    pub fn new(code: Code, message: impl fmt::Display) -> Failure {
        Failure { code, message: message.to_string() }
    }

    /// Code 1.
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure::new(Code::Failed, message)
    }

    /// Code 2.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(Code::Usage, message)
    }
}

/// What every command returns.
pub type Outcome = Result<Code, Failure>;

impl From<PolicyFileError> for Failure {
    fn from(error: PolicyFileError) -> Self {
        Failure::failed(error)
    }
}
