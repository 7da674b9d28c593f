//! Random histories: what a shard's log may hold, drawn from a seed. Few keys, short windows and low bounds, so that
//! everything meets everything.

use std::collections::HashSet;

use quorate_core::*;

/// A small generator of numbers, the same everywhere.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Draw(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// Writes batch after batch, and remembers what a client would: receipts, sessions.
pub(crate) struct History {
    pub draw: Draw,
    pub keys: u64,
    stamp: i64,
    version: u64,
    index: u64,
    receipts: Vec<(Position, Stamp, Span, Vec<Charge>)>,
    sessions: Vec<(SessionId, u64, u64)>,
    opened: HashSet<SessionId>,
    sent: Vec<Group>,
}

impl History {
    pub(crate) fn new(seed: u64, keys: u64) -> Self {
        History {
            draw: Draw::new(seed),
            keys,
            stamp: 1_700_000_000_000_000,
            version: 0,
            index: 0,
            receipts: vec![],
            sessions: vec![],
            opened: HashSet::new(),
            sent: vec![],
        }
    }

    fn policy(&mut self, id: u32) -> Policy {
        let d = &mut self.draw;
        let window = Span([1_000, 50_000, 1_000_000, 7_000_000][d.below(4) as usize]);
        let rate = Rate { units: 1 + d.below(9), period: window };
        let most = d.below(20);
        let algorithm = match (u64::from(id) + u64::from(d.one_in(12))) % 5 {
            0 => Algorithm::FixedWindow { limit: most, window },
            1 => Algorithm::SlidingLog { limit: most, window },
            2 => Algorithm::SlidingCounter { limit: most, window },
            3 => Algorithm::TokenBucket { capacity: most, refill: rate },
            _ => Algorithm::LeakyBucket { queue: most, rate },
        };
        let mut policy = Policy::new(format!("policy-{id}"), algorithm);
        policy.id = PolicyId(id);
        policy.mode = [Mode::Enforce, Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Disabled][d.below(5) as usize];
        policy.on_full = if d.one_in(2) { OnFull::Evict } else { OnFull::Refuse };
        policy.max_cost = if d.one_in(5) { Cost::new(1 + d.below(5)) } else { None };
        policy
    }

    fn set(&mut self) -> PolicySet {
        self.version += self.draw.below(3);
        let mut policies = Vec::new();
        for id in 1..=10 {
            if !self.draw.one_in(9) {
                policies.push(self.policy(id));
            }
        }
        PolicySet { version: PolicyVersion(self.version), policies }
    }

    fn limit(&mut self) -> Limit {
        let policy = PolicyId(1 + self.draw.below(10) as u32);
        let key = 1 + self.draw.below(self.keys);
        let table = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(policy.0);
        Limit { policy, key: Fingerprint { table, ring: key }, cost: Cost::new(self.draw.below(4)).unwrap() }
    }

    fn check(&mut self) -> Check {
        let count = if self.draw.one_in(4) { 1 + self.draw.below(4) } else { 1 };
        let limits = (0..count).map(|_| self.limit()).collect();
        let max_delay = self.draw.one_in(8).then(|| Span(self.draw.below(100_000) as i64));
        Check { limits, peek: self.draw.one_in(10), max_delay }
    }

    fn command(&mut self) -> Command {
        match self.draw.below(100) {
            0..60 => Command::Check(self.check()),
            60..70 => {
                let ttl = Span(self.draw.below(2_000_000) as i64);
                Command::Reserve { check: self.check(), ttl }
            }
            70..88 if !self.receipts.is_empty() => {
                let at = self.draw.below(self.receipts.len() as u64) as usize;
                let (receipt, at, ttl, charges) = self.receipts.swap_remove(at);
                if self.draw.one_in(2) {
                    return Command::Refund { receipt, at, charges: charges.into() };
                }
                let actual = charges.iter().map(|_| Cost::new(self.draw.below(6)).unwrap()).collect();
                Command::Settle { receipt, at, ttl, charges: charges.into(), actual }
            }
            88..93 => {
                let Limit { policy, key, .. } = self.limit();
                Command::Reset { policy, key }
            }
            93..95 => Command::Install(self.set()),
            95..98 => Command::OpenSession,
            98 => Command::Bounds(Bounds {
                keys: self.keys / 2 + self.draw.below(2 * self.keys),
                log_bytes: 1_000 + self.draw.below(50_000),
                sessions: 1 + self.draw.below(6),
                session_bytes: 2_000 + self.draw.below(60_000),
            }),
            _ => match self.sessions.last() {
                Some((session, ..)) if self.draw.one_in(6) => Command::CloseSession(*session),
                _ => Command::Tick,
            },
        }
    }

    fn group(&mut self) -> Group {
        let commands = (0..self.draw.below(6)).map(|place| (place as u32, self.command())).collect();
        let frame = match self.sessions.is_empty() {
            false if self.draw.one_in(2) => {
                let at = self.draw.below(self.sessions.len() as u64) as usize;
                let (session, next, lowest) = &mut self.sessions[at];
                *next += 1;
                *lowest = (*lowest).max(next.saturating_sub(self.draw.below(5)));
                let (sequence, lowest_unanswered) = (Sequence(*next), Sequence(*lowest));
                Some(FrameId { session: *session, sequence, lowest_unanswered })
            }
            _ => None,
        };
        Group { frame, commands }
    }

    /// The next entry of the log.
    pub(crate) fn batch(&mut self) -> (Term, Index, Batch) {
        self.index += 1 + self.draw.below(2);
        self.stamp += match self.draw.below(12) {
            0 => -(self.draw.below(10_000) as i64),
            1 => self.draw.below(5_000_000) as i64,
            2 if self.draw.one_in(40) => self.draw.below(4_000_000_000) as i64,
            _ => self.draw.below(20_000) as i64,
        };
        let mut groups: Vec<Group> = (0..1 + self.draw.below(4)).map(|_| self.group()).collect();
        if self.version == 0 {
            self.version = 1;
            let set = self.set();
            groups.insert(
                0,
                Group { frame: None, commands: vec![(0, Command::Install(set)), (1, Command::OpenSession)] },
            );
        }
        // A frame sent again, whole or in part.
        if self.draw.one_in(3) && !self.sent.is_empty() {
            let at = self.draw.below(self.sent.len() as u64) as usize;
            let mut again = self.sent[at].clone();
            again.commands.retain(|_| !self.draw.one_in(3));
            groups.push(again);
        }
        for group in groups.iter().filter(|group| group.frame.is_some()) {
            self.sent.push(group.clone());
        }
        self.sent.drain(..self.sent.len().saturating_sub(8));
        (Term(1), Index(self.index), Batch { stamp: Stamp(self.stamp), groups })
    }

    /// Learns from the answers what there is to refund, to settle, and to number frames with.
    pub(crate) fn learn(&mut self, batch: &Batch, applied: &Applied) {
        for (group, answers) in batch.groups.iter().zip(&applied.groups) {
            for ((_, command), answer) in group.commands.iter().zip(answers) {
                self.learn_one(command, answer);
            }
        }
        self.receipts.drain(..self.receipts.len().saturating_sub(64));
        self.sessions.drain(..self.sessions.len().saturating_sub(5));
    }

    fn learn_one(&mut self, command: &Command, answer: &PlaceAnswer) {
        if let Answer::SessionOpened(session) = answer.answer
            && !self.opened.contains(&session)
        {
            self.opened.insert(session);
            self.sessions.push((session, 0, 1));
        }
        let (check, ttl) = match command {
            Command::Check(check) => (check, Span(1_000_000)),
            Command::Reserve { check, ttl } => (check, *ttl),
            _ => return,
        };
        let Answer::Decision(decision) = &answer.answer else { return };
        let mut joined: Vec<&Limit> = vec![];
        for limit in &check.limits {
            if !joined.iter().any(|known| (known.policy, known.key) == (limit.policy, limit.key)) {
                joined.push(limit);
            }
        }
        let charges: Vec<Charge> = decision
            .limits
            .iter()
            .filter(|limit| limit.charged)
            .map(|limit| Charge {
                policy: limit.policy,
                key: joined[usize::from(limit.ordinal)].key,
                cost: limit.cost,
                mark: limit.mark,
            })
            .collect();
        if !charges.is_empty() {
            self.receipts.push((answer.receipt.position(), answer.receipt.stamp, ttl, charges));
        }
    }
}

/// A shard's snapshot.
pub(crate) fn snapshot(shard: &Shard) -> Vec<u8> {
    let mut bytes = vec![];
    shard.capture().write(&mut bytes).expect("a vector takes everything");
    bytes
}
