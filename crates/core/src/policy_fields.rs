//! A policy from loose fields, as a policy file or a trace has them: every mistake at once, each with what is allowed.
//!
//! This is the one place that knows the fields' names and who takes which; where they come from (TOML with its lines, JSON) is
//! the caller's. Bounds are not checked here but by [`Policy::validate`], so that wire and files refuse alike.

use crate::caps::{POLICY_FIELDS, SPAN_MIN_US, UNITS};
use crate::policy::{Algorithm, FieldProblem, Mode, OnFull, OnUnavailable, Policy};
use crate::units::{Cost, Rate, Span};

/// A field's value, as far as policies have use for it.
///
/// ```
/// use quorate_core::policy_fields::FieldValue;
/// assert_ne!(FieldValue::Integer(5), FieldValue::Text("5"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// A whole number.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(&'a str),
    /// Anything else, by its kind: "a list".
    Other(&'static str),
}

/// A field as it was written.
///
/// ```
/// use quorate_core::policy_fields::{Field, FieldValue};
/// assert_eq!(Field { name: "limit", value: FieldValue::Integer(5) }.name, "limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: FieldValue<'a>,
}

/// A mistake in the fields of one policy.
///
/// ```
/// use quorate_core::policy_fields::{read, Field, FieldValue};
/// let fields = [Field { name: "nane", value: FieldValue::Text("p") }];
/// let mistakes = read(&fields, 1_000_000_000_000).unwrap_err();
/// assert_eq!(mistakes[0].field, Some(0));
/// assert!(mistakes[0].message.contains("did you mean name?"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The field it is about, by its place among those given; none where it is about the policy as a whole.
    pub field: Option<usize>,
    /// It says that something is absent, not that something is wrong.
    pub missing: bool,
    /// What is wrong and what is allowed.
    pub message: String,
}

const ALGORITHMS: [&str; 5] = ["fixed_window", "sliding_log", "sliding_counter", "token_bucket", "leaky_bucket"];
const COMMON: [&str; 8] =
    ["name", "algorithm", "mode", "max_cost", "on_unavailable", "share", "on_full", "description"];

/// The two fields that an algorithm needs.
fn needs(algorithm: &str) -> [&'static str; 2] {
    match algorithm {
        "token_bucket" => ["capacity", "refill"],
        "leaky_bucket" => ["queue", "rate"],
        _ => ["limit", "window"],
    }
}

/// The policy that the fields say, checked as [`Policy::validate_up_to`] does with that many `units`; or all mistakes.
/// Its id is 0: the cluster gives one.
///
/// ```
/// use quorate_core::policy_fields::{read, Field, FieldValue};
/// let fields = [
///     Field { name: "name", value: FieldValue::Text("p") },
///     Field { name: "algorithm", value: FieldValue::Text("fixed_window") },
///     Field { name: "limit", value: FieldValue::Integer(5) },
///     Field { name: "window", value: FieldValue::Text("1m") },
/// ];
/// assert_eq!(read(&fields, 1_000_000_000_000).unwrap().name, "p");
/// ```
pub fn read(fields: &[Field<'_>], units: u64) -> Result<Policy, Vec<Mistake>> {
    if fields.len() > POLICY_FIELDS {
        let message = format!("the policy has {} fields; no policy has more than {POLICY_FIELDS}", fields.len());
        return Err(vec![Mistake { field: None, missing: false, message }]);
    }
    let mut reader = Reader { fields, mistakes: Vec::new() };
    reader.refuse_unknown();
    let policy = reader.policy();
    if let Err(problems) = policy.validate_up_to(units) {
        for FieldProblem { field, message } in problems.0 {
            reader.add(field, message);
        }
    }
    if reader.mistakes.is_empty() { Ok(policy) } else { Err(reader.mistakes) }
}

struct Reader<'a> {
    fields: &'a [Field<'a>],
    mistakes: Vec<Mistake>,
}

/// The candidate that is written most alike, if any is alike enough to be meant.
pub(crate) fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let name: String = name.chars().take(64).collect();
    let alike = |candidate: &&'a str| (strsim::damerau_levenshtein(&name, candidate), *candidate);
    candidates.iter().map(alike).min().filter(|(steps, meant)| *steps <= meant.len() / 3 + 1).map(|(_, meant)| meant)
}

/// That there is no such thing, what was probably meant, and what is allowed.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(64).collect();
    let allowed = known.join(", ");
    match nearest(name, known) {
        Some(meant) => format!("there is no {what} {shown:?}; did you mean {meant}? Allowed are {allowed}"),
        None => format!("there is no {what} {shown:?}; allowed are {allowed}"),
    }
}

impl<'a> Reader<'a> {
    fn add(&mut self, field: &str, message: String) {
        let field = self.fields.iter().position(|given| given.name == field);
        self.mistakes.push(Mistake { field, missing: false, message });
    }

    fn value(&self, name: &str) -> Option<FieldValue<'a>> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.value)
    }

    /// The algorithm, if it is given and known.
    fn algorithm(&self) -> Option<&'static str> {
        match self.value("algorithm") {
            Some(FieldValue::Text(text)) => ALGORITHMS.into_iter().find(|known| *known == text),
            _ => None,
        }
    }

    fn refuse_unknown(&mut self) {
        let own: &[&str] = match self.algorithm() {
            Some(algorithm) => &needs(algorithm),
            None => &["limit", "window", "capacity", "refill", "queue", "rate"],
        };
        let known: Vec<&str> = COMMON.iter().chain(own).copied().collect();
        for (i, field) in self.fields.iter().enumerate() {
            if self.fields[..i].iter().any(|earlier| earlier.name == field.name) {
                self.mistakes.push(Mistake {
                    field: Some(i),
                    missing: false,
                    message: format!("{} is given twice", field.name),
                });
            }
            if known.contains(&field.name) {
                continue;
            }
            let owners: Vec<&str> = ALGORITHMS.into_iter().filter(|a| needs(a).contains(&field.name)).collect();
            let message = match self.algorithm().filter(|_| !owners.is_empty()) {
                Some(algorithm) => {
                    let ([a, b], owners) = (needs(algorithm), owners.join(", "));
                    format!("{} belongs to {owners}; a {algorithm} takes {a} and {b}", field.name)
                }
                None => unknown("field", field.name, &known),
            };
            self.mistakes.push(Mistake { field: Some(i), missing: false, message });
        }
    }

    /// The policy, with something harmless in the place of what could not be read, so that the rest can be judged all the same.
    fn policy(&mut self) -> Policy {
        let name = self.text("name", true).unwrap_or("unnamed");
        let harmless = Algorithm::FixedWindow { limit: 0, window: Span(1_000_000) };
        let mut policy = Policy::new(name, self.read_algorithm().unwrap_or(harmless));
        let modes = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("disabled", Mode::Disabled)];
        policy.mode = self.choice("mode", &modes).unwrap_or_default();
        if let Some(units) = self.count("max_cost", false) {
            policy.max_cost = Cost::new(units);
            if policy.max_cost.is_none() {
                self.add("max_cost", format!("max_cost is {units}; allowed is 1 to {}", Cost::MAX));
            }
        }
        policy.on_unavailable = self.read_on_unavailable();
        policy.on_full =
            self.choice("on_full", &[("refuse", OnFull::Refuse), ("evict", OnFull::Evict)]).unwrap_or_default();
        policy.description = self.text("description", false).unwrap_or_default().to_owned();
        policy
    }

    fn read_algorithm(&mut self) -> Option<Algorithm> {
        let text = self.text("algorithm", true)?;
        let Some(known) = ALGORITHMS.into_iter().find(|known| *known == text) else {
            self.add("algorithm", unknown("algorithm", text, &ALGORITHMS));
            return None;
        };
        let [first, second] = needs(known);
        let count = self.count(first, true).unwrap_or(0);
        Some(match known {
            "token_bucket" => Algorithm::TokenBucket { capacity: count, refill: self.rate(second) },
            "leaky_bucket" => Algorithm::LeakyBucket { queue: count, rate: self.rate(second) },
            "sliding_log" => Algorithm::SlidingLog { limit: count, window: self.span(second) },
            "sliding_counter" => Algorithm::SlidingCounter { limit: count, window: self.span(second) },
            _ => Algorithm::FixedWindow { limit: count, window: self.span(second) },
        })
    }

    fn read_on_unavailable(&mut self) -> OnUnavailable {
        let choices = [
            ("fail_open", OnUnavailable::FailOpen),
            ("fail_closed", OnUnavailable::FailClosed),
            ("local", OnUnavailable::Local { share_ppm: None }),
        ];
        let choice = self.choice("on_unavailable", &choices).unwrap_or_default();
        if self.value("share").is_none() {
            return choice;
        }
        if choice != choices[2].1 {
            let message = "share is of use only with on_unavailable = \"local\"; drop one or change the other";
            self.add("share", message.into());
        }
        let share_ppm = self.field("share", false, "a number above 0 and up to 1, such as 0.125", share_ppm);
        OnUnavailable::Local { share_ppm }
    }

    fn missing(&mut self, name: &str) {
        let message = match (name, self.algorithm()) {
            ("name", _) => "the policy has no name".to_owned(),
            ("algorithm", _) => format!("the policy has no algorithm; allowed are {}", ALGORITHMS.join(", ")),
            (name, algorithm) => {
                let algorithm = algorithm.unwrap_or("policy");
                let [a, b] = needs(algorithm);
                format!("the policy has no {name}; a {algorithm} needs {a} and {b}")
            }
        };
        self.mistakes.push(Mistake { field: None, missing: true, message });
    }

    /// The field's value as `read` takes it; a mistake if it is of another kind, or needed and absent.
    fn field<T>(
        &mut self,
        name: &str,
        needed: bool,
        wants: &str,
        read: impl Fn(FieldValue<'a>) -> Option<T>,
    ) -> Option<T> {
        let Some(value) = self.value(name) else {
            if needed {
                self.missing(name);
            }
            return None;
        };
        let read = read(value);
        if read.is_none() {
            let is = match value {
                FieldValue::Integer(number) => format!("{number}"),
                FieldValue::Float(number) => format!("{number}"),
                FieldValue::Text(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
                FieldValue::Other(kind) => kind.to_owned(),
            };
            self.add(name, format!("{name} is {is}; write {wants}"));
        }
        read
    }

    fn text(&mut self, name: &str, needed: bool) -> Option<&'a str> {
        self.field(name, needed, "text in quotes", |value| match value {
            FieldValue::Text(text) => Some(text),
            _ => None,
        })
    }

    fn count(&mut self, name: &str, needed: bool) -> Option<u64> {
        self.field(name, needed, "a whole number, not below 0", |value| match value {
            FieldValue::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        })
    }

    fn span(&mut self, name: &str) -> Span {
        let wants = "a span in quotes, such as \"250ms\", \"10s\" or \"1h\"";
        let span = self.field(name, true, wants, |value| match value {
            FieldValue::Text(text) => Span::parse(text).ok(),
            _ => None,
        });
        span.unwrap_or(Span(1_000_000))
    }

    fn rate(&mut self, name: &str) -> Rate {
        let wants = "a rate in quotes, such as \"100/s\", \"100/10s\" or \"6000/1h\"";
        let rate = self.field(name, true, wants, |value| match value {
            FieldValue::Text(text) => Rate::parse(text).ok(),
            _ => None,
        });
        // Fast enough for any capacity.
        rate.unwrap_or(Rate { units: UNITS, period: Span(SPAN_MIN_US) })
    }

    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
        let mut wants = format!("one of {}", names.join(", "));
        if let Some(FieldValue::Text(text)) = self.value(name)
            && let Some(meant) = nearest(text, &names)
        {
            wants = format!("{wants}; did you mean {meant}?");
        }
        self.field(name, false, &wants, |value| match value {
            FieldValue::Text(text) => choices.iter().find(|choice| choice.0 == text).map(|choice| choice.1),
            _ => None,
        })
    }
}

/// A share such as `0.125` as parts per million; none unless it is above 0, at most 1 and a whole number of them.
fn share_ppm(value: FieldValue<'_>) -> Option<u32> {
    let ppm = match value {
        FieldValue::Integer(number) => (number == 1).then_some(1e6)?,
        FieldValue::Float(number) => number * 1e6,
        FieldValue::Text(_) | FieldValue::Other(_) => return None,
    };
    let whole = ppm.round();
    // A product of doubles: less than a billionth off is the decimal that was meant.
    ((1.0..=1e6).contains(&whole) && (ppm - whole).abs() < 1e-3).then_some(whole as u32)
}

/// A share in parts per million as a file has it.
pub(crate) fn show_share(ppm: u32) -> String {
    let fraction = format!("{:06}", ppm % 1_000_000);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { format!("{}.0", ppm / 1_000_000) } else { format!("0.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_read_back() {
        for ppm in [1, 10, 12_345, 100_000, 125_000, 999_999, 1_000_000] {
            assert_eq!(share_ppm(FieldValue::Float(show_share(ppm).parse().unwrap())), Some(ppm));
        }
        assert_eq!(share_ppm(FieldValue::Integer(1)), Some(1_000_000));
        for wrong in [0.0, -0.1, 1.000_001, 0.000_000_4, 0.000_001_5, f64::NAN, f64::INFINITY] {
            assert_eq!(share_ppm(FieldValue::Float(wrong)), None, "{wrong}");
        }
        for wrong in [FieldValue::Integer(0), FieldValue::Integer(2), FieldValue::Text("0.1")] {
            assert_eq!(share_ppm(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_what_is_alike_is_suggested() {
        assert_eq!(nearest("limt", &["limit", "window"]), Some("limit"));
        assert_eq!(nearest("zzz", &["limit", "window"]), None);
    }
}
