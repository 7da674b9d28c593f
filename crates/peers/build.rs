//! Compiles the echo service without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/echo.proto");
    tonic_prost_build::configure().compile_fds(protox::compile(["echo.proto"], ["proto"])?)?;
    Ok(())
}
