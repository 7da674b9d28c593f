//! Compiles `/proto/quorate/v1/*.proto` without protoc, and keeps the descriptors for gRPC reflection.

use std::path::PathBuf;

use prost::Message as _;

const FILES: [&str; 6] = ["common", "checks", "topology", "admin", "control", "peer"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let files: Vec<PathBuf> = FILES.iter().map(|name| root.join(format!("quorate/v1/{name}.proto"))).collect();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(out, descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
