//! Policy files as commands read them: from disk or from standard input, whole, and not without end.

use std::io::{self, Read as _};
use std::path::Path;

use quorate_core::policy_file::Problem;
use quorate_core::{Policy, mistakes, policy_file, visible};

use crate::caps::POLICY_FILE_BYTES;

/// Why a policy file gives no policies.
///
/// ```
/// let error = quorate_cli::policies::read("/nowhere/policies.toml".as_ref()).unwrap_err();
/// assert!(error.to_string().starts_with("/nowhere/policies.toml cannot be read: "));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// It cannot be read; see that it is there and readable.
    #[error("{name} cannot be read: {source}")]
    Read {
        /// The file, as it was named.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// No sensible policy file is as large.
    #[error("{name} is larger than a policy file may be ({POLICY_FILE_BYTES} bytes)")]
    TooLarge {
        /// The file, as it was named.
        name: String,
    },
    /// It has mistakes.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Problem>),
}

/// How a file is called: its path, or what `-` stands for.
pub fn name(file: &Path) -> String {
    if file.as_os_str() == "-" { "standard input".into() } else { file.display().to_string() }
}

/// Reads a policy file; `-` is standard input.
///
/// # Errors
/// It cannot be read, or what is wrong with it, by line.
pub fn read(file: &Path) -> Result<Vec<Policy>, PolicyFileError> {
    // In a message, a name is one line of it.
    let name = visible::line(&name(file)).into_owned();
    let bytes = match bytes(file) {
        Ok(bytes) if bytes.len() as u64 > POLICY_FILE_BYTES => return Err(PolicyFileError::TooLarge { name }),
        Ok(bytes) => bytes,
        Err(source) => return Err(PolicyFileError::Read { name, source }),
    };
    let text = mistakes::text(&bytes).map_err(|not| {
        PolicyFileError::Mistakes(vec![Problem { file: name.clone(), line: not.line, message: not.to_string() }])
    })?;
    policy_file::parse(text, &name).map_err(PolicyFileError::Mistakes)
}

fn bytes(file: &Path) -> io::Result<Vec<u8>> {
    let reader: Box<dyn io::Read> =
        if file.as_os_str() == "-" { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(file)?) };
    let mut bytes = Vec::new();
    reader.take(POLICY_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
