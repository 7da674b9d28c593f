//! `quorate version`.

use serde::Serialize;

use crate::args::Global;
use crate::exit::{Code, Outcome};
use crate::output::{View, show};

#[derive(Serialize)]
struct VersionView {
    version: &'static str,
}

impl View for VersionView {
    fn table(&self) -> String {
        format!("quorate {}\n", self.version)
    }
}

/// Prints the version.
///
/// # Errors
/// The output cannot be written.
pub fn run(global: &Global) -> Outcome {
    show(global.output, &VersionView { version: env!("CARGO_PKG_VERSION") })?;
    Ok(Code::Ok)
}
