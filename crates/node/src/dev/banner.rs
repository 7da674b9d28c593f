//! What `quorated dev` says once the cluster works: what runs where, and what to try next. On standard output, because
//! it is what the command is for; all else goes to standard error.

use std::io::Write as _;

use crate::dev::bootstrap::Started;

/// What is running.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) data_dir: String,
    /// Number, process id and port of each node.
    pub(super) nodes: Vec<(u8, Option<u32>, u16)>,
    pub(super) started: Started,
    /// Whether `quorate` finds the cluster without being told.
    pub(super) default_port: bool,
    pub(super) endpoints: String,
    /// How the CLI is called.
    pub(super) tool: String,
}

/// How the CLI is called from a shell: by where it lies, if that is beside this program, else by its name.
pub(super) fn tool() -> String {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("quorate"));
    let Some(path) = beside.filter(|path| path.is_file()) else { return "quorate".to_owned() };
    let here = std::env::current_dir().ok().and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned()));
    let path = here.unwrap_or(path).display().to_string();
    let plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    if plain { path } else { "quorate".to_owned() }
}

/// Prints it; that nobody reads is no error.
pub(super) fn show(running: &Running) {
    let _ = write!(std::io::stdout().lock(), "{}", text(running));
}

fn text(running: &Running) -> String {
    let nodes: Vec<String> = running
        .nodes
        .iter()
        .map(|(number, pid, port)| match pid {
            Some(pid) => format!("  n{number}  127.0.0.1:{port}  pid {pid}"),
            None => format!("  n{number}  127.0.0.1:{port}"),
        })
        .collect();
    let began = if running.started.goes_on { "goes on" } else { "is new" };
    let policies = match &running.started.policies[..] {
        [] => "none".to_string(),
        names => names.join(", "),
    };
    let tool = if running.default_port {
        running.tool.clone()
    } else {
        format!("{} --endpoints {}", running.tool, running.endpoints)
    };
    let try_policy =
        running.started.policies.iter().find(|name| *name == "per-user").or(running.started.policies.first());
    let check = match try_policy {
        Some(policy) => format!("{tool} check {policy} alice --cost 3"),
        None => format!("{tool} policy apply -f FILE"),
    };
    format!(
        "A Quorate cluster runs; it {began} in {}\n{}\n  policies: {policies}\n\nTry next:\n  {check}\n  {tool} cluster status\n  {tool} policy ls\n\n\
         Each node's log: {}/nN/quorated.log. Ctrl-C stops the cluster; kill a node, and it is started again.\n",
        running.data_dir,
        nodes.join("\n"),
        running.data_dir,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_runs_where_and_what_to_try() {
        let running = Running {
            data_dir: "/home/me/quorate-dev".into(),
            nodes: vec![(1, Some(11), 7700), (2, Some(12), 7701)],
            started: Started { goes_on: false, policies: vec!["login".into(), "per-user".into()] },
            default_port: false,
            endpoints: "127.0.0.1:7700,127.0.0.1:7701".into(),
            tool: "target/release/quorate".into(),
        };
        assert_eq!(
            text(&running),
            "A Quorate cluster runs; it is new in /home/me/quorate-dev
  n1  127.0.0.1:7700  pid 11
  n2  127.0.0.1:7701  pid 12
  policies: login, per-user

Try next:
  target/release/quorate --endpoints 127.0.0.1:7700,127.0.0.1:7701 check per-user alice --cost 3
  target/release/quorate --endpoints 127.0.0.1:7700,127.0.0.1:7701 cluster status
  target/release/quorate --endpoints 127.0.0.1:7700,127.0.0.1:7701 policy ls

Each node's log: /home/me/quorate-dev/nN/quorated.log. Ctrl-C stops the cluster; kill a node, and it is started again.
"
        );
    }
}
