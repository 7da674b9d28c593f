//! `quorate check` and `quorate peek`.

use std::str::FromStr;

use clap::Args;
use quorate_core::Span;

use crate::args::{Global, span};
use crate::connect;
use crate::exit::{Code, Outcome};
use crate::output::show;

/// What `check` and `peek` take.
#[derive(Debug, Args)]
#[command(
    after_help = "Several limits are charged together or not at all. Keys with the same part in braces, as in {acme} and \
                        {acme}/alice, fall on one shard and are one atomic step; others are charged at the same time, and given \
                        back if one denies.\n\nExits 0 when allowed, 8 when denied."
)]
pub struct CheckArgs {
    /// The policy
    pub policy: String,
    /// The key that it is applied to
    pub key: String,
    /// What is asked, in units; 0 only reports
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub cost: u64,
    /// Another limit that has to grant as well; a number behind the last colon is its cost, else that is 1
    #[arg(long, value_name = "POLICY=KEY[:COST]")]
    pub also: Vec<Also>,
    /// Of a leaky bucket: take a place only if the wait for it is at most this, such as 250ms
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub max_delay: Option<Span>,
}

/// A limit named in one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Also {
    /// The policy.
    pub policy: String,
    /// The key.
    pub key: String,
    /// The cost.
    pub cost: u64,
}

impl FromStr for Also {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (policy, rest) = text.split_once('=').ok_or("must be POLICY=KEY or POLICY=KEY:COST")?;
        let (key, cost) = match rest.rsplit_once(':') {
            Some((key, cost)) if !cost.is_empty() && cost.bytes().all(|byte| byte.is_ascii_digit()) => {
                (key, cost.parse().map_err(|_| format!("the cost {cost} is too large"))?)
            }
            _ => (rest, 1),
        };
        if policy.is_empty() || key.is_empty() {
            return Err("must be POLICY=KEY or POLICY=KEY:COST".into());
        }
        Ok(Also { policy: policy.into(), key: key.into(), cost })
    }
}

/// Asks.
///
/// # Errors
/// There is no decision.
pub async fn run(global: &Global, args: CheckArgs, peek: bool) -> Outcome {
    let first = Also { policy: args.policy, key: args.key, cost: args.cost };
    let limits: Vec<Also> = std::iter::once(first).chain(args.also).collect();
    let view = connect::check(global, &limits, args.max_delay, peek).await?;
    show(global.output, &view)?;
    Ok(if view.allowed { Code::Ok } else { Code::Denied })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_in_one_word() {
        let also = |text: &str| text.parse::<Also>().map(|also| (also.policy, also.key, also.cost));
        assert_eq!(also("p=k"), Ok(("p".into(), "k".into(), 1)));
        assert_eq!(also("p=k:3"), Ok(("p".into(), "k".into(), 3)));
        assert_eq!(also("p=a=b:c"), Ok(("p".into(), "a=b:c".into(), 1)));
        assert_eq!(also("p=1.2.3.4:80:1"), Ok(("p".into(), "1.2.3.4:80".into(), 1)));
        for bad in ["", "p", "p=", "=k", "p=:3", "p=k:99999999999999999999999"] {
            assert!(also(bad).is_err(), "{bad}");
        }
    }
}
