//! Policy files: TOML to policies and back.
//!
//! A file is a list of `[[policy]]`. Everything wrong with it is told at once, by file and line, with what is allowed and what
//! was probably meant; nothing is ever skipped or guessed.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::caps;
use crate::mistakes::{Lines, Mistakes};
use crate::policy::{Algorithm, Mode, OnFull, OnUnavailable, Policy};
use crate::policy_fields::{self, Field, FieldValue};
use crate::visible;

/// One mistake in a policy file.
///
/// ```
/// let problems = quorate_core::policy_file::parse("[[policy]]\nname = \"p\"\n", "policies.toml").unwrap_err();
/// assert_eq!(problems[0].line, 1);
/// assert!(problems[0].to_string().starts_with("policies.toml:1: policy \"p\": the policy has no algorithm"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what is allowed.
    pub message: String,
}

/// Reads a policy file; its mistakes in order of their lines, if there are any: each once, and at most
/// [`caps::MISTAKES_TOLD`] of them, the last one then saying how many more there are. `file_name` is only quoted.
///
/// ```
/// let text = "[[policy]]\nname = \"per-user\"\nalgorithm = \"token_bucket\"\ncapacity = 200\nrefill = \"100/m\"\n";
/// let policies = quorate_core::policy_file::parse(text, "policies.toml").unwrap();
/// assert_eq!(policies[0].name, "per-user");
/// ```
pub fn parse(text: &str, file_name: &str) -> Result<Vec<Policy>, Vec<Problem>> {
    let (table, syntax) = DeTable::parse_recoverable(text);
    let mut file = File { file_name, lines: Lines::of(text), torn: HashSet::new(), problems: Mistakes::default() };
    let mut torn = HashSet::new();
    for error in &syntax {
        let at = error.span().map_or(0, |span| span.start);
        file.add(at, format!("not TOML: {}", error.message().lines().next().unwrap_or_default()));
        torn.insert(file.lines.at(at));
    }
    file.torn = torn;
    let policies = file.policies(table.get_ref());
    if file.problems.is_empty() {
        return Ok(policies);
    }
    let more = |first: Problem, more| Problem { message: format!("and {more} more mistakes"), ..first };
    let mut problems = file.problems.told(more);
    let told = problems.len().min(caps::MISTAKES_TOLD);
    problems[..told].sort_by_key(|problem| problem.line);
    Err(problems)
}

struct File<'a> {
    file_name: &'a str,
    lines: Lines,
    /// The lines that are not TOML: nothing else is said of them, as what was read of them is a guess.
    torn: HashSet<usize>,
    problems: Mistakes<Problem>,
}

impl File<'_> {
    fn add(&mut self, at: usize, message: String) {
        let line = self.lines.at(at);
        if !self.torn.contains(&line) {
            self.problems.add(Problem { file: self.file_name.to_owned(), line, message });
        }
    }

    fn policies(&mut self, table: &DeTable<'_>) -> Vec<Policy> {
        let mut policies = Vec::new();
        for (key, value) in table {
            match value.get_ref() {
                DeValue::Array(array) if key.get_ref() == "policy" => {
                    if array.len() > caps::POLICIES {
                        let (is, most) = (array.len(), caps::POLICIES);
                        self.add(key.span().start, format!("the file has {is} policies; allowed are {most}"));
                        continue;
                    }
                    policies.extend(array.iter().filter_map(|policy| self.policy(policy)));
                    self.refuse_twins(array);
                }
                _ if key.get_ref() == "policy" => {
                    self.add(
                        key.span().start,
                        "write [[policy]], in double brackets: each policy is one of a list".into(),
                    );
                }
                _ => {
                    let shown: String = key.get_ref().chars().take(64).collect();
                    let hint = match value.get_ref() {
                        DeValue::Array(_) | DeValue::Table(_) => "did you mean [[policy]]?",
                        _ => "a policy's fields stand below its [[policy]]",
                    };
                    self.add(key.span().start, format!("there is no {shown:?} at the top of a policy file; {hint}"));
                }
            }
        }
        policies
    }

    fn policy(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Policy> {
        let DeValue::Table(table) = value.get_ref() else {
            self.add(value.span().start, "write [[policy]] with the policy's fields below it".into());
            return None;
        };
        let places: Vec<usize> = table.iter().map(|(key, _)| key.span().start).collect();
        let loose: Vec<Field<'_>> = table.iter().map(|(key, value)| field(key.get_ref(), value.get_ref())).collect();
        let mistakes = match policy_fields::read(&loose, caps::UNITS) {
            Ok(policy) => return Some(policy),
            Err(mistakes) => mistakes,
        };
        let name = loose.iter().find_map(|field| match (field.name, field.value) {
            ("name", FieldValue::Text(name)) => Some(name.chars().take(caps::POLICY_NAME_BYTES).collect::<String>()),
            _ => None,
        });
        // What is missing from a file that is not TOML may well be there, on the line that could not be read.
        let torn = !self.torn.is_empty();
        for mistake in mistakes.into_iter().filter(|mistake| !(torn && mistake.missing)) {
            let at = mistake.field.map_or(value.span().start, |i| places[i]);
            let of = name.as_ref().map(|name| format!("policy {name:?}: ")).unwrap_or_default();
            self.add(at, format!("{of}{}", mistake.message));
        }
        None
    }

    fn refuse_twins(&mut self, array: &DeArray<'_>) {
        let mut first: HashMap<&str, usize> = HashMap::new();
        for policy in array {
            let Some(value) = policy.get_ref().get("name") else { continue };
            let (Some(name), at) = (value.get_ref().as_str(), value.span().start) else { continue };
            match first.get(name) {
                Some(line) => {
                    self.add(at, format!("policy {name:?} is already on line {line}; a name stands for one policy"))
                }
                None => {
                    first.insert(name, self.lines.at(at));
                }
            }
        }
    }
}

fn field<'a>(name: &'a str, value: &'a DeValue<'_>) -> Field<'a> {
    let value = match value {
        DeValue::Integer(integer) => match i128::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => FieldValue::Integer(number),
            Err(_) => FieldValue::Other("a number with far too many digits"),
        },
        DeValue::String(text) => FieldValue::Text(text),
        DeValue::Float(float) => match float.as_str().parse() {
            Ok(number) => FieldValue::Float(number),
            Err(_) => FieldValue::Other("a number that cannot be read"),
        },
        DeValue::Boolean(_) => FieldValue::Other("true or false"),
        DeValue::Datetime(_) => FieldValue::Other("a date"),
        DeValue::Array(_) => FieldValue::Other("a list"),
        DeValue::Table(_) => FieldValue::Other("a table"),
    };
    Field { name, value }
}

/// Writes policies as a file that [`parse`] reads back to the same policies (without their ids). Settings at their default are
/// left out.
///
/// ```
/// use quorate_core::{policy_file, Algorithm, Policy, Span};
/// let policy = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(60_000_000) });
/// let text = policy_file::to_toml(&[policy.clone()]);
/// assert_eq!(text, "[[policy]]\nname = \"p\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow = \"1m\"\n");
/// assert_eq!(policy_file::parse(&text, "p.toml"), Ok(vec![policy]));
/// ```
pub fn to_toml(policies: &[Policy]) -> String {
    let blocks: Vec<String> = policies.iter().map(block).collect();
    blocks.join("\n")
}

fn block(policy: &Policy) -> String {
    let mut out = String::from("[[policy]]\n");
    let mut line = |name: &str, value: &dyn fmt::Display| {
        writeln!(out, "{name} = {value}").expect("writing to a string cannot fail");
    };
    let quoted = |text: &str| format!("\"{}\"", visible::line(&text.replace('\\', "\\\\").replace('"', "\\\"")));
    line("name", &quoted(&policy.name));
    line("algorithm", &quoted(policy.algorithm.name()));
    match policy.algorithm {
        Algorithm::FixedWindow { limit, window }
        | Algorithm::SlidingLog { limit, window }
        | Algorithm::SlidingCounter { limit, window } => {
            line("limit", &limit);
            line("window", &quoted(&window.to_string()));
        }
        Algorithm::TokenBucket { capacity, refill } => {
            line("capacity", &capacity);
            line("refill", &quoted(&refill.to_string()));
        }
        Algorithm::LeakyBucket { queue, rate } => {
            line("queue", &queue);
            line("rate", &quoted(&rate.to_string()));
        }
    }
    match policy.mode {
        Mode::Enforce => {}
        Mode::Shadow => line("mode", &quoted("shadow")),
        Mode::Disabled => line("mode", &quoted("disabled")),
    }
    if let Some(max_cost) = policy.max_cost {
        line("max_cost", &max_cost);
    }
    match policy.on_unavailable {
        OnUnavailable::FailClosed => {}
        OnUnavailable::FailOpen => line("on_unavailable", &quoted("fail_open")),
        OnUnavailable::Local { share_ppm } => {
            line("on_unavailable", &quoted("local"));
            if let Some(ppm) = share_ppm {
                line("share", &policy_fields::show_share(ppm));
            }
        }
    }
    if policy.on_full == OnFull::Evict {
        line("on_full", &quoted("evict"));
    }
    if !policy.description.is_empty() {
        line("description", &quoted(&policy.description));
    }
    out
}
