//! Nodes that are in no cluster yet, over a connection of their own.

use async_trait::async_trait;
use quorate_proto::v1;
use tonic::{Response, Status};

use super::super::Newcomers;
use super::{client, dial, words};
use crate::caps;

/// Reaches them over gRPC.
#[derive(Clone, Copy, Debug, Default)]
pub struct TonicNewcomers;

#[async_trait]
impl Newcomers for TonicNewcomers {
    async fn identify(&self, address: &str) -> Result<v1::IdentifyResponse, String> {
        let asked = async {
            client(dial(address).await?).identify(v1::IdentifyRequest {}).await.map_err(|s| told(address, &s))
        };
        answered(address, tokio::time::timeout(caps::JOIN_PATIENCE, asked).await)
    }

    async fn assign(&self, address: &str, request: v1::AssignRequest) -> Result<(), String> {
        let asked =
            async { client(dial(address).await?).assign(request).await.map_err(|status| told(address, &status)) };
        answered(address, tokio::time::timeout(caps::JOIN_PATIENCE, asked).await).map(|_| ())
    }
}

fn told(address: &str, status: &Status) -> String {
    format!("{address}: {}", words(status))
}

fn answered<T>(
    address: &str,
    in_time: Result<Result<Response<T>, String>, tokio::time::error::Elapsed>,
) -> Result<T, String> {
    match in_time {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(format!("{address} gave no answer within {:?}", caps::JOIN_PATIENCE)),
    }
}
