//! What strikes when: a plan drawn from the seed, with its own weight for each kind of fault.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::net::{Machine, Weather};
use crate::world::NODES;

/// Something that is done to the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A machine is started.
    Start(Machine),
    /// Machines die, with their power or without, for about that long.
    Kill(Vec<Machine>, i64, bool),
    /// A machine does nothing for that long.
    Pause(Machine, i64),
    /// It goes on.
    Wake(Machine),
    /// Nothing gets from the one to the other, for that long.
    Cut(Vec<(Machine, Machine)>, i64),
    /// It does again.
    Heal(Vec<(Machine, Machine)>),
    /// A wall clock is wrong by that much, for that long.
    Step(Machine, i64, i64),
    /// It is right again.
    Right(Machine),
    /// The network is like that for that long.
    Weather(Weather, i64),
    /// A disk takes up to so long for each job, for that long.
    Disk(Machine, Duration, i64),
    /// An operator changes a policy.
    ChangePolicy,
    /// A machine is cut off from another, and a moment later from the third, which dies and comes back at once.
    Usurp(Machine),
}

/// What a world is in for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How long faults strike, in microseconds.
    pub lasts: i64,
    /// Whether there are many keys.
    pub large: bool,
    /// Whether new leaders are struck at once.
    pub ambush: bool,
    /// Whether little is asked but what is denied, so that a leader that is cut off has nothing on its way that would keep it from
    /// denying; and leaders are cut off more than anything else.
    pub calm: bool,
    /// The longest pause between two faults, in microseconds.
    rest: i64,
    /// The weight of each kind of fault.
    weights: [u32; KINDS],
    /// Whether clients come and go.
    restless: bool,
}

const KINDS: usize = 10;

impl Plan {
    /// Draws one.
    pub fn draw(random: &mut SmallRng) -> Plan {
        let mut weights = [0; KINDS];
        weights.iter_mut().for_each(|weight| *weight = [0, 1, 1, 3, 6][random.random_range(0..5)]);
        if weights.iter().all(|weight| *weight == 0) {
            weights = [1; KINDS];
        }
        let calm = random.random_range(0..5) == 0;
        if calm {
            weights = [0, 0, 0, 0, 2, 0, 0, 0, 3, 0];
        }
        Plan {
            calm,
            lasts: random.random_range(15_000_000..30_000_000),
            large: random.random_range(0..10) == 0,
            ambush: random.random_range(0..4) == 0,
            rest: random.random_range(600_000..3_000_000),
            weights,
            restless: random.random_range(0..2) == 0,
        }
    }

    /// How long it is calm.
    pub fn pause(&self, random: &mut SmallRng) -> i64 {
        random.random_range(50_000..self.rest)
    }

    /// How long the clients at one place live, one after the other.
    pub fn lives(&self, random: &mut SmallRng) -> Vec<Duration> {
        let mut lives = Vec::new();
        if self.restless {
            lives.extend((0..3).map(|_| Duration::from_millis(random.random_range(500..9_000))));
        }
        lives.push(Duration::from_secs(600));
        lives
    }

    /// The next fault.
    pub fn strike(&self, random: &mut SmallRng) -> Action {
        let mut draw = random.random_range(0..self.weights.iter().sum::<u32>());
        let kind = self.weights.iter().position(|weight| {
            let here = draw < *weight;
            draw = draw.saturating_sub(*weight);
            here
        });
        let here = random.random_range(0..NODES);
        let short = random.random_range(20_000..1_500_000);
        let long = random.random_range(500_000..6_000_000);
        match kind.unwrap_or(0) {
            0 => Action::Kill(set(random), short, false),
            1 => Action::Kill(set(random), short, true),
            2 => Action::Pause(here, if random.random_range(0..3) == 0 { long } else { short }),
            3 => Action::Cut(one_way(random), short.max(long / 2)),
            4 => Action::Cut(two_way(random), short.max(long / 2)),
            5 => {
                let hour = 3_600_000_000;
                Action::Step(here, if random.random_range(0..2) == 0 { hour } else { -hour }, long * 2)
            }
            6 => {
                let up_to = |most: u32, random: &mut SmallRng| random.random_range(0..most);
                let weather = Weather {
                    loss: up_to(60_000, random),
                    twice: up_to(60_000, random),
                    delays: up_to(200_000, random),
                    late: random.random_range(1_000..700_000),
                    ..Weather::FAIR
                };
                Action::Weather(weather, long)
            }
            7 => Action::Disk(here, Duration::from_millis(random.random_range(10..300)), long),
            8 => Action::Usurp(here),
            _ => Action::ChangePolicy,
        }
    }
}

/// What a new leader is struck with: it is cut off, and others lose their power, for a moment only.
pub fn ambush(leader: Machine, random: &mut SmallRng) -> Vec<Action> {
    let others: Vec<Machine> = (1..NODES).map(|step| (leader + step) % NODES).collect();
    let pairs = others.iter().flat_map(|other| [(leader, *other), (*other, leader)]).collect();
    let struck = others[random.random_range(0..others.len())..].to_vec();
    vec![
        Action::Cut(pairs, random.random_range(1_000_000..4_000_000)),
        Action::Kill(struck, random.random_range(20_000..300_000), true),
    ]
}

/// What happens to a leader that may believe for a while that it is the only one, although another can be elected: what happens
/// at once, and what after some microseconds.
pub fn usurp(leader: Machine, random: &mut SmallRng) -> (Action, i64, [Action; 2]) {
    let step = random.random_range(1..NODES);
    let (rival, voter) = ((leader + step) % NODES, (leader + NODES - step) % NODES);
    let span = random.random_range(1_500_000..3_000_000);
    let cut = |other| Action::Cut(vec![(leader, other), (other, leader)], span);
    let kill = Action::Kill(vec![voter], random.random_range(16_000..40_000), false);
    (cut(rival), random.random_range(300_000..900_000), [cut(voter), kill])
}

/// Mostly one machine, sometimes more.
fn set(random: &mut SmallRng) -> Vec<Machine> {
    let first = random.random_range(0..NODES);
    let count = [1, 1, 1, 2, NODES][random.random_range(0..5)];
    (0..count).map(|i| (first + i) % NODES).collect()
}

/// One direction between two nodes, or from one node to all others.
fn one_way(random: &mut SmallRng) -> Vec<(Machine, Machine)> {
    let (from, step) = (random.random_range(0..NODES), random.random_range(1..NODES));
    let inward = random.random_range(0..2) == 0;
    let pair = |other: Machine| if inward { (other, from) } else { (from, other) };
    match random.random_range(0..3) {
        0 => (0..NODES).filter(|other| *other != from).map(pair).collect(),
        _ => vec![pair((from + step) % NODES)],
    }
}

/// Both directions: two nodes, a node and all others, or a node and all clients.
fn two_way(random: &mut SmallRng) -> Vec<(Machine, Machine)> {
    let (one, step) = (random.random_range(0..NODES), random.random_range(1..NODES));
    let others: Vec<Machine> = match random.random_range(0..3) {
        0 => vec![(one + step) % NODES],
        1 => (0..NODES).filter(|other| *other != one).collect(),
        _ => vec![NODES],
    };
    others.into_iter().flat_map(|other| [(one, other), (other, one)]).collect()
}
