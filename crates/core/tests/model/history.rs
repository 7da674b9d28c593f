//! Random histories through the implementation and the law, side by side.
//!
//! One [`History`] is a few keys under a few policies and some hundreds of events from one seed. After each event everything
//! that can be told is compared: the verdict, every number of every limit, whether the key is as good as new. Every claimed wait
//! is checked in both by sitting idle: a microsecond earlier it must still be denied, and then granted. What is as good as new is
//! dropped now and then, as a shard's sweep would.

use quorate_core::{Algorithm, Cost, Decision, LimitAnswer, Mode, Policy, PolicyId, Position, Span, Stamp, caps};
use quorate_law::{Charge, Limiter, Rule, Time};

use crate::random::{self, KINDS, Kind, Random};
use crate::subject::{Named, Subject, Undo};

const KEYS: usize = 2;

/// Counts over many histories.
#[derive(Debug, Default)]
pub struct Tally {
    pub events: u64,
    pub asked: u64,
    pub denied: u64,
    pub waits: u64,
    pub never: u64,
    pub refunds: u64,
    pub refunds_that_changed: u64,
    pub reservations: u64,
    pub settlements: u64,
    pub expiries: u64,
    pub changes: u64,
    pub resets: u64,
    pub debts: u64,
}

/// A charge that may still be undone.
struct Open {
    policy: usize,
    key: usize,
    receipt: Position,
    cost: Cost,
    mark: Option<i128>,
    /// The key's era when it was made: a reset or a change of course begins another.
    era: u64,
    law: Charge,
}

struct Key {
    law: Limiter,
    era: u64,
}

pub struct History<S> {
    subject: S,
    random: Random,
    kinds: Vec<Kind>,
    policies: Vec<Policy>,
    keys: Vec<Vec<Key>>,
    now: i64,
    /// What the clock says: the time, or something earlier.
    stamp: i64,
    events: u64,
    open: Vec<Open>,
    /// Spans worth waiting, from the last answers.
    waits: Vec<i64>,
    /// What happened, for whoever reads the failure.
    pub story: Vec<String>,
}

fn most_at_once(algorithm: &Algorithm) -> u64 {
    match *algorithm {
        Algorithm::FixedWindow { limit, .. }
        | Algorithm::SlidingLog { limit, .. }
        | Algorithm::SlidingCounter { limit, .. } => limit,
        Algorithm::TokenBucket { capacity, .. } => capacity,
        Algorithm::LeakyBucket { queue, .. } => queue + 1,
    }
}

/// A span in which about a unit comes back, or a window passes.
fn pace(algorithm: &Algorithm) -> i64 {
    match *algorithm {
        Algorithm::FixedWindow { window, .. }
        | Algorithm::SlidingLog { window, .. }
        | Algorithm::SlidingCounter { window, .. } => window.0,
        Algorithm::TokenBucket { refill: rate, .. } | Algorithm::LeakyBucket { rate, .. } => {
            (rate.period.0 / rate.units as i64).max(1)
        }
    }
}

impl<S: Subject> History<S> {
    /// One policy of each kind named.
    pub fn new(seed: u64, kinds: &[Kind], modes: bool) -> Self {
        let mut random = Random(seed);
        let mut policies = Vec::new();
        for (i, kind) in kinds.iter().enumerate() {
            let mut policy = Policy::new(format!("p{i}"), random::algorithm(&mut random, *kind));
            policy.id = PolicyId(i as u32 + 1);
            if modes {
                policy.mode = random.pick(&[Mode::Enforce, Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Disabled]);
            }
            assert_eq!(policy.validate(), Ok(()), "{policy:?}");
            policies.push(policy);
        }
        let key = |policy: &Policy| Key { law: Limiter::new(Rule::from(&policy.algorithm)), era: 0 };
        let keys = policies.iter().map(|policy| (0..KEYS).map(|_| key(policy)).collect()).collect();
        let now = match random.up_to(9) {
            0 => 0,
            1 => caps::LONGEST_US - random.spread(1 << 60) as i64,
            2 => random.up_to(1 << 61) as i64,
            _ => 1_790_000_000_000_000 + random.up_to(1 << 40) as i64,
        };
        let story = policies.iter().map(|policy| format!("{policy:?}")).collect();
        let (kinds, open, waits) = (kinds.to_vec(), Vec::new(), Vec::new());
        let subject = S::new(&policies, KEYS);
        History { subject, random, kinds, policies, keys, now, stamp: now, events: 0, open, waits, story }
    }

    /// One event, and everything compared after it.
    pub fn step(&mut self, tally: &mut Tally) {
        self.events += 1;
        tally.events += 1;
        self.let_time_pass();
        match self.random.up_to(99) {
            0..=69 => self.check(tally, false),
            70..=79 => self.undo(tally),
            80..=89 => self.check(tally, true),
            // Several in a row, as they came: debts add up.
            90..=94 => (0..=self.random.up_to(3)).for_each(|_| self.settle(tally)),
            95..=97 => self.change(tally),
            _ => self.reset(tally),
        }
        self.drop_what_is_new();
    }

    fn let_time_pass(&mut self) {
        let policy = self.random.up_to(self.policies.len() as u64 - 1) as usize;
        let pace = pace(&self.policies[policy].algorithm);
        let live = self.open.iter().any(|open| open.law.expires.is_some_and(|expires| expires > self.now.into()));
        let span = match self.random.up_to(15) {
            // While something is reserved, rather little: most of them are to be settled, not to expire.
            1..=11 if live => self.random.spread(1 << 20) as i64,
            0..=4 => 0,
            5 => 1,
            6 if self.random.one_in(2) => self.random.spread(caps::SPAN_MAX_US as u64) as i64,
            7 => self.random.up_to(2 * pace as u64 + 1) as i64,
            8 => pace - 1 + self.random.up_to(2) as i64,
            9 | 10 => self.random.up_to(pace as u64 / 4 + 1) as i64,
            11 => self.random.spread(pace as u64 * 3) as i64,
            // Exactly when something was said to happen, or just beside it.
            12..=14 if !self.waits.is_empty() => {
                let place = self.random.up_to(self.waits.len() as u64 - 1) as usize;
                self.waits[place] - 1 + self.random.up_to(2) as i64
            }
            // The clock steps back: the shard's time does not.
            _ => -(self.random.spread(1 << 42) as i64),
        };
        self.stamp = self.now.saturating_add(span).clamp(0, caps::LONGEST_US);
        self.now = self.now.max(self.stamp);
    }

    fn t(&self) -> Stamp {
        Stamp(self.now)
    }

    fn cost(&mut self, policy: usize) -> Cost {
        let most = most_at_once(&self.policies[policy].algorithm);
        let units = match self.random.up_to(23) {
            0 | 1 => 0,
            2..=7 => 1,
            8 | 9 => self.random.up_to(5),
            10..=12 => most,
            13 => most + 1,
            14..=16 => self.random.up_to(most),
            17..=19 => most / 2 + self.random.up_to(1),
            20..=22 => most / 3,
            _ => self.random.spread(caps::UNITS),
        };
        Cost::new(units.min(caps::UNITS)).unwrap()
    }

    fn check(&mut self, tally: &mut Tally, reserve: bool) {
        let several = self.policies.len() > 1;
        let mut limits: Vec<Named> = Vec::new();
        for policy in 0..self.policies.len() {
            let leaky = self.kinds[policy] == Kind::LeakyBucket;
            if (several && self.random.one_in(2)) || (reserve && leaky) {
                continue;
            }
            let key = self.random.up_to(KEYS as u64 - 1) as usize;
            limits.push((policy, key, self.cost(policy)));
        }
        if limits.is_empty() {
            return;
        }
        let is_peek = !reserve && self.random.one_in(6);
        let hour = caps::RESERVATION.0;
        let ttl = self.random.pick(&[1, 1_000, 1_000_000, 60_000_000, hour, hour, hour, hour]);
        let expires = reserve.then(|| self.t().saturating_add(Span(ttl)));
        let pace = pace(&self.policies[limits[0].0].algorithm);
        let max_delay = match self.random.up_to(3) {
            0 => {
                Some(Span(self.random.pick(&[0, 1, pace, pace * 2, pace * 3, caps::LONGEST_US]).min(caps::LONGEST_US)))
            }
            _ => None,
        };
        self.story
            .push(format!("{} check {limits:?} peek {is_peek} max_delay {max_delay:?} expires {expires:?}", self.now));

        let peeked = self.look(&limits, self.t(), max_delay);
        let (stamp, t, ttl) = (Stamp(self.stamp), self.t(), reserve.then_some(Span(ttl)));
        let (receipt, decision) = self.subject.check(&self.policies, stamp, t, &limits, is_peek, max_delay, ttl);
        let untouched = |answer: &LimitAnswer| LimitAnswer { charged: false, mark: None, ..answer.clone() };
        if is_peek {
            assert_eq!(peeked, decision, "a peek answers as decide does when it is told to peek");
        }
        for (a, b) in peeked.limits.iter().zip(&decision.limits) {
            let (a, b) = (untouched(a), untouched(b));
            let same = (a.allowed, a.limit, a.retry_after, a.delay) == (b.allowed, b.limit, b.retry_after, b.delay);
            assert!(same, "a peek answers as the check will: {a:?} {b:?}");
        }
        self.compare(&limits, &decision, is_peek, max_delay, expires, receipt, tally);
        self.sit_out(&limits, &decision, max_delay, tally);
    }

    fn look(&self, limits: &[Named], t: Stamp, max_delay: Option<Span>) -> Decision {
        self.subject.look(&self.policies, t, limits, max_delay)
    }

    /// The law's own decision, and every number beside it.
    #[allow(clippy::too_many_arguments, reason = "it is the whole check once more")]
    fn compare(
        &mut self,
        limits: &[Named],
        decision: &Decision,
        is_peek: bool,
        max_delay: Option<Span>,
        expires: Option<Stamp>,
        receipt: Position,
        tally: &mut Tally,
    ) {
        let now = Time::from(self.now);
        let late = max_delay.map(|span| Time::from(span.0));
        let mut verdicts = Vec::new();
        let mut enforced = true;
        for (policy, key, cost) in limits {
            let law = &mut self.keys[*policy][*key].law;
            law.pass(now);
            let (granted, delay) = (law.grants(cost.get(), late), law.delay(cost.get()));
            let mode = self.policies[*policy].mode;
            enforced &= granted || mode != Mode::Enforce;
            verdicts.push((granted, delay, mode));
        }
        assert_eq!(decision.allowed, enforced, "the check as a whole");
        let alone = limits.len() == 1 && verdicts[0].2 == Mode::Shadow;
        assert_eq!(decision.shadow_denied, alone && !verdicts[0].0);

        let mut answers = decision.limits.iter();
        let mut longest_delay = None;
        for ((i, limit), (granted, delay, mode)) in limits.iter().enumerate().zip(verdicts) {
            if mode == Mode::Disabled {
                continue;
            }
            let answer = answers.next().expect("every limit that is not disabled has an answer");
            let (policy, key, cost) = (limit.0, limit.1, limit.2);
            assert_eq!(usize::from(answer.ordinal), i);
            assert_eq!(answer.allowed, granted, "the limit by itself");
            let delay = delay.filter(|_| granted && enforced).map(|delay| i64::try_from(delay).unwrap());
            assert_eq!(answer.delay.map(|span| span.0), delay, "delay");
            longest_delay = longest_delay.max(delay);
            if mode == Mode::Enforce {
                tally.asked += u64::from(cost > Cost::ZERO);
                tally.denied += u64::from(!granted);
            }
            if granted && enforced && !is_peek && (cost > Cost::ZERO || expires.is_some()) {
                assert!(answer.charged);
                let held = &mut self.keys[policy][key];
                let law = held.law.charge(now, self.events, cost.get(), expires.map(|stamp| stamp.0.into()));
                tally.reservations += u64::from(expires.is_some());
                self.open.push(Open { policy, key, receipt, cost, mark: answer.mark, era: held.era, law });
            } else {
                assert!(!answer.charged);
            }
            self.stands(policy, key, answer);
        }
        assert!(answers.next().is_none());
        assert_eq!(decision.delay.map(|span| span.0), longest_delay, "the longest delay");
        if self.open.len() > 64 {
            self.open.drain(..32);
        }
    }

    /// What the limit says of itself.
    fn stands(&mut self, policy: usize, key: usize, answer: &LimitAnswer) {
        let now = Time::from(self.now);
        let law = &self.keys[policy][key].law;
        assert_eq!(law.limit(), answer.limit.into(), "limit");
        assert_eq!(law.remaining(), answer.remaining.into(), "remaining");
        let reset = Time::from(answer.reset_after.0);
        assert!(reset >= 0);
        let saturated = answer.reset_after.0 == caps::LONGEST_US;
        assert!(saturated || law.idle_until(now + reset).is_new(), "as good as new {reset} later");
        assert!(reset == 0 || !law.idle_until(now + reset - 1).is_new(), "not as good as new before {reset}");
        assert_eq!(answer.reset_after.0 == 0, law.is_new());
        if reset > 0 && !saturated {
            self.waits.insert(0, answer.reset_after.0);
        }
        self.waits.truncate(4);
    }

    /// A denied caller who waits alone is granted at retry_after, in the law and in the implementation, and not before.
    fn sit_out(&mut self, limits: &[Named], decision: &Decision, max_delay: Option<Span>, tally: &mut Tally) {
        let late = max_delay.map(|span| Time::from(span.0));
        let now = Time::from(self.now);
        let mut longest = Some(Span(0));
        for answer in &decision.limits {
            let (policy, key, cost) = limits[usize::from(answer.ordinal)];
            if answer.allowed {
                assert_eq!(answer.retry_after, None);
                continue;
            }
            let law = &self.keys[policy][key].law;
            let grants = |t: Time| law.idle_until(t).grants(cost.get(), late);
            let never =
                !Limiter::new(Rule::from(&self.policies[policy].algorithm)).idle_until(now).grants(cost.get(), late);
            assert_eq!(answer.retry_after.is_none(), never, "no retry_after means never");
            if let Some(wait) = answer.retry_after {
                tally.waits += 1;
                assert!(wait.0 > 0);
                assert!(!grants(now + Time::from(wait.0) - 1), "denied a microsecond before {wait:?}");
                assert!(wait.0 == caps::LONGEST_US || grants(now + Time::from(wait.0)), "granted after {wait:?}");
                self.waits.insert(0, wait.0);
            } else {
                tally.never += 1;
            }
            if self.policies[policy].mode == Mode::Enforce {
                longest = longest.and_then(|longest| Some(longest.max(answer.retry_after?)));
            }
        }
        self.waits.truncate(4);
        if decision.allowed {
            assert_eq!(decision.retry_after, None);
            return;
        }
        assert_eq!(decision.retry_after, longest, "the longest of those that denied");
        let Some(then) = longest.and_then(|wait| self.now.checked_add(wait.0)).filter(|then| *then <= caps::LONGEST_US)
        else {
            return;
        };
        assert!(!self.look(limits, Stamp(then - 1), max_delay).allowed, "denied until then");
        assert!(self.look(limits, Stamp(then), max_delay).allowed, "granted exactly then");
    }

    fn take_open(&mut self) -> Option<Open> {
        if self.open.is_empty() {
            return None;
        }
        // The last charge rather often: only a leaky bucket's last can be undone.
        let last = self.open.len() - 1;
        let place = if self.random.one_in(2) { last } else { self.random.up_to(last as u64) as usize };
        Some(self.open.remove(place))
    }

    fn undo(&mut self, tally: &mut Tally) {
        let Some(open) = self.take_open() else { return };
        let (now, t) = (Time::from(self.now), self.t());
        self.story.push(format!("{} refund of {:?} {:?}", self.now, open.receipt, open.cost));
        let key = &mut self.keys[open.policy][open.key];
        key.law.pass(now);
        let undo = open.undo(key.era);
        let before = (key.law.remaining(), key.law.is_new());
        if !undo.gone {
            key.law.refund(&open.law);
        }
        let after = (key.law.remaining(), key.law.is_new());
        let changed = self.subject.refund(&self.policies, t, &undo);
        assert!(changed || before == after, "a refund that changed something says so");
        tally.refunds += 1;
        tally.refunds_that_changed += u64::from(changed);
        self.glance(open.policy, open.key);
    }

    fn settle(&mut self, tally: &mut Tally) {
        let Some(place) = self.open.iter().rposition(|open| open.law.expires.is_some()) else { return };
        let open = self.open.remove(place);
        let (now, t) = (Time::from(self.now), self.t());
        let actual = match self.random.up_to(8) {
            0 => 0,
            1 | 2 => open.cost.get() / 2,
            3 => open.cost.get(),
            4 => open.cost.get() + 1,
            5 => open.cost.get().saturating_mul(3),
            // Deep debt: twice over, and a bucket is at the lowest that it may be.
            6 | 7 => caps::UNITS,
            _ => self.random.spread(caps::UNITS),
        };
        let actual = Cost::new(actual.min(caps::UNITS)).unwrap();
        self.story.push(format!("{} settle of {:?} {:?} at {actual:?}", self.now, open.receipt, open.cost));
        let key = &mut self.keys[open.policy][open.key];
        key.law.pass(now);
        let undo = open.undo(key.era);
        key.law.settle(now, &open.law, actual.get(), undo.gone);
        let expires = Stamp(open.law.expires.unwrap() as i64);
        self.subject.settle(&self.policies, t, &undo, Span(expires.0 - undo.at.0), actual);
        tally.settlements += 1;
        tally.expiries += u64::from(t >= expires);
        tally.debts += u64::from(actual > open.cost);
        self.glance(open.policy, open.key);
    }

    fn change(&mut self, tally: &mut Tally) {
        let i = self.random.up_to(self.policies.len() as u64 - 1) as usize;
        let (now, t) = (Time::from(self.now), self.t());
        let old = self.policies[i].clone();
        let mut new = old.clone();
        new.algorithm = if self.random.one_in(6) && self.policies.len() > 1 {
            self.kinds[i] = self.random.pick(&KINDS);
            random::algorithm(&mut self.random, self.kinds[i])
        } else {
            random::changed(&mut self.random, old.algorithm, self.kinds[i])
        };
        assert_eq!(new.validate(), Ok(()), "{new:?}");
        self.story.push(format!("{} apply {:?}", self.now, new.algorithm));
        tally.changes += 1;
        for key in &mut self.keys[i] {
            key.law.pass(now);
            if old.algorithm != new.algorithm {
                key.law = key.law.clone().change(now, Rule::from(&new.algorithm));
            }
            key.era += u64::from(!Rule::from(&old.algorithm).is_same_course_as(&Rule::from(&new.algorithm)));
        }
        self.policies[i] = new;
        self.subject.change(&self.policies, i, &old, t);
        for key in 0..KEYS {
            self.glance(i, key);
        }
    }

    fn reset(&mut self, tally: &mut Tally) {
        let i = self.random.up_to(self.policies.len() as u64 - 1) as usize;
        let place = self.random.up_to(KEYS as u64 - 1) as usize;
        self.story.push(format!("{} reset of p{i} {place}", self.now));
        tally.resets += 1;
        let key = &mut self.keys[i][place];
        key.law = Limiter::new(Rule::from(&self.policies[i].algorithm));
        key.law.pass(self.now.into());
        key.era += 1;
        let t = self.t();
        self.subject.reset(&self.policies, t, i, place);
    }

    /// Looks at a key with a cost of 0, and compares what it says of itself.
    fn glance(&mut self, policy: usize, key: usize) {
        self.keys[policy][key].law.pass(self.now.into());
        if self.policies[policy].mode == Mode::Disabled {
            return;
        }
        let decision = self.look(&[(policy, key, Cost::ZERO)], self.t(), None);
        assert!(decision.allowed);
        self.stands(policy, key, &decision.limits[0]);
    }

    fn drop_what_is_new(&mut self) {
        let t = self.t();
        for policy in 0..self.policies.len() {
            for key in 0..KEYS {
                let law = &mut self.keys[policy][key].law;
                law.pass(t.0.into());
                let (is_new, drop) = (law.is_new(), self.random.one_in(2));
                self.subject.is_new(&self.policies, t, policy, key, is_new, drop);
            }
        }
    }
}

impl Open {
    fn undo(&self, era: u64) -> Undo {
        let (at, gone) = (Stamp(self.law.at as i64), self.era != era);
        let Open { policy, key, receipt, cost, mark, .. } = *self;
        Undo { policy, key, receipt, at, cost, mark, gone }
    }
}
