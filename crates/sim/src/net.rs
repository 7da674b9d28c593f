//! The network between machines: lanes of messages that wait, are lost, come twice, and break.
//!
//! A message is something to be done on the machine that it goes to. A *lane* is one direction of a connection: it delivers
//! in order until it breaks; what is on it then is dropped, as it is when the machine at its end dies. All chance is drawn
//! from one generator, in the order of the calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorate_node::disk::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::fired::{Fault, Fired};

/// A machine, by its place.
pub type Machine = usize;

/// What a message does where it arrives.
pub type Deed = Box<dyn FnOnce() + Send>;

/// How long a cut connection is kept before both sides give it up, in microseconds.
const GIVE_UP: i64 = 2_000_000;
/// How long a lost message is kept, so that nobody learns of its loss but by waiting.
const LIMBO: i64 = 20_000_000;

/// What the network is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// The shortest way of a message, in microseconds.
    pub least: i64,
    /// The longest, without a delay.
    pub most: i64,
    /// Of a million messages, how many are lost.
    pub loss: u32,
    /// … come twice.
    pub twice: u32,
    /// … are delayed by up to `late`.
    pub delays: u32,
    /// In microseconds.
    pub late: i64,
}

impl Weather {
    /// Nothing goes wrong.
    pub const FAIR: Weather = Weather { least: 100, most: 12_000, loss: 0, twice: 0, delays: 0, late: 0 };
}

/// One direction of a connection. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneId(u64);

/// The network. Clones are the same one.
#[derive(Clone)]
pub struct Net(Arc<Mutex<State>>);

struct State {
    now: i64,
    random: SmallRng,
    weather: Weather,
    machines: Vec<End>,
    lanes: BTreeMap<LaneId, Lane>,
    /// The lane that nodes talk to each other on.
    peers: BTreeMap<(Machine, Machine), LaneId>,
    next: u64,
    cuts: BTreeMap<(Machine, Machine), u32>,
    /// Copies of messages, which come when they come.
    stray: BTreeMap<(i64, u64), (Machine, u64, Deed)>,
    /// Lost messages, until when they are kept.
    limbo: VecDeque<(i64, Deed)>,
    fired: Fired,
}

#[derive(Default)]
struct End {
    boot: u64,
    up: bool,
    asleep: bool,
    disk: Option<MemoryDisk>,
}

struct Lane {
    from: (Machine, u64),
    to: (Machine, u64),
    queue: VecDeque<(i64, Deed)>,
    last: i64,
    stuck: Option<i64>,
    /// It carries answers to a client.
    answers: bool,
    /// What breaks with it: the other direction.
    twin: Option<LaneId>,
    /// Done at its end when it breaks.
    broken: Option<Deed>,
}

impl Net {
    /// A network of so many machines, none of them up.
    pub fn new(seed: u64, machines: usize, fired: Fired) -> Net {
        Net(Arc::new(Mutex::new(State {
            now: 0,
            random: SmallRng::seed_from_u64(seed),
            weather: Weather::FAIR,
            machines: (0..machines).map(|_| End::default()).collect(),
            lanes: BTreeMap::new(),
            peers: BTreeMap::new(),
            next: 1,
            cuts: BTreeMap::new(),
            stray: BTreeMap::new(),
            limbo: VecDeque::new(),
            fired,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world's time.
    pub fn now(&self) -> i64 {
        self.lock().now
    }

    /// From now on it is like that.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// A machine starts; what it sends when the power of that disk has failed goes nowhere.
    pub fn start(&self, machine: Machine, disk: Option<MemoryDisk>) -> u64 {
        let mut state = self.lock();
        let end = &mut state.machines[machine];
        (end.boot, end.up, end.asleep, end.disk) = (end.boot + 1, true, false, disk);
        end.boot
    }

    /// A machine dies: what it sent before may still arrive, what is sent to it does not.
    pub fn stop(&self, machine: Machine) {
        let dropped = {
            let mut state = self.lock();
            state.machines[machine].up = false;
            let boot = state.machines[machine].boot;
            let ends: Vec<LaneId> =
                state.lanes.iter().filter(|(_, lane)| lane.to == (machine, boot)).map(|(id, _)| *id).collect();
            ends.into_iter().flat_map(|id| state.break_lane(id)).collect::<Vec<_>>()
        };
        drop(dropped);
    }

    /// A machine does nothing for a while, or goes on.
    pub fn set_asleep(&self, machine: Machine, asleep: bool) {
        self.lock().machines[machine].asleep = asleep;
    }

    /// Nothing gets from one machine to the other any more. Cuts add up; each is healed for itself.
    pub fn cut(&self, from: Machine, to: Machine) {
        *self.lock().cuts.entry((from, to)).or_default() += 1;
    }

    /// Takes one cut back.
    pub fn heal(&self, from: Machine, to: Machine) {
        let mut state = self.lock();
        let Some(cuts) = state.cuts.get_mut(&(from, to)) else { return };
        *cuts -= 1;
        if *cuts == 0 {
            state.cuts.remove(&(from, to));
        }
    }

    /// Takes all cuts back.
    pub fn heal_all(&self) {
        self.lock().cuts.clear();
    }

    /// Both directions of a new connection; none where the other machine is down.
    pub fn connect(&self, from: Machine, to: Machine) -> Option<(LaneId, LaneId)> {
        let mut state = self.lock();
        if !state.machines[to].up || !state.machines[from].up {
            return None;
        }
        let (there, back) = (state.lane(from, to), state.lane(to, from));
        state.lanes.get_mut(&there)?.twin = Some(back);
        let lane = state.lanes.get_mut(&back)?;
        (lane.twin, lane.answers) = (Some(there), true);
        Some((there, back))
    }

    /// Whether the connection still holds, as far as anybody knows.
    pub fn is_open(&self, lane: LaneId) -> bool {
        self.lock().lanes.contains_key(&lane)
    }

    /// What is done at the lane's end when it breaks.
    pub fn on_break(&self, lane: LaneId, deed: Deed) {
        let left = match self.lock().lanes.get_mut(&lane) {
            Some(lane) => lane.broken.replace(deed),
            None => Some(deed),
        };
        drop(left);
    }

    /// Puts a message on a connection's lane. Where it is lost, the connection breaks: a stream loses nothing in its middle.
    pub fn stream(&self, lane: LaneId, deed: Deed) {
        let dropped = self.lock().stream(lane, deed);
        drop(dropped);
    }

    /// Breaks a connection: nobody is at its other end any more.
    pub fn hang_up(&self, lane: LaneId) {
        let dropped = self.lock().break_lane(lane);
        drop(dropped);
    }

    /// Sends a message to another node; false where it is known at once that nobody is there. `copy` is what a message that
    /// comes twice does the second time.
    pub fn send(&self, from: Machine, to: Machine, deed: Deed, copy: impl FnOnce() -> Option<Deed>) -> bool {
        let (sent, dropped) = self.lock().send(from, to, deed, copy);
        drop(dropped);
        sent
    }

    /// Drops everything that is under way.
    pub fn clear(&self) {
        let (lanes, stray, limbo) = {
            let state = &mut *self.lock();
            (std::mem::take(&mut state.lanes), std::mem::take(&mut state.stray), std::mem::take(&mut state.limbo))
        };
        drop((lanes, stray, limbo));
    }

    /// Lets time pass, and gives back what has arrived by then, in order.
    pub fn pass(&self, now: i64) -> Vec<(Machine, Deed)> {
        let (arrived, dropped) = self.lock().pass(now);
        drop(dropped);
        arrived
    }
}

impl State {
    fn lane(&mut self, from: Machine, to: Machine) -> LaneId {
        let id = LaneId(self.next);
        self.next += 1;
        let ends = ((from, self.machines[from].boot), (to, self.machines[to].boot));
        let lane = Lane {
            from: ends.0,
            to: ends.1,
            queue: VecDeque::new(),
            last: 0,
            stuck: None,
            answers: false,
            twin: None,
            broken: None,
        };
        self.lanes.insert(id, lane);
        id
    }

    fn chance(&mut self, of_a_million: u32) -> bool {
        of_a_million > 0 && self.random.random_range(0..1_000_000) < of_a_million
    }

    /// When a message that is sent now arrives.
    fn due(&mut self) -> i64 {
        let Weather { least, most, delays, late, .. } = self.weather;
        let mut due = self.now + self.random.random_range(least..=most);
        if late > 0 && self.chance(delays) {
            self.fired.count(Fault::MessageDelayed);
            due += self.random.random_range(0..=late);
        }
        due
    }

    /// Whether that machine, as it was started then, can send.
    fn can_send(&self, (machine, boot): (Machine, u64)) -> bool {
        let end = &self.machines[machine];
        end.up && end.boot == boot && !end.disk.as_ref().is_some_and(MemoryDisk::is_dead)
    }

    fn put(&mut self, id: LaneId, deed: Deed) {
        let due = self.due();
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.last = lane.last.max(due);
            let at = lane.last;
            lane.queue.push_back((at, deed));
        }
    }

    #[must_use]
    fn stream(&mut self, id: LaneId, deed: Deed) -> Vec<Deed> {
        let Some(lane) = self.lanes.get(&id) else { return vec![deed] };
        let (from, answers) = (lane.from, lane.answers);
        if !self.can_send(from) {
            return vec![deed];
        }
        if self.chance(self.weather.loss) {
            self.fired.count(Fault::StreamBroken);
            self.fired.add(Fault::AnswerLost, u64::from(answers));
            let mut dropped = self.break_lane(id);
            dropped.push(deed);
            return dropped;
        }
        self.put(id, deed);
        Vec::new()
    }

    #[must_use]
    fn send(
        &mut self,
        from: Machine,
        to: Machine,
        deed: Deed,
        copy: impl FnOnce() -> Option<Deed>,
    ) -> (bool, Vec<Deed>) {
        let sender = (from, self.machines[from].boot);
        if !self.can_send(sender) {
            return (true, vec![deed]);
        }
        if !self.machines[to].up {
            return (false, vec![deed]);
        }
        if self.chance(self.weather.loss) {
            self.fired.count(Fault::MessageLost);
            self.limbo.push_back((self.now + LIMBO, deed));
            return (true, Vec::new());
        }
        if self.chance(self.weather.twice)
            && let Some(copy) = copy()
        {
            self.fired.count(Fault::MessageTwice);
            let late = self.random.random_range(0..200_000);
            let (due, boot) = (self.due() + late, self.machines[to].boot);
            self.next += 1;
            self.stray.insert((due, self.next), (to, boot, copy));
        }
        let current = self.peers.get(&(from, to)).copied();
        let fits = |lane: &Lane| lane.from == sender && lane.to == (to, self.machines[to].boot);
        let id = match current.filter(|id| self.lanes.get(id).is_some_and(fits)) {
            Some(id) => id,
            None => {
                let id = self.lane(from, to);
                self.peers.insert((from, to), id);
                id
            }
        };
        self.put(id, deed);
        (true, Vec::new())
    }

    /// Takes the lane and its twin away. What was on them is given back to be dropped where no lock is held; what is to be
    /// done at their ends is done soon.
    #[must_use]
    fn break_lane(&mut self, id: LaneId) -> Vec<Deed> {
        let mut dropped = Vec::new();
        let Some(lane) = self.lanes.remove(&id) else { return dropped };
        if lane.answers {
            self.fired.add(Fault::AnswerLost, lane.queue.len() as u64);
        }
        dropped.extend(lane.queue.into_iter().map(|(_, deed)| deed));
        if let Some(deed) = lane.broken {
            let due = self.due();
            self.next += 1;
            self.stray.insert((due, self.next), (lane.to.0, lane.to.1, deed));
        }
        if let Some(twin) = lane.twin {
            dropped.extend(self.break_lane(twin));
        }
        dropped
    }

    fn pass(&mut self, now: i64) -> (Vec<(Machine, Deed)>, Vec<Deed>) {
        self.now = now;
        let (mut arrived, mut dropped) = (Vec::new(), Vec::new());
        while self.limbo.front().is_some_and(|(until, _)| *until <= now) {
            dropped.extend(self.limbo.pop_front().map(|(_, deed)| deed));
        }
        let mut ready: Vec<(i64, u64, Machine, Deed)> = Vec::new();
        let mut broken = BTreeSet::new();
        let (machines, cuts) = (&self.machines, &self.cuts);
        for (id, lane) in &mut self.lanes {
            let ((from, _), (to, boot)) = (lane.from, lane.to);
            let end = &machines[to];
            if !end.up || end.boot != boot {
                broken.insert(*id);
                continue;
            }
            if lane.queue.front().is_none_or(|(due, _)| *due > now) {
                continue;
            }
            if cuts.contains_key(&(from, to)) {
                let since = *lane.stuck.get_or_insert(now);
                if now - since > GIVE_UP {
                    broken.insert(*id);
                }
                continue;
            }
            if end.asleep {
                continue;
            }
            lane.stuck = None;
            while let Some((due, deed)) = lane.queue.pop_front_if(|(due, _)| *due <= now) {
                ready.push((due, id.0, to, deed));
            }
        }
        for id in broken {
            dropped.extend(self.break_lane(id));
        }
        let mut later = Vec::new();
        while let Some(entry) = self.stray.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((due, number), (to, boot, deed)) = entry.remove_entry();
            let end = &self.machines[to];
            match (end.up && end.boot == boot, end.asleep) {
                (false, _) => dropped.push(deed),
                (true, true) => later.push(((now + 10_000, number), (to, boot, deed))),
                (true, false) => ready.push((due, number, to, deed)),
            }
        }
        self.stray.extend(later);
        ready.sort_by_key(|(due, lane, _, _)| (*due, *lane));
        arrived.extend(ready.into_iter().map(|(_, _, to, deed)| (to, deed)));
        (arrived, dropped)
    }
}
