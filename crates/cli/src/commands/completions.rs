//! `quorate completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Code, Outcome};
use crate::output::print;

/// What `completions` takes.
#[derive(Debug, Args)]
#[command(after_help = "For bash: quorate completions bash > ~/.local/share/bash-completion/completions/quorate")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "quorate", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Ok)
}
