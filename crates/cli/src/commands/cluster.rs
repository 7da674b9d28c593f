//! `quorate cluster`: make a cluster of nodes, and see how it is.

use clap::{Args, Subcommand};
use quorate_client::admin::NewCluster;

use crate::args::Global;
use crate::connect;
use crate::endpoints::Nodes;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{note, show};
use crate::views::cluster::{InitView, StatusView};

/// What can be done with a cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make one cluster of nodes that belong to none yet; sent again, it finishes what was interrupted
    Init(InitArgs),
    /// Show nodes and shards; exits 9 if one of them does not work
    Status,
}

/// What `cluster init` takes.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Every node, as the others reach it: host:port,host:port
    #[arg(long, value_name = "NODES")]
    nodes: Nodes,
    /// The cluster's name: letters, digits and -
    #[arg(long, value_name = "NAME", default_value = "quorate")]
    name: String,
    /// Shards of the ring [default: 12]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: Option<u32>,
    /// Replicas of each shard [default: 3, or as many as there are nodes if fewer]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=9))]
    replicas: Option<u32>,
}

/// Does it.
///
/// # Errors
/// It was not done.
pub async fn run(global: &Global, command: ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Init(args) => init(global, args).await,
        ClusterCommand::Status => status(global).await,
    }
}

async fn init(global: &Global, args: InitArgs) -> Outcome {
    let nodes: Vec<String> = args.nodes.iter().map(str::to_string).collect();
    if args.replicas.is_some_and(|replicas| replicas as usize > nodes.len()) {
        return Err(Failure::usage(format!(
            "--replicas: a shard has at most one replica on each of the {} nodes",
            nodes.len()
        )));
    }
    let new = NewCluster { nodes, name: Some(args.name), shards: args.shards, replicas: args.replicas };
    let made = connect::cluster_init(global, new).await?;
    show(global.output, &InitView::from(made))?;
    Ok(Code::Ok)
}

async fn status(global: &Global) -> Outcome {
    let view = StatusView::from(connect::cluster_status(global).await?);
    show(global.output, &view)?;
    for problem in &view.problems {
        note(&format!("quorate: {problem}"));
    }
    Ok(if view.healthy { Code::Ok } else { Code::Unhealthy })
}
