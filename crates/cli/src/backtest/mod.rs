//! `quorate backtest`: what policies would have done to a trace of checks.
//!
//! The trace runs through the same core that a shard runs, so the answers are those a cluster would give, to the microsecond.
//! Nothing is asked of any cluster. A line that cannot be run stops the run, by file and line: passing over it would make the
//! figures wrong without anybody seeing it.

mod answer;
mod json;
mod replay;
mod summary;
pub mod trace;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;

use quorate_core::{mistakes, visible};

use replay::{Answered, Granted, Replay};
use summary::Summary;
use trace::{Event, EventKind};

use crate::caps::TRACE_LINE_BYTES;
use crate::policies::{self, PolicyFileError};

/// What to run, and what to show.
///
/// ```
/// use quorate_cli::backtest::{BacktestArgs, Output};
/// let args = BacktestArgs { policies: "policies.toml".into(), trace: "trace.jsonl".into(), output: Output::Table };
/// assert_eq!(args.output, Output::Table);
/// ```
#[derive(Clone, Debug)]
pub struct BacktestArgs {
    /// The policies in force at the start: a policy file.
    pub policies: PathBuf,
    /// The events: JSON lines.
    pub trace: PathBuf,
    /// What is printed.
    pub output: Output,
}

/// What a backtest prints.
///
/// ```
/// assert_ne!(quorate_cli::backtest::Output::Jsonl, quorate_cli::backtest::Output::Table);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Each event's answer, one JSON object a line.
    Jsonl,
    /// A summary by policy, for people.
    Table,
    /// The same summary as one JSON object.
    Json,
}

/// Why a backtest stopped.
///
/// ```
/// use quorate_cli::backtest::BacktestError;
/// let error = BacktestError::Trace { file: "trace.jsonl".into(), line: 3, message: "not JSON".into() };
/// assert_eq!(error.to_string(), "trace.jsonl:3: not JSON");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum BacktestError {
    /// The trace could not be read; see that it is there and readable.
    #[error("{} cannot be read: {source}", visible::line(&file.to_string_lossy()))]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The policy file gives no policies.
    #[error(transparent)]
    Policies(#[from] PolicyFileError),
    /// A line of the trace cannot be run.
    #[error("{}:{line}: {message}", visible::line(&file.to_string_lossy()))]
    Trace {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why, and what is allowed.
        message: String,
    },
    /// The answers could not be written.
    #[error("cannot write the answers: {0}")]
    Write(#[source] io::Error),
}

/// Runs the trace and writes what was asked for.
///
/// # Errors
/// Stops at the first line that cannot be run; what came before it has been written.
///
/// ```
/// use quorate_cli::backtest::{self, BacktestArgs, Output};
/// let folder = std::env::temp_dir().join(format!("quorate-backtest-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let (policies, trace) = (folder.join("policies.toml"), folder.join("trace.jsonl"));
/// std::fs::write(&policies, "[[policy]]\nname = \"p\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1s\"\n")?;
/// std::fs::write(&trace, "{\"at_us\": 0, \"policy\": \"p\", \"key\": \"k\"}\n")?;
/// let mut out = Vec::new();
/// backtest::run(&BacktestArgs { policies, trace, output: Output::Jsonl }, &mut out)?;
/// let answer = r#"{"policy":"p","key":"k","allowed":true,"limit":1,"remaining":0,"reset_after_us":1000000}"#;
/// assert_eq!(String::from_utf8(out)?.trim_end(), answer);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(args: &BacktestArgs, out: &mut impl Write) -> Result<(), BacktestError> {
    let policies = policies::read(&args.policies)?;
    let refused = |message| BacktestError::Trace { file: args.policies.clone(), line: 1, message };
    let replay = Replay::new(policies).map_err(refused)?;
    let mut backtest = Backtest { replay, summary: Summary::default(), granted: HashMap::new() };
    let mut out = BufWriter::new(out);
    let done = backtest.run(args, &mut out);
    out.flush().map_err(BacktestError::Write)?;
    done
}

struct Backtest {
    replay: Replay,
    summary: Summary,
    /// What was charged, by its line; none once it was refunded.
    granted: HashMap<usize, Option<Granted>>,
}

impl Backtest {
    fn run(&mut self, args: &BacktestArgs, out: &mut impl Write) -> Result<(), BacktestError> {
        let file = &args.trace;
        let unreadable = |source| BacktestError::Read { file: file.clone(), source };
        let mut trace = BufReader::new(File::open(file).map_err(unreadable)?);
        let (mut bytes, mut line) = (Vec::new(), 0);
        loop {
            bytes.clear();
            if trace.by_ref().take(TRACE_LINE_BYTES).read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
                break;
            }
            let wrong = |message| BacktestError::Trace { file: file.clone(), line: line + 1, message };
            if bytes.len() as u64 == TRACE_LINE_BYTES && !bytes.ends_with(b"\n") {
                return Err(wrong(format!("the line is longer than {TRACE_LINE_BYTES} bytes")));
            }
            let text = mistakes::text(&bytes).map_err(|not| wrong(not.to_string()))?.trim_end();
            if !text.trim_start().is_empty() {
                let answer = Event::parse(text).and_then(|event| self.step(line, event, args.output)).map_err(wrong)?;
                if args.output == Output::Jsonl {
                    writeln!(out, "{answer}").map_err(BacktestError::Write)?;
                }
            }
            line += 1;
        }
        let written = match args.output {
            Output::Jsonl => Ok(()),
            Output::Table => self.summary.write_table(&self.replay, out),
            Output::Json => self.summary.write_json(&self.replay, out),
        };
        written.map_err(BacktestError::Write)
    }

    /// Runs the event of a line, counted from 0; its answer, if answers are wanted.
    fn step(&mut self, line: usize, event: Event, output: Output) -> Result<String, String> {
        match event.kind {
            EventKind::Check { limits, list, peek, max_delay } => {
                let answered = self.replay.check(event.at, limits, peek, max_delay)?;
                self.answer(line, answered, list, peek, output)
            }
            EventKind::Refund { line: undone } if undone >= line => {
                Err(format!("refund names line {undone}, counted from 0; this is line {line}: name an earlier one"))
            }
            EventKind::Refund { line: undone } => {
                let charge = self.granted.get_mut(&undone).map(Option::take);
                // Of what charged nothing, nothing is left to undo; a charge is undone once.
                let refunded = !matches!(charge, Some(None));
                self.replay.refund(event.at, charge.flatten())?;
                answer::refunded(refunded).map_err(unwritable)
            }
            EventKind::Apply(policy) => {
                let warnings = self.replay.install(event.at, vec![*policy])?;
                answer::applied(warnings.first()).map_err(unwritable)
            }
        }
    }

    fn answer(
        &mut self,
        line: usize,
        mut answered: Answered,
        list: bool,
        peek: bool,
        output: Output,
    ) -> Result<String, String> {
        if let Some(granted) = answered.granted.take() {
            self.granted.insert(line, Some(granted));
        }
        if output == Output::Jsonl {
            return answer::line(&answered, list).map_err(unwritable);
        }
        if !peek {
            self.summary.add(&answered);
        }
        Ok(String::new())
    }
}

fn unwritable(error: serde_json::Error) -> String {
    format!("the answer cannot be written: {error}")
}
