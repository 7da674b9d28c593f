//! JSON in which every field is given once: of two that differ, taking either would be a guess.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one value; says what is wrong with the text, and at which column, if it is none.
pub(super) fn read(text: &str) -> Result<Value, String> {
    serde_json::from_str::<Once>(text).map(|Once(value)| value).map_err(|error| {
        // The text is one line of a file whose number the caller tells.
        let (what, place) = (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
        let what = what.strip_suffix(&place).unwrap_or(&what);
        let not_json = if error.is_data() { "" } else { "not JSON: " };
        format!("{not_json}{what} (column {})", error.column())
    })
}

/// A value in which no object has a field twice.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Once)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if all.contains_key(&name) {
                let shown: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format!("the field {shown:?} is given twice")));
            }
            let Once(value) = fields.next_value()?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        for text in [
            r#"{"a": [1, -2, 3.5, "x\u00e9\n", true, null], "b": {"c": {}, "d": []}}"#,
            "18446744073709551615",
            "99999999999999999999",
            "-9223372036854775808",
            "\"\\ud83d\\udd11\"",
        ] {
            assert_eq!(read(text), Ok(serde_json::from_str(text).unwrap()), "{text}");
        }
    }

    #[test]
    fn a_field_is_given_once_at_every_depth() {
        for text in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": 1, "\u0061": 2}}]"#] {
            assert!(read(text).unwrap_err().starts_with("the field \"a\" is given twice (column "), "{text}");
        }
        assert!(read(r#"{"a": {"b": 1}, "b": {"a": 1}}"#).is_ok());
    }

    #[test]
    fn what_is_no_json_is_told_by_its_column() {
        assert_eq!(read("{\"a\": tru}").unwrap_err(), "not JSON: expected ident (column 10)");
        assert_eq!(read("{} {}").unwrap_err(), "not JSON: trailing characters (column 4)");
        assert!(read(&"[".repeat(100_000)).unwrap_err().starts_with("not JSON: recursion limit exceeded"));
    }
}
