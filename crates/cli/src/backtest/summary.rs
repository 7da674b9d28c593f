//! What a trace comes to, policy by policy.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, Table, presets};
use quorate_core::{Mode, Policy, visible};
use serde::Serialize;

use super::replay::{Answered, Replay};

/// How many of the most denied keys are shown.
const KEYS_SHOWN: usize = 5;

/// Counts by policy.
#[derive(Debug, Default)]
pub(super) struct Summary {
    policies: BTreeMap<String, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    asked: u64,
    granted: u64,
    denied: u64,
    denied_elsewhere: u64,
    denied_keys: HashMap<String, u64>,
}

/// A check counts as denied where this policy would have denied it by itself (in shadow mode too), and as denied elsewhere where
/// only another limit of the same check did.
#[derive(Default, Serialize)]
struct Row<'a> {
    policy: &'a str,
    mode: &'static str,
    asked: u64,
    granted: u64,
    denied: u64,
    denied_elsewhere: u64,
    keys_denied: usize,
    most_denied: Vec<Denied<'a>>,
}

#[derive(Serialize)]
struct Denied<'a> {
    key: &'a str,
    denied: u64,
}

impl Summary {
    /// Counts a check; peeks are not for the caller to add.
    pub(super) fn add(&mut self, answered: &Answered) {
        for answer in &answered.decision.limits {
            let limit = &answered.limits[usize::from(answer.ordinal)];
            if !self.policies.contains_key(&limit.policy) {
                self.policies.insert(limit.policy.clone(), Counts::default());
            }
            let Some(counts) = self.policies.get_mut(&limit.policy) else { continue };
            counts.asked += 1;
            if !answer.allowed {
                counts.denied += 1;
                *counts.denied_keys.entry(limit.key.clone()).or_default() += 1;
            } else if answered.decision.allowed {
                counts.granted += 1;
            } else {
                counts.denied_elsewhere += 1;
            }
        }
    }

    fn rows<'a>(&'a self, replay: &'a Replay) -> Vec<Row<'a>> {
        replay.policies().iter().map(|policy| self.row(policy)).collect()
    }

    fn row<'a>(&'a self, policy: &'a Policy) -> Row<'a> {
        let mode = match policy.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Disabled => "disabled",
        };
        let mut row = Row { policy: &policy.name, mode, ..Row::default() };
        if let Some(counts) = self.policies.get(&policy.name) {
            row.asked = counts.asked;
            row.granted = counts.granted;
            row.denied = counts.denied;
            row.denied_elsewhere = counts.denied_elsewhere;
            row.keys_denied = counts.denied_keys.len();
            row.most_denied = counts.denied_keys.iter().map(|(key, denied)| Denied { key, denied: *denied }).collect();
            row.most_denied.sort_by(|a, b| b.denied.cmp(&a.denied).then(a.key.cmp(b.key)));
            row.most_denied.truncate(KEYS_SHOWN);
        }
        row
    }

    /// Writes one JSON object: `{"policies": [...]}`.
    pub(super) fn write_json(&self, replay: &Replay, out: &mut impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Policies<'a> {
            policies: Vec<Row<'a>>,
        }
        serde_json::to_writer(&mut *out, &Policies { policies: self.rows(replay) })?;
        writeln!(out)
    }

    /// Writes a table for people.
    pub(super) fn write_table(&self, replay: &Replay, out: &mut impl Write) -> io::Result<()> {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "policy",
            "mode",
            "asked",
            "granted",
            "denied",
            "denied elsewhere",
            "keys denied",
            "most denied",
        ]);
        for row in self.rows(replay) {
            let most: Vec<String> =
                row.most_denied.iter().map(|key| format!("\"{}\" {}", visible::line(key.key), key.denied)).collect();
            let count = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
            table.add_row([
                Cell::new(row.policy),
                Cell::new(row.mode),
                count(row.asked),
                count(row.granted),
                count(row.denied),
                count(row.denied_elsewhere),
                count(row.keys_denied as u64),
                Cell::new(most.join("\n")),
            ]);
        }
        writeln!(out, "{table}")
    }
}
