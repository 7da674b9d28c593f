//! The example of an HTTP API as it ships, in front of a real cluster: a crowd over real HTTP is granted exactly what its
//! policies grant.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use futures::stream::{self, StreamExt as _};
use quorate_tests::tool::run;
use quorate_tests::{Cluster, command, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The policies that the example names, of windows whose edge no run of this test meets: what is granted is exact.
const POLICIES: &str = r#"
[[policy]]
name = "api-address"
algorithm = "fixed_window"
limit = 100000
window = "366d"
[[policy]]
name = "api-global"
algorithm = "fixed_window"
limit = 100000
window = "366d"
[[policy]]
name = "api-tenant"
algorithm = "fixed_window"
limit = 50
window = "366d"
[[policy]]
name = "api-user"
algorithm = "sliding_log"
limit = 20
window = "366d"
[[policy]]
name = "api-export"
algorithm = "sliding_log"
limit = 3
window = "366d"
"#;

/// The example's process, and where it listens.
struct Api {
    process: Child,
    address: String,
}

impl Api {
    fn start(endpoints: &str) -> Api {
        let mut process = command("axum-api")
            .env("QUORATE_ENDPOINTS", endpoints)
            .env("LISTEN", "127.0.0.1:0")
            // Longer than any answer takes on a machine that does ten other things.
            .env("DEADLINE_MS", "60000")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("it printed {line:?}"));
        Api { address: address.to_owned(), process }
    }

    /// Status and headers, the names in lower case.
    async fn ask(&self, method: &str, path: &str, key: &str) -> (u16, BTreeMap<String, String>, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: api\r\nconnection: close\r\nx-api-key: {key}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        (status, lines.filter_map(header).collect(), body.to_owned())
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

async fn cluster() -> (Cluster, String) {
    let cluster = Cluster::start(3);
    let nodes = cluster.endpoints().join(",");
    until("the cluster is made", || async {
        (run("quorate", ["--endpoints", &nodes, "cluster", "init", "--nodes", &nodes]).code == 0).then_some(())
    })
    .await;
    let file = cluster.data_directory(0).with_file_name("policies.toml");
    fs::write(&file, POLICIES).unwrap();
    let file = file.to_str().unwrap();
    until("the policies are in force", || async {
        (run("quorate", ["--endpoints", &nodes, "policy", "apply", "-f", file]).code == 0).then_some(())
    })
    .await;
    (cluster, nodes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_granted_exactly_its_limits() {
    let (cluster, endpoints) = cluster().await;
    let api = Api::start(&endpoints);
    until("every limit can be asked", || async {
        let (status, ..) = api.ask("POST", "/export", "key-dave").await;
        (status != 503).then_some(())
    })
    .await;

    // alice, bob and carol share the tenant acme: 20 each, and 50 together.
    let users = ["key-alice", "key-bob", "key-carol", "key-dave"];
    let asked = (0..160).map(|i| users[i % users.len()]);
    let answers = stream::iter(asked).map(|key| {
        let api = &api;
        async move { (key, api.ask("GET", "/hello", key).await) }
    });
    let answers: Vec<_> = answers.buffer_unordered(16).collect().await;
    let mut granted = BTreeMap::<&str, u32>::new();
    for (key, (status, headers, body)) in answers {
        match status {
            200 => *granted.entry(key).or_default() += 1,
            429 => {
                assert!(headers["retry-after"].parse::<u64>().unwrap() >= 1, "{headers:?}");
                assert_eq!(headers["content-type"], "application/problem+json");
                let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
                let policies: Vec<_> = problem["policies"].as_array().unwrap().iter().collect();
                assert!(policies.iter().all(|name| *name == "api-user" || *name == "api-tenant"), "{problem}");
            }
            other => panic!("{other}: {body}"),
        }
    }
    let of_acme: u32 = ["key-alice", "key-bob", "key-carol"].iter().map(|key| granted[key]).sum();
    assert_eq!((of_acme, granted["key-dave"]), (50, 20), "{granted:?}");
    assert!(granted.values().all(|count| *count <= 20), "{granted:?}");

    // What the cluster holds is what was granted, user by user: a denial took nothing.
    for (key, name) in [("key-alice", "{acme}|alice"), ("key-bob", "{acme}|bob"), ("key-carol", "{acme}|carol")] {
        let peeked = run("quorate", ["--endpoints", &endpoints, "peek", "api-user", name, "-o", "json"]);
        let remaining = peeked.json()["limits"][0]["remaining"].as_u64().unwrap();
        assert_eq!(20 - remaining, u64::from(granted[key]), "{key}");
    }

    assert_eq!(api.ask("GET", "/hello", "key-nobody").await.0, 401);
    let exports = stream::iter(0..10).map(|_| api.ask("POST", "/export", "key-bob"));
    let exports: Vec<_> = exports.buffer_unordered(10).map(|(status, ..)| status).collect().await;
    assert_eq!(exports.iter().filter(|status| **status == 200).count(), 3, "{exports:?}");
    drop(cluster);
}
