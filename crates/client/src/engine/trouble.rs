//! What last went wrong with a shard, kept to explain a deadline that passes.

use quorate_core::ShardId;

use crate::error::{Error, ErrorKind};

#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    kind: ErrorKind,
    text: String,
}

impl Trouble {
    pub(crate) fn new(kind: ErrorKind, text: String) -> Trouble {
        Trouble { kind, text }
    }
}

/// The deadline of a command passed. `may_have_charged`: it was sent, and what became of it is not known.
pub(crate) fn late(shard: ShardId, trouble: Option<&Trouble>, may_have_charged: bool) -> Error {
    let why = trouble.map_or_else(String::new, |trouble| format!(" ({})", trouble.text));
    if may_have_charged {
        let text = format!(
            "the deadline passed before shard {shard} answered{why}; the check was sent, so it may have been charged: allow more time, or treat it as charged"
        );
        return Error::new(ErrorKind::Deadline, text).charged(true);
    }
    match trouble {
        Some(trouble) => {
            let text = format!("the deadline passed: {}; nothing was charged", trouble.text);
            Error::new(trouble.kind, text)
        }
        None => {
            let text = format!(
                "the deadline passed before the check could be sent to shard {shard}; nothing was charged: allow more time, or shed load"
            );
            Error::new(ErrorKind::Deadline, text)
        }
    }
}

/// The shard's breaker has opened: checks are not put in line any more.
pub(crate) fn tripped(shard: ShardId, trouble: Option<&Trouble>) -> Error {
    let (kind, why) = match trouble {
        Some(trouble) => (trouble.kind, trouble.text.as_str()),
        None => (ErrorKind::Unavailable, "it says nothing"),
    };
    let text = format!(
        "shard {shard} has answered no check in time for a while ({why}), so it is not asked until a probe is answered; nothing was charged"
    );
    Error::new(kind, text)
}

/// What became of a frame that was sent can no longer be learned.
pub(crate) fn unknown(shard: ShardId, why: &str) -> Error {
    let text = format!(
        "whether shard {shard} charged the check can no longer be known: {why}; treat it as charged, or ask again and risk a second charge"
    );
    Error::new(ErrorKind::Unknown, text).charged(true)
}
