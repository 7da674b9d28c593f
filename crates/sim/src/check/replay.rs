//! Which commands of a log are executed, by the rule of sessions alone: the first time that a place of a frame appears, and
//! never again. Dumb on purpose, and with nothing of the implementation.

use std::collections::{BTreeMap, HashMap, HashSet};

use quorate_core::{Command, Fingerprint, Index, PolicyId, Position, ShardId, caps};

use super::{Entry, Logs};

/// A shard's log, read.
#[derive(Default)]
pub struct Replay {
    /// Every command that is executed, with its logical time, in order.
    pub executed: BTreeMap<Position, (i64, Command)>,
    /// Places of frames that appeared again after they had been executed.
    pub retried: u64,
}

impl Replay {
    /// How often each charge, by its place and its key, was refunded or settled.
    pub fn corrections(&self) -> HashMap<(Position, PolicyId, Fingerprint), u64> {
        let mut times = HashMap::new();
        for (_, command) in self.executed.values() {
            let (Command::Refund { receipt, charges, .. } | Command::Settle { receipt, charges, .. }) = command else {
                continue;
            };
            for charge in charges {
                *times.entry((*receipt, charge.policy, charge.key)).or_default() += 1;
            }
        }
        times
    }
}

/// What is known of a session.
struct Session {
    lowest: u64,
    used_at: i64,
    seen: HashSet<(u64, u32)>,
}

/// Reads all logs.
pub fn all(logs: &Logs) -> BTreeMap<ShardId, Replay> {
    logs.iter().map(|(shard, log)| (*shard, read(log))).collect()
}

fn read(log: &BTreeMap<u64, Entry>) -> Replay {
    let mut replay = Replay::default();
    let (mut sessions, mut next) = (HashMap::<u64, Session>::new(), 1);
    let mut now = 0;
    for (index, entry) in log {
        let Some(batch) = &entry.batch else { continue };
        now = now.max(batch.stamp.0);
        sessions.retain(|_, session| session.used_at.saturating_add(caps::SESSION_IDLE.0) > now);
        let mut place = 0;
        for group in &batch.groups {
            let mut refused = false;
            if let Some(frame) = group.frame {
                match sessions.get_mut(&frame.session.0) {
                    None => refused = true,
                    Some(session) => {
                        session.used_at = now;
                        session.lowest = session.lowest.max(frame.lowest_unanswered.0);
                        let sequence = frame.sequence.0;
                        refused = sequence < session.lowest || sequence - session.lowest >= caps::SESSION_SPAN;
                    }
                }
            }
            for (in_frame, command) in &group.commands {
                let position = Position { index: Index(*index), place };
                place += 1;
                if refused {
                    continue;
                }
                if let Some(frame) = group.frame
                    && let Some(session) = sessions.get_mut(&frame.session.0)
                    && !session.seen.insert((frame.sequence.0, *in_frame))
                {
                    replay.retried += 1;
                    continue;
                }
                match command {
                    Command::OpenSession => {
                        sessions.insert(next, Session { lowest: 1, used_at: now, seen: HashSet::new() });
                        next += 1;
                    }
                    Command::CloseSession(id) => {
                        sessions.remove(&id.0);
                    }
                    _ => {}
                }
                replay.executed.insert(position, (now, command.clone()));
            }
        }
    }
    replay
}
