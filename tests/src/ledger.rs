//! What was answered, held against what the nodes' logs say.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::command;

/// A place in a shard's log: shard, term, index, and the command's ordinal in the entry.
pub type Place = (u32, u64, u64, u32);

/// Charges that were answered: where, and to which key.
#[derive(Debug, Default)]
pub struct Ledger {
    charges: BTreeMap<Place, String>,
}

impl Ledger {
    /// Writes an answered charge down.
    ///
    /// # Panics
    /// When another was answered with the same place: one charge was granted twice.
    pub fn add(&mut self, place: Place, key: String) {
        let twice = self.charges.insert(place, key);
        assert!(twice.is_none(), "two granted checks bear one receipt: {place:?}");
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.charges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Looks every answered charge up in the log of a stopped node, as `quorated log dump` reads it: it is there, in the entry and
    /// at the ordinal that its receipt names, and goes to the fingerprint that all charges of its key go to.
    ///
    /// # Panics
    /// When one is not.
    pub fn is_in_log_of(&self, data_directory: &Path) {
        let mut left = self.charges.clone();
        let mut prints: HashMap<String, String> = HashMap::new();
        let mut dump = command("quorated")
            .args(["log", "dump", "--output", "jsonl", "--data-dir"])
            .arg(data_directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("quorated can be started");
        let lines = BufReader::new(dump.stdout.take().expect("its output is piped")).lines();
        for line in lines {
            let line: serde_json::Value =
                serde_json::from_str(&line.expect("its output can be read")).expect("a line is a JSON object");
            let number = |name: &str| line[name].as_u64().unwrap_or_default();
            let (group, term, index) = (number("group") as u32, number("term"), number("index"));
            let groups = line["entry"]["groups"].as_array().into_iter().flatten();
            let commands = groups.flat_map(|group| group["commands"].as_array().into_iter().flatten());
            for (ordinal, command) in commands.enumerate() {
                let Some(key) = left.remove(&(group, term, index, ordinal as u32)) else { continue };
                let text = command["command"].as_str().expect("a command is told as text");
                let print = text.split("key: ").nth(1).and_then(|rest| rest.split('}').next());
                let print = print.unwrap_or_else(|| panic!("a charge of {key} is answered by another command: {text}"));
                let known = prints.entry(key.clone()).or_insert_with(|| print.to_owned());
                assert_eq!(known, print, "charges of {key} went to two keys");
            }
        }
        assert!(dump.wait().expect("it ends").success(), "the log of {} can be read", data_directory.display());
        let first = left.iter().next();
        assert!(
            left.is_empty(),
            "{} answered charges are in no entry of {}: {first:?}",
            left.len(),
            data_directory.display()
        );
        let distinct: std::collections::HashSet<&String> = prints.values().collect();
        assert_eq!(distinct.len(), prints.len(), "two keys have one fingerprint");
    }
}
