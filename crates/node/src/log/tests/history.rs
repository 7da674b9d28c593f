//! Random histories against a dumb model, with power failing at any point.
//!
//! The model of a group is the list of what was done to it, one record each. After a crash the group has to be as some
//! prefix of that list leaves it, and no shorter a one than what was acknowledged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Entry(Entry),
    Vote(Ballot),
    Purge(EntryId),
    Truncate(Option<EntryId>),
}

/// What a group is after some operations.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    vote: Option<Ballot>,
    purged: Option<EntryId>,
    entries: Vec<Entry>,
}

impl Model {
    fn last(&self) -> Option<EntryId> {
        self.entries.last().map(|entry| entry.id).or(self.purged)
    }

    fn enter(&mut self, op: &Op) {
        match op {
            Op::Entry(entry) => self.entries.push(entry.clone()),
            Op::Vote(ballot) => self.vote = Some(*ballot),
            Op::Purge(upto) => {
                self.entries.retain(|entry| entry.id.index > upto.index);
                self.purged = self.purged.max(Some(*upto));
            }
            Op::Truncate(after) => {
                self.entries.retain(|entry| after.is_some_and(|after| entry.id.index <= after.index));
            }
        }
    }

    fn of(ops: &[Op]) -> Model {
        let mut model = Model::default();
        ops.iter().for_each(|op| model.enter(op));
        model
    }
}

#[derive(Default)]
struct History {
    ops: Vec<Op>,
    acknowledged: Arc<AtomicUsize>,
    committed: Vec<EntryId>,
    /// What is appended next is of no earlier term: an index never comes back in the same term with something else.
    term: u64,
    now: Model,
}

impl History {
    fn push(&mut self, op: Op) {
        self.now.enter(&op);
        self.ops.push(op);
    }

    /// The length of the prefix that the group is, if it is one.
    fn matches(&self, marks: Marks, entries: &[Entry]) -> Option<usize> {
        let found = Model { vote: marks.vote, purged: marks.purged, entries: entries.to_vec() };
        let least = self.acknowledged.load(Ordering::SeqCst);
        (least..=self.ops.len()).rev().find(|len| Model::of(&self.ops[..*len]) == found)
    }
}

async fn step(random: &mut SmallRng, group: &GroupLog, history: &mut History) -> Result<(), LogError> {
    let last = history.now.last();
    match random.random_range(0..20) {
        0..=10 => {
            let term = last.map_or(1, |last| last.term.0).max(history.term) + u64::from(random.random_ratio(1, 10));
            history.term = term;
            let from = last.map_or(0, |last| last.index.0 + 1);
            let count = random.random_range(1..6);
            let big = random.random_ratio(1, 40);
            let len =
                |random: &mut SmallRng| if big { random.random_range(0..3000) } else { random.random_range(0..90) };
            let entries: Vec<Entry> = (from..from + count).map(|index| entry(term, index, len(random))).collect();
            entries.iter().for_each(|entry| history.push(Op::Entry(entry.clone())));
            let (acknowledged, upto) = (history.acknowledged.clone(), history.ops.len());
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let done = move |result: Result<(), LogError>| {
                if result.is_ok() {
                    assert!(acknowledged.fetch_max(upto, Ordering::SeqCst) < upto, "callbacks come in order");
                }
                let _ = sender.send(());
            };
            group.append(entries, Box::new(done)).await?;
            if random.random_ratio(1, 3) {
                drop(receiver.await);
            }
        }
        11..=12 => {
            let vote = ballot(history.now.vote.map_or(1, |vote| vote.term.0 + 1), random.random_range(1..5));
            history.push(Op::Vote(vote));
            let upto = history.ops.len();
            group.save_vote(vote).await?;
            history.acknowledged.fetch_max(upto, Ordering::SeqCst);
        }
        13..=14 => {
            let (Some(first), Some(last)) = (history.now.entries.first(), last) else { return Ok(()) };
            let index = random.random_range(first.id.index.0..=last.index.0);
            let upto = history.now.entries.iter().find(|entry| entry.id.index.0 == index).map(|entry| entry.id);
            let beyond = EntryId::new(last.term.0 + 1, last.index.0 + 3);
            let upto = if random.random_ratio(1, 10) { beyond } else { upto.unwrap() };
            history.push(Op::Purge(upto));
            group.purge(upto)?;
        }
        15 => {
            let least = group.marks().committed.map_or(0, |committed| committed.index.0);
            let after =
                history.now.entries.iter().rev().find(|entry| entry.id.index.0 >= least && random.random_ratio(1, 3));
            let Some(after) = after.map(|entry| entry.id) else { return Ok(()) };
            history.push(Op::Truncate(Some(after)));
            history.term += 1;
            group.truncate_after(Some(after))?;
        }
        16..=17 => {
            let Some(last) = last else { return Ok(()) };
            history.committed.push(last);
            group.save_committed(last)?;
        }
        18 => {
            let upto = history.ops.len();
            group.flush().await?;
            history.acknowledged.fetch_max(upto, Ordering::SeqCst);
        }
        _ => tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await,
    }
    Ok(())
}

async fn run(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let memory = MemoryDisk::new(seed);
    let mut histories: BTreeMap<GroupId, History> = (1..=3).map(|id| (GroupId(id), History::default())).collect();
    for _ in 0..random.random_range(2..6) {
        let log = open(&memory).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check(seed, &log, &mut histories).await;
        // Opening it once more changes nothing.
        drop(log);
        memory.kill();
        let log = open(&memory).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check(seed, &log, &mut histories).await;
        let latency =
            random.random_bool(0.5).then(|| (Duration::ZERO, Duration::from_millis(random.random_range(1..20))));
        let power_after = random.random_bool(0.8).then(|| random.random_range(0..60));
        memory.set_faults(Faults { latency, power_after, ..Faults::default() });
        for _ in 0..random.random_range(10..200) {
            let id = GroupId(random.random_range(1..=3));
            let group = log.group(id);
            let history = histories.get_mut(&id).unwrap();
            if step(&mut random, &group, history).await.is_err() {
                break;
            }
        }
        memory.crash();
    }
}

/// The log is as the histories say; they are cut back to what is left.
async fn check(seed: u64, log: &Log, histories: &mut BTreeMap<GroupId, History>) {
    for (id, history) in histories {
        let group = log.group(*id);
        let (marks, entries) = (group.marks(), all(&group).await);
        let Some(len) = history.matches(marks, &entries) else {
            let acknowledged = history.acknowledged.load(Ordering::SeqCst);
            panic!(
                "seed {seed}, {id}: {marks:?} with {} entries is no prefix of\n{:?}\n({acknowledged} acknowledged)",
                entries.len(),
                history.ops
            );
        };
        if let Some(committed) = marks.committed {
            assert!(history.committed.contains(&committed), "seed {seed}");
            assert!(marks.last >= Some(committed), "seed {seed}");
        }
        history.ops.truncate(len);
        history.acknowledged.store(len, Ordering::SeqCst);
        history.now = Model::of(&history.ops);
        history.term += 1;
    }
}

#[test]
fn what_was_acknowledged_survives_and_the_rest_is_lost_from_the_end() {
    let from: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    for seed in from..from + count {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed));
    }
}

#[test]
fn power_may_fail_between_any_two_operations() {
    // A fixed history with segments begun and unlinked; the power fails after each number of changes.
    for power_after in 0..400 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let ended = runtime.block_on(async {
            let memory = MemoryDisk::new(power_after);
            memory.set_faults(Faults { power_after: Some(power_after), ..Faults::default() });
            let mut upto = 0;
            if let Ok(log) = open(&memory).await {
                let group = log.group(GROUP);
                while upto < 200
                    && append(&group, (upto..upto + 5).map(|index| entry(1, index, 40)).collect()).await.is_ok()
                {
                    upto += 5;
                    if upto % 20 == 0 && group.purge(EntryId::new(1, upto - 12)).is_err() {
                        break;
                    }
                }
                log.close().await;
            }
            let survived = !memory.is_dead();
            memory.crash();
            let log = open(&memory).await.unwrap_or_else(|error| panic!("power after {power_after}: {error}"));
            let next = log.group(GROUP).marks().next().map_or(0, |next| next.0);
            assert!((upto..=upto + 5).contains(&next), "power after {power_after}: {upto} acknowledged, {next} there");
            let entries = all(&log.group(GROUP)).await;
            assert!(entries.iter().all(|found| *found == entry(1, found.id.index.0, 40)));
            survived
        });
        if ended {
            assert!(power_after > 100, "{power_after}");
            return;
        }
    }
    panic!("the history never ended");
}
