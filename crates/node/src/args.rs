//! The command line of `quorated`. The flags of a node are made from the table of settings, so that none is forgotten.

use clap::builder::PathBufValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command};
use quorate_node::settings::{Kind, SETTINGS, Setting};

use crate::{dev, dump};

/// The hidden flag by which `quorated dev` tells a child who its parent is.
pub(crate) const PARENT: &str = "dev-parent";

const ABOUT: &str = "A node of the replicated rate limiter Quorate";
const LONG_ABOUT: &str = "A node of the replicated rate limiter Quorate.

Without a command it runs a node until SIGTERM or SIGINT. A setting is taken from its flag, else from its QUORATE_*
variable, else from the file named by --config, else it has its default. `quorated dev` starts a whole cluster here.

Exit codes: 0 ended as asked, 1 failed, 2 wrong usage or settings.";

/// The whole command line.
pub(crate) fn command() -> Command {
    let dev = dev::DevArgs::augment_args(Command::new("dev"))
        .about("Run a cluster on this machine, to try and to develop against");
    let dump = dump::DumpArgs::augment_args(Command::new("dump")).about("Print what a stopped node's log holds");
    let log = Command::new("log").about("Look into a stopped node's log").subcommand(dump).arg_required_else_help(true);
    let parent = Arg::new(PARENT).long(PARENT).hide(true).value_parser(clap::value_parser!(i32));
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("QUORATE_CONFIG")
        .value_parser(PathBufValueParser::new())
        .help("The settings file; deploy/node.toml describes every setting");
    Command::new("quorated")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .args_conflicts_with_subcommands(true)
        .max_term_width(110)
        .arg(config)
        .arg(parent)
        .args(SETTINGS.iter().map(flag))
        .subcommand(dev)
        .subcommand(log)
}

/// The settings that were given as flags.
pub(crate) fn given(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let text = |setting: &Setting| matches.get_one::<String>(setting.name).cloned();
    SETTINGS.iter().filter_map(|setting| Some((setting.name, text(setting)?))).collect()
}

fn flag(setting: &'static Setting) -> Arg {
    let default = if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
    let arg = Arg::new(setting.name)
        .long(setting.flag())
        .action(ArgAction::Set)
        .help_heading("Settings")
        .help(format!("{} [{}]{default} [env: {}]", setting.meaning, setting.allowed(), setting.env()));
    match setting.kind {
        Kind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL"),
        Kind::Whole(..) => arg.value_name("NUMBER"),
        Kind::Word(_) => arg.value_name("WORD"),
        Kind::Text(..) if setting.name == "data_dir" => arg.value_name("DIR"),
        Kind::Text(..) => arg.value_name("TEXT"),
    }
}
