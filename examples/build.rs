//! Compiles the example service's protocol without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const FILE: &str = "tonic-service/quotes.proto";
    println!("cargo::rerun-if-changed={FILE}");
    let descriptors = protox::compile([FILE], ["tonic-service"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
