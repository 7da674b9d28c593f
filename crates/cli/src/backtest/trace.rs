//! The lines of a trace: one JSON object each, to one event.
//!
//! A trace comes from anywhere, so nothing in it is trusted: what is not an event is refused by file and line, with what is
//! allowed. Two things may be asked here that a cluster refuses, because recorded traces have them: costs and the limits of
//! applied policies go up to [`caps::EXACT_UNITS`], as far as the algorithms are exact, and a key may be empty.

use quorate_core::policy_fields::{self, Field, FieldValue};
use quorate_core::{Cost, Policy, Span, Stamp, caps};
use serde_json::{Map, Value};

use super::json;

/// One event of a trace.
///
/// ```
/// use quorate_cli::backtest::trace::{Event, EventKind};
/// let event = Event::parse(r#"{"at_us": 5, "policy": "p", "key": "k"}"#).unwrap();
/// assert!(matches!(event.kind, EventKind::Check { ref limits, .. } if limits[0].cost.get() == 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When; earlier than the last one is taken as at the last one.
    pub at: Stamp,
    /// What.
    pub kind: EventKind,
}

/// What an event is.
///
/// ```
/// use quorate_cli::backtest::trace::EventKind;
/// assert_ne!(EventKind::Refund { line: 0 }, EventKind::Refund { line: 1 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A check, of one limit or of several.
    Check {
        /// The limits, as named.
        limits: Vec<NamedLimit>,
        /// They were given as a list, so the answer has one.
        list: bool,
        /// Charge nothing.
        peek: bool,
        /// The longest delay that is taken.
        max_delay: Option<Span>,
    },
    /// Undoes the check on that line, counted from 0.
    Refund {
        /// The line.
        line: usize,
    },
    /// Puts a policy in force, in place of the one of its name.
    Apply(Box<Policy>),
}

/// A limit by its policy's name and its key's text.
///
/// ```
/// use quorate_cli::backtest::trace::NamedLimit;
/// use quorate_core::Cost;
/// assert_eq!(NamedLimit { policy: "p".into(), key: "k".into(), cost: Cost::ONE }.key, "k");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// The policy's name.
    pub policy: String,
    /// The key.
    pub key: String,
    /// What is asked.
    pub cost: Cost,
}

type Fields = Map<String, Value>;

impl Event {
    /// Reads one line; says what is wrong with it and what is allowed, if it is no event.
    pub fn parse(line: &str) -> Result<Event, String> {
        let value = json::read(line)?;
        let Value::Object(fields) = value else {
            return Err(format!("the line is {}; write one JSON object", kind(&value)));
        };
        let at = Stamp(whole(&fields, "at_us", caps::LONGEST_US as u64)?.ok_or("the event has no at_us")? as i64);
        let kind = if fields.contains_key("refund") {
            only(&fields, &["at_us", "refund"])?;
            EventKind::Refund { line: whole(&fields, "refund", u64::from(u32::MAX))?.unwrap_or_default() as usize }
        } else if let Some(policy) = fields.get("apply") {
            only(&fields, &["at_us", "apply"])?;
            EventKind::Apply(Box::new(read_policy(policy)?))
        } else {
            read_check(&fields)?
        };
        Ok(Event { at, kind })
    }
}

fn read_check(fields: &Fields) -> Result<EventKind, String> {
    let (limits, list) = match fields.get("limits") {
        None => {
            only(fields, &["at_us", "policy", "key", "cost", "peek", "max_delay_us"])?;
            (vec![read_limit(fields)?], false)
        }
        Some(Value::Array(limits)) => {
            only(fields, &["at_us", "limits", "peek", "max_delay_us"])?;
            if limits.is_empty() || limits.len() > caps::LIMITS_PER_CHECK {
                return Err(format!("limits has {}; allowed are 1 to {}", limits.len(), caps::LIMITS_PER_CHECK));
            }
            let limits = limits.iter().map(|limit| match limit {
                Value::Object(fields) => only(fields, &["policy", "key", "cost"]).and_then(|()| read_limit(fields)),
                other => Err(format!("a limit is {}; write an object with policy, key and cost", kind(other))),
            });
            (limits.collect::<Result<_, _>>()?, true)
        }
        Some(other) => return Err(format!("limits is {}; write a list", kind(other))),
    };
    let peek = match fields.get("peek") {
        None => false,
        Some(Value::Bool(peek)) => *peek,
        Some(other) => return Err(format!("peek is {}; write true or false", kind(other))),
    };
    let max_delay = whole(fields, "max_delay_us", caps::LONGEST_US as u64)?.map(|us| Span(us as i64));
    Ok(EventKind::Check { limits, list, peek, max_delay })
}

fn read_limit(fields: &Fields) -> Result<NamedLimit, String> {
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("{name} is {}; write text", kind(other))),
        None => Err(format!(
            "the check has no {name}; an event is a check (policy, key), a check of limits, a refund, or apply"
        )),
    };
    let (policy, key) = (text("policy")?, text("key")?);
    if key.len() > caps::KEY_BYTES {
        return Err(format!("the key has {} bytes; allowed are {}", key.len(), caps::KEY_BYTES));
    }
    let cost = whole(fields, "cost", caps::EXACT_UNITS)?.map_or(Some(Cost::ONE), Cost::exact);
    Ok(NamedLimit { policy, key, cost: cost.ok_or("the cost is too large")? })
}

fn read_policy(value: &Value) -> Result<Policy, String> {
    let Value::Object(fields) = value else {
        return Err(format!("apply is {}; write an object with the policy's fields", kind(value)));
    };
    let fields: Vec<Field<'_>> = fields.iter().map(|(name, value)| Field { name, value: field_value(value) }).collect();
    policy_fields::read(&fields, caps::EXACT_UNITS).map_err(|mistakes| {
        let messages: Vec<String> = mistakes.into_iter().map(|mistake| mistake.message).collect();
        format!("apply: {}", messages.join("; "))
    })
}

fn field_value(value: &Value) -> FieldValue<'_> {
    match value {
        Value::String(text) => FieldValue::Text(text),
        Value::Number(number) => match number.as_i128() {
            Some(number) => FieldValue::Integer(number),
            None => number.as_f64().map_or(FieldValue::Other("a number with too many digits"), FieldValue::Float),
        },
        other => FieldValue::Other(kind(other)),
    }
}

/// The field as a whole number up to `most`, if it is there.
fn whole(fields: &Fields, name: &str, most: u64) -> Result<Option<u64>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number <= most) {
            Some(number) => Ok(Some(number)),
            None => {
                let is = if value.is_number() { value.to_string() } else { kind(value).to_owned() };
                Err(format!("{name} is {is}; allowed is a whole number from 0 to {most}"))
            }
        },
    }
}

/// Refuses a field that is none of `known`: it is a mistake, and passing over it would hide one.
fn only(fields: &Fields, known: &[&str]) -> Result<(), String> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            let shown: String = name.chars().take(64).collect();
            Err(format!("there is no field {shown:?} in such an event; allowed are {}", known.join(", ")))
        }
        None => Ok(()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_event_is_refused_with_what_is_allowed() {
        for (line, says) in [
            ("", "not JSON"),
            ("[]", "the line is a list; write one JSON object"),
            ("{}", "the event has no at_us"),
            (r#"{"at_us": -1}"#, "at_us is -1; allowed is a whole number from 0 to 4611686018427387904"),
            (r#"{"at_us": 1.5}"#, "at_us is 1.5; allowed"),
            (r#"{"at_us": 99999999999999999999}"#, "at_us is "),
            (r#"{"at_us": 1}"#, "the check has no policy; an event is"),
            (r#"{"at_us": 1, "policy": "p"}"#, "the check has no key"),
            (r#"{"at_us": 1, "policy": "p", "key": 7}"#, "key is a number; write text"),
            (r#"{"at_us": 1, "policy": "p", "key": "k", "costs": 7}"#, "there is no field \"costs\""),
            (
                r#"{"at_us": 1, "policy": "p", "key": "k", "cost": -1}"#,
                "cost is -1; allowed is a whole number from 0 to",
            ),
            (r#"{"at_us": 1, "policy": "p", "key": "k", "peek": 1}"#, "peek is a number"),
            (r#"{"at_us": 1, "limits": []}"#, "limits has 0; allowed are 1 to 16"),
            (r#"{"at_us": 1, "limits": [1]}"#, "a limit is a number"),
            (r#"{"at_us": 1, "limits": [{"policy": "p", "key": "k", "peek": true}]}"#, "there is no field \"peek\""),
            (r#"{"at_us": 1, "refund": "x"}"#, "refund is text"),
            (r#"{"at_us": 1, "at_us": 2, "policy": "p", "key": "k"}"#, "the field \"at_us\" is given twice"),
            (
                r#"{"at_us": 1, "limits": [{"policy": "p", "key": "k", "key": "k"}]}"#,
                "the field \"key\" is given twice",
            ),
            (
                r#"{"at_us": 1, "policy": "p", "key": "k", "cost": 4000000000001}"#,
                "cost is 4000000000001; allowed is a whole number from 0 to 4000000000000",
            ),
            (r#"{"at_us": 1, "apply": {"name": "p"}}"#, "apply: the policy has no algorithm"),
            (r#"{"at_us": 1, "apply": []}"#, "apply is a list"),
        ] {
            let error = Event::parse(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(Event::parse(&deep).unwrap_err().contains("not JSON"));
        let long = format!(r#"{{"at_us": 1, "policy": "p", "key": "{}"}}"#, "k".repeat(1025));
        assert!(Event::parse(&long).unwrap_err().contains("the key has 1025 bytes"));
    }
}
