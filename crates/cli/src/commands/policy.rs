//! `quorate policy`: files of policies, and the set that is in force.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use quorate_client::admin::Apply;
use quorate_core::{Policy, PolicyVersion, policy_file};

use crate::args::Global;
use crate::commands::on_runtime;
use crate::connect;
use crate::exit::{Code, Failure, Outcome};
use crate::human;
use crate::output::{Format, note, print, show};
use crate::policies;
use crate::views::policy::{ChangesView, PolicySetView, PolicyView, ValidView};

/// What can be done with policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Put a file's policies in force; returns once every shard enforces them
    Apply(ApplyArgs),
    /// List the policies in force
    Ls,
    /// Print policies as a file that can be applied again; all of them if none is named
    Get(GetArgs),
    /// Take policies away, and their keys' states with them
    Rm(RmArgs),
    /// Say everything that is wrong with a file; asks no cluster
    Validate(FileArgs),
}

/// A policy file.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The policy file; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
}

/// What `policy apply` takes.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Also take away every policy that is not in the file
    #[arg(long)]
    prune: bool,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only if this is the version of the set in force; else exit 7
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u64).range(1..))]
    expect_version: Option<u64>,
}

/// What `policy get` takes.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Their names
    names: Vec<String>,
}

/// What `policy rm` takes.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// Their names
    #[arg(required = true)]
    names: Vec<String>,
    /// Only if this is the version of the set in force; else exit 7
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u64).range(1..))]
    expect_version: Option<u64>,
}

/// Does it.
///
/// # Errors
/// It was not done; of a file, everything that is wrong with it.
pub fn run(global: &Global, command: PolicyCommand) -> Outcome {
    match command {
        PolicyCommand::Validate(file) => {
            let policies = policies::read(&file.file)?;
            let views = policies.iter().map(PolicyView::from).collect();
            show(global.output, &ValidView { file: policies::name(&file.file), policies: views })?;
            Ok(Code::Ok)
        }
        PolicyCommand::Apply(args) => {
            let policies = policies::read(&args.file.file)?;
            if policies.is_empty() {
                let name = policies::name(&args.file.file);
                return Err(Failure::failed(format!(
                    "{name} has no policy; to take policies away, name them: quorate policy rm"
                )));
            }
            on_runtime(async {
                let ApplyArgs { prune, dry_run, expect_version, .. } = args;
                let expected_version = expect_version.map(PolicyVersion);
                changes(
                    global,
                    connect::policy_apply(global, Apply { policies, prune, dry_run, expected_version }).await?,
                )
            })
        }
        PolicyCommand::Ls => on_runtime(async {
            let set = connect::policies(global).await?;
            show(global.output, &PolicySetView::new(set.version.0, &set.policies))?;
            Ok(Code::Ok)
        }),
        PolicyCommand::Get(args) => on_runtime(get(global, args)),
        PolicyCommand::Rm(args) => on_runtime(async {
            changes(global, connect::policy_remove(global, &args.names, args.expect_version.map(PolicyVersion)).await?)
        }),
    }
}

fn changes(global: &Global, view: ChangesView) -> Outcome {
    show(global.output, &view)?;
    for warning in &view.warnings {
        note(&format!("quorate: warning: {warning}"));
    }
    Ok(Code::Ok)
}

async fn get(global: &Global, args: GetArgs) -> Outcome {
    let reports = connect::policy_reports(global).await?;
    let set = reports.policies;
    let missing: Vec<String> =
        args.names.iter().filter(|name| !set.policies.iter().any(|policy| policy.name == **name)).cloned().collect();
    if !missing.is_empty() {
        let message = format!("no policy is named {}; `quorate policy ls` lists all", missing.join(" or "));
        return Err(Failure::new(Code::NotFound, message));
    }
    let mut wanted: Vec<Policy> = set.policies;
    wanted.retain(|policy| args.names.is_empty() || args.names.contains(&policy.name));
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    match global.output {
        Format::Table => print(&policy_file::to_toml(&wanted))?,
        format => show(format, &PolicySetView::new(set.version.0, &wanted).reported(&reports.false_positives))?,
    }
    for name in wanted.iter().map(|policy| &policy.name) {
        if let Some(count) = reports.false_positives.get(name).filter(|_| matches!(global.output, Format::Table)) {
            let times = if *count == 1 { "once".to_owned() } else { format!("{} times", human::count(*count)) };
            note(&format!("quorate: {name}: a denial was reported as wrong {times} since the nodes started"));
        }
    }
    if !reports.unheard.is_empty() {
        note(&format!("quorate: what was reported to {} is not counted: no answer", reports.unheard.join(", ")));
    }
    Ok(Code::Ok)
}
