//! What a command says: its data on standard output, as a table for people or as JSON for programs; everything else on
//! standard error. Views are plain data and are rendered by pure functions.
//!
//! Whatever goes to people is made harmless here ([`visible`]): names, keys and messages come from files and from the cluster,
//! and a terminal obeys what it is shown.

use std::io::{ErrorKind, Write as _};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use quorate_core::visible;
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
        Format::Table => print(&visible::lines(&view.table())),
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

/// Writes text to standard output as it is.
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
    let _ = writeln!(std::io::stderr().lock(), "{}", visible::line(line));
}

/// A table without lines: a header, and rows. Columns whose name is in `right` are aligned to the right.
pub fn columns<const N: usize>(header: [&str; N], right: &[&str], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for row in rows {
        // A cell is one line: what breaks one could pass for another row.
        table.add_row(row.map(|cell| visible::line(&cell).into_owned()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_break_out_of_its_row() {
        let rows = vec![["a\nroot  allowed".into(), "\u{1b}[31mred".into()], ["b".into(), "\u{202e}x".into()]];
        assert_eq!(
            columns(["KEY", "WHAT"], &[], rows),
            "KEY               WHAT\na\\nroot  allowed  \\u001b[31mred\nb                 \\u202ex\n"
        );
    }
}
