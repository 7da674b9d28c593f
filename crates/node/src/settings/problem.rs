//! What is wrong with the settings: each problem says where it stands, what is wrong, and what is allowed.

use std::fmt;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A line of a file; from 1.
    File {
        /// The file, as it was named.
        name: String,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A flag, with its dashes.
    Flag(String),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Where it stands.
    pub source: Source,
    /// What is wrong, and what is allowed instead.
    pub message: String,
}

/// What is wrong; never empty. Each mistake is there once; if there are very many, the last one says how many more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => write!(f, "settings"),
            Source::File { name, line } => write!(f, "{name}:{line}"),
            Source::Env(name) | Source::Flag(name) => write!(f, "{name}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.message)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// The name among `known` that was probably meant by `name`: close to it as a whole, or to the part behind its dots.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let leaf = |name: &'a str| name.rsplit('.').next().unwrap_or(name);
    let distance = |candidate: &'a str| {
        strsim::damerau_levenshtein(name, candidate).min(strsim::damerau_levenshtein(name, leaf(candidate)))
    };
    let bound = 1 + name.chars().count() / 4;
    known.map(|candidate| (distance(candidate), candidate)).filter(|(far, _)| *far <= bound).min().map(|(_, near)| near)
}
