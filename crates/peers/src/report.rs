//! Medians, ratios, and how they are printed.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::cases::{
    CHECK_1, CHECK_1_TMPFS, CHECK_64, CHECK_256, CHECK_1024, CHECK_MANY, Case, DENIALS, ECHO_1, REDIS, REDIS_FSYNC,
    REDIS_FSYNC_PIPELINED, REDIS_PIPELINED, REDIS_REPLICAS, REDIS_REPLICAS_1, REDIS_REPLICAS_PIPELINED, THROTTLECRAB,
    THROTTLECRAB_PIPELINED,
};
use crate::machine;
use crate::measure::Measured;

/// In the order in which they are told.
const ORDER: [Case; 17] = [
    CHECK_1024,
    CHECK_256,
    CHECK_64,
    CHECK_MANY,
    DENIALS,
    CHECK_1,
    CHECK_1_TMPFS,
    REDIS,
    REDIS_PIPELINED,
    REDIS_FSYNC,
    REDIS_FSYNC_PIPELINED,
    REDIS_REPLICAS,
    REDIS_REPLICAS_PIPELINED,
    REDIS_REPLICAS_1,
    THROTTLECRAB,
    THROTTLECRAB_PIPELINED,
    ECHO_1,
];

/// A figure of one case beside that of another.
struct Ratio {
    what: &'static str,
    of: Case,
    to: Case,
    figure: fn(&Measured) -> f64,
}

const RATIOS: [Ratio; 7] = [
    Ratio {
        what: "CPU a decision, check() at 1,024 callers / redis lua pipelined by 16",
        of: CHECK_1024,
        to: REDIS_PIPELINED,
        figure: Measured::all_us,
    },
    Ratio {
        what: "CPU a decision, check() at 1,024 callers / redis lua, fsync, WAIT 1, pipelined by 16",
        of: CHECK_1024,
        to: REDIS_REPLICAS_PIPELINED,
        figure: Measured::all_us,
    },
    Ratio {
        what: "decisions/s, check() at 1,024 callers / redis lua at 50",
        of: CHECK_1024,
        to: REDIS,
        figure: |measured| measured.per_second,
    },
    Ratio {
        what: "decisions/s, check_many() of 128 / redis lua at 50",
        of: CHECK_MANY,
        to: REDIS,
        figure: |measured| measured.per_second,
    },
    Ratio {
        what: "CPU a decision, check_many() of 128 / throttlecrab RESP at 50",
        of: CHECK_MANY,
        to: THROTTLECRAB,
        figure: Measured::all_us,
    },
    Ratio {
        what: "p50 of one caller, check() on tmpfs / bare tonic unary echo",
        of: CHECK_1_TMPFS,
        to: ECHO_1,
        figure: |measured| measured.p50_us,
    },
    Ratio {
        what: "p50 of one caller on disk, check() / redis lua, fsync, WAIT 1",
        of: CHECK_1,
        to: REDIS_REPLICAS_1,
        figure: |measured| measured.p50_us,
    },
];

/// Every run so far.
pub(crate) struct Report {
    rounds: u32,
    keys: u64,
    seconds: u64,
    runs: BTreeMap<Case, Vec<Measured>>,
    left_out: BTreeMap<&'static str, String>,
}

/// The medians of a case's turns, each figure for itself.
pub(crate) struct Median {
    pub(crate) case: Case,
    pub(crate) of: Measured,
}

impl Report {
    pub(crate) fn new(rounds: u32, keys: u64, seconds: u64) -> Report {
        Report { rounds, keys, seconds, runs: BTreeMap::new(), left_out: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, case: Case, measured: Measured) {
        self.runs.entry(case).or_default().push(measured);
    }

    pub(crate) fn leave_out(&mut self, stand: &'static str, why: String) {
        self.left_out.insert(stand, why);
    }

    pub(crate) fn is_left_out(&self, stand: &str) -> bool {
        self.left_out.contains_key(stand)
    }

    pub(crate) fn medians(&self) -> Vec<Median> {
        let measured = |case: &Case| self.runs.get(case).map(|runs| Median { case: *case, of: medians(runs) });
        ORDER.iter().filter_map(measured).collect()
    }

    /// A ratio is taken in each turn, and then the median of the turns.
    fn ratio(&self, ratio: &Ratio) -> Option<f64> {
        let (of, to) = (self.runs.get(&ratio.of)?, self.runs.get(&ratio.to)?);
        Some(median(of.iter().zip(to).map(|(of, to)| (ratio.figure)(of) / (ratio.figure)(to)).collect()))
    }

    pub(crate) fn json(&self) -> Value {
        let case = |case: &Case, runs: &Vec<Measured>| json!({ "name": case.name, "callers": case.callers, "batch": case.batch, "median": medians(runs), "runs": runs });
        let ratios: Vec<Value> = RATIOS
            .iter()
            .filter_map(|ratio| Some(json!({ "what": ratio.what, "median": self.ratio(ratio)? })))
            .collect();
        json!({
            "machine": machine::describe(),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "keys": self.keys,
            "left_out": self.left_out,
            "cases": ORDER.iter().filter_map(|of| Some(case(of, self.runs.get(of)?))).collect::<Vec<_>>(),
            "ratios": ratios,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", machine::describe())?;
        if let Some(contention) = machine::contention() {
            writeln!(f, "in the last minute somebody waited for a core {contention:.0} % of the time")?;
        }
        let turns = self.runs.values().map(Vec::len).min().unwrap_or(0);
        writeln!(f, "medians of {turns} turns of {} s, {} keys\n", self.seconds, self.keys)?;
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header([
            "asked by",
            "callers",
            "decisions/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "client µs",
            "servers µs",
            "all µs",
        ]);
        for Median { case, of } in self.medians() {
            let ms = |us: f64| format!("{:.2}", us / 1e3);
            table.add_row([
                case.name.to_owned(),
                case.callers.to_string(),
                format!("{:.0}", of.per_second),
                ms(of.p50_us),
                ms(of.p99_us),
                ms(of.p99_9_us),
                format!("{:.2}", of.client_us),
                format!("{:.2}", of.servers_us),
                format!("{:.2}", of.all_us()),
            ]);
        }
        table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        writeln!(f, "{table}\n")?;
        for ratio in &RATIOS {
            if let Some(median) = self.ratio(ratio) {
                writeln!(f, "{median:>8.3}  {}", ratio.what)?;
            }
        }
        for (stand, why) in &self.left_out {
            writeln!(f, "{stand} was left out: {why}")?;
        }
        Ok(())
    }
}

fn medians(runs: &[Measured]) -> Measured {
    let of = |figure: fn(&Measured) -> f64| median(runs.iter().map(figure).collect());
    Measured {
        decisions: of(|run| run.decisions as f64) as u64,
        granted: of(|run| run.granted as f64) as u64,
        per_second: of(|run| run.per_second),
        p50_us: of(|run| run.p50_us),
        p99_us: of(|run| run.p99_us),
        p99_9_us: of(|run| run.p99_9_us),
        client_us: of(|run| run.client_us),
        servers_us: of(|run| run.servers_us),
    }
}

/// The one in the middle, or the mean of the two that are.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}
