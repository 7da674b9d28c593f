//! `quorated log dump`: what a stopped node's log holds, for people or as a JSON object a line. Changes nothing.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches as _, ValueEnum};
use quorate_core::{Batch, Command, GroupId};
use quorate_node::disk::RealDisk;
use quorate_node::log::dump::{Dumped, LogDump, decode};
use quorate_node::log::{Entry, EntryId, Marks};
use serde_json::{Value, json};

use crate::Failure;

/// Entries that are read at once.
const AT_ONCE: usize = 256;

/// What `quorated log dump` takes.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The stopped node's data directory
    #[arg(long, value_name = "DIR", env = "QUORATE_DATA_DIR", hide_env_values = true)]
    data_dir: PathBuf,
    /// Only this group: 0 is the control group, any other number the shard of that number
    #[arg(long, value_name = "NUMBER")]
    group: Option<u32>,
    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line an entry, for people
    #[default]
    Text,
    /// A JSON object an entry
    Jsonl,
}

/// Prints the log.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = DumpArgs::from_arg_matches(matches).map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let mut out = BufWriter::new(io::stdout().lock());
    match runtime.block_on(dump(&args, &mut out)) {
        Err(Stopped::Unread) | Ok(()) => Ok(()),
        Err(Stopped::Failed(problem)) => Err(Failure::failed(format!("log dump: {problem}"))),
    }
}

/// Why it ended early.
enum Stopped {
    /// Nobody reads the output any more.
    Unread,
    Failed(String),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Stopped::Unread,
            _ => Stopped::Failed(format!("standard output cannot be written: {error}")),
        }
    }
}

async fn dump(args: &DumpArgs, out: &mut impl Write) -> Result<(), Stopped> {
    let failed = |problem: &dyn std::fmt::Display| Stopped::Failed(problem.to_string());
    let disk = RealDisk::open_read_only(&args.data_dir).await.map_err(|error| failed(&error))?;
    let log = LogDump::open(disk).await.map_err(|error| failed(&error))?;
    let log = log.ok_or_else(|| Stopped::Failed(format!("{} holds no log", args.data_dir.display())))?;
    let mut groups = log.groups();
    groups.retain(|(group, _)| args.group.is_none_or(|wanted| wanted == group.0));
    if let (true, Some(wanted)) = (groups.is_empty(), args.group) {
        return Err(Stopped::Failed(format!("the log holds nothing of group {wanted}")));
    }
    if args.output == Format::Text {
        writeln!(out, "{}", log.identity())?;
        if log.torn_bytes() > 0 {
            writeln!(out, "{} bytes at its end are of an interrupted write", log.torn_bytes())?;
        }
    }
    for (group, marks) in groups {
        writeln!(out, "{}", group_line(args.output, group, &marks))?;
        let mut next = marks.first.0;
        loop {
            let entries = log.entries(group, next, AT_ONCE).await.map_err(|error| failed(&error))?;
            let Some(last) = entries.last() else { break };
            next = last.id.index.0 + 1;
            for entry in entries {
                writeln!(out, "{}", entry_line(args.output, group, entry))?;
            }
        }
    }
    Ok(out.flush()?)
}

fn group_line(format: Format, group: GroupId, marks: &Marks) -> String {
    let id = |id: Option<EntryId>| id.map(|id| json!({ "term": id.term.0, "index": id.index.0 }));
    match format {
        Format::Jsonl => {
            let vote =
                marks.vote.map(|vote| json!({ "term": vote.term.0, "node": vote.node.0, "committed": vote.committed }));
            let (committed, purged, last) = (id(marks.committed), id(marks.purged), id(marks.last));
            json!({ "group": group.0, "vote": vote, "committed": committed, "purged": purged, "last": last })
                .to_string()
        }
        Format::Text => {
            let name = group.shard().map_or("control group".into(), |shard| format!("shard {}", shard.0));
            let id = |id: Option<EntryId>| id.map_or("none".into(), |id| id.to_string());
            let vote = marks.vote.map_or("no vote".into(), |vote| {
                format!(
                    "vote for {} in term {}{}",
                    vote.node,
                    vote.term.0,
                    if vote.committed { ", who leads" } else { "" }
                )
            });
            format!(
                "{name}: {vote}; committed {}, purged {}, last {}",
                id(marks.committed),
                id(marks.purged),
                id(marks.last)
            )
        }
    }
}

fn entry_line(format: Format, group: GroupId, entry: Entry) -> String {
    let (id, bytes) = (entry.id, entry.payload.len());
    let decoded = decode(group, entry);
    match format {
        Format::Text => format!("  {id}  {}", summary(decoded.as_ref(), bytes)),
        Format::Jsonl => {
            let mut line = json!({ "group": group.0, "term": id.term.0, "index": id.index.0, "payload_bytes": bytes });
            line["entry"] = detail(decoded.as_ref());
            line.to_string()
        }
    }
}

fn summary(decoded: Result<&Dumped, &String>, bytes: usize) -> String {
    match decoded {
        Ok(Dumped::Blank) => "blank".into(),
        Ok(Dumped::Membership(membership)) => format!("membership {membership}"),
        Ok(Dumped::Control(_)) => format!("control command, {bytes} bytes"),
        Ok(Dumped::Batch(batch)) => {
            let kinds: Vec<String> = kinds(batch).iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            format!("batch at {}: {}, {bytes} bytes", batch.stamp.0, kinds.join(", "))
        }
        Err(problem) => format!("cannot be read: {problem}"),
    }
}

fn detail(decoded: Result<&Dumped, &String>) -> Value {
    match decoded {
        Ok(Dumped::Blank) => json!({ "kind": "blank" }),
        Ok(Dumped::Membership(membership)) => {
            let voters: Vec<u64> = membership.voter_ids().map(|node| node.0).collect();
            let learners: Vec<u64> = membership.learner_ids().map(|node| node.0).collect();
            json!({ "kind": "membership", "voters": voters, "learners": learners })
        }
        Ok(Dumped::Control(command)) => json!({ "kind": "control", "hex": hex(command) }),
        Ok(Dumped::Batch(batch)) => {
            let groups: Vec<Value> = batch.groups.iter().map(|group| {
                let frame = group.frame.map(|frame| json!({
                    "session": frame.session.0, "sequence": frame.sequence.0, "lowest_unanswered": frame.lowest_unanswered.0
                }));
                let commands: Vec<Value> = group.commands.iter().map(|(place, command)| {
                    json!({ "place": place, "kind": kind(command), "command": format!("{command:?}") })
                }).collect();
                json!({ "frame": frame, "commands": commands })
            }).collect();
            json!({ "kind": "batch", "stamp_us": batch.stamp.0, "groups": groups })
        }
        Err(problem) => json!({ "kind": "unreadable", "problem": problem }),
    }
}

/// How many commands of each kind a batch has.
fn kinds(batch: &Batch) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for (_, command) in batch.groups.iter().flat_map(|group| &group.commands) {
        *kinds.entry(kind(command)).or_default() += 1;
    }
    kinds
}

fn kind(command: &Command) -> &'static str {
    match command {
        Command::Tick => "tick",
        Command::Check(check) if check.peek => "peek",
        Command::Check(_) => "check",
        Command::Refund { .. } => "refund",
        Command::Reserve { .. } => "reserve",
        Command::Settle { .. } => "settle",
        Command::Reset { .. } => "reset",
        Command::Install(_) => "install",
        Command::OpenSession => "open_session",
        Command::CloseSession(_) => "close_session",
        Command::Bounds(_) => "bounds",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quorate_core::{Check, Group, Index, Stamp, Term};
    use quorate_node::log::EntryKind;

    use super::*;

    fn entry(kind: EntryKind, payload: Bytes) -> Entry {
        Entry { id: EntryId { term: Term(2), index: Index(9) }, kind, payload }
    }

    #[test]
    fn an_entry_is_a_line() {
        let commands =
            vec![(0, Command::Check(Check::default())), (1, Command::Tick), (2, Command::Check(Check::default()))];
        let batch = Batch { stamp: Stamp(5), groups: vec![Group { frame: None, commands }] };
        let mut bytes = Vec::new();
        batch.encode(&mut bytes);
        let length = bytes.len();
        let payload = Bytes::from(bytes);
        let line = entry_line(Format::Text, GroupId(1), entry(EntryKind::Proposal, payload.clone()));
        assert_eq!(line, format!("  2.9  batch at 5: 2 check, 1 tick, {length} bytes"));
        let line = entry_line(Format::Jsonl, GroupId(1), entry(EntryKind::Proposal, payload));
        assert!(line.contains(r#""index":9"#) && line.contains(r#""kind":"tick""#), "{line}");
        assert_eq!(entry_line(Format::Text, GroupId(1), entry(EntryKind::Blank, Bytes::new())), "  2.9  blank");
        let line = entry_line(Format::Text, GroupId(1), entry(EntryKind::Proposal, Bytes::from_static(b"\xff\xff")));
        assert!(line.starts_with("  2.9  cannot be read: "), "{line}");
    }

    #[test]
    fn a_group_is_a_line() {
        let line = group_line(Format::Text, GroupId(0), &Marks::default());
        assert_eq!(line, "control group: no vote; committed none, purged none, last none");
        assert!(group_line(Format::Jsonl, GroupId(3), &Marks::default()).starts_with(r#"{"committed":null,"group":3"#));
    }
}
