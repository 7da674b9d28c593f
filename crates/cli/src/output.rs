//! What a command says: its data on standard output, as a table for people or as JSON for programs; everything else on
//! standard error. Views are plain data and are rendered by pure functions.

use std::io::{ErrorKind, Write as _};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::exit::Failure;

/// How data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document, on one line; units are in the fields' names.
    Json,
    /// One JSON object a line; of `backtest` only.
    Jsonl,
}

/// Something that a command can say.
pub trait View: Serialize {
    /// For people; ends with a newline unless empty.
    fn table(&self) -> String;
}

/// Writes a view to standard output.
///
/// # Errors
/// The output cannot be written. That its reader has gone is no error.
pub fn show(format: Format, view: &impl View) -> Result<(), Failure> {
    match format {
        Format::Table => print(&view.table()),
        Format::Json => {
            let json = serde_json::to_string(view);
            print(&format!(
                "{}\n",
                json.map_err(|error| Failure::failed(format!("cannot be written as JSON: {error}")))?
            ))
        }
        Format::Jsonl => Err(Failure::usage("--output jsonl is for backtest; here it is table or json")),
    }
}

/// Writes text to standard output.
///
/// # Errors
/// As [`show`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. That nobody reads it is no error.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A table without lines: a header, and rows. Columns whose name is in `right` are aligned to the right.
pub fn columns<const N: usize>(header: [&str; N], right: &[&str], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for (at, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(at) {
            column.set_padding((0, 2));
            if right.contains(name) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let lines: Vec<String> = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    lines.concat()
}
