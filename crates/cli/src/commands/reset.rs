//! `quorate reset`.

use clap::Args;
use quorate_core::visible;
use serde::Serialize;

use crate::args::Global;
use crate::connect;
use crate::exit::{Code, Outcome};
use crate::output::{View, show};

/// What `reset` takes.
#[derive(Debug, Args)]
pub struct ResetArgs {
    /// The policy
    pub policy: String,
    /// The key that becomes as good as new under it
    pub key: String,
}

#[derive(Serialize)]
struct ResetView {
    policy: String,
    key: String,
    reset: bool,
}

impl View for ResetView {
    fn table(&self) -> String {
        format!("{} {} is as good as new\n", visible::line(&self.policy), visible::line(&self.key))
    }
}

/// Resets.
///
/// # Errors
/// It was not done, or that is not known.
pub async fn run(global: &Global, args: ResetArgs) -> Outcome {
    connect::reset(global, &args.policy, &args.key).await?;
    show(global.output, &ResetView { policy: args.policy, key: args.key, reset: true })?;
    Ok(Code::Ok)
}
