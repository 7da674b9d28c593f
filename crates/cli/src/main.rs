//! `quorate`: the operator's and the newcomer's tool. All of it is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    quorate_cli::main()
}
