//! The calls that ask limits: the client's stream of frames, and a plain check for people and other languages.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::ready;
use futures::{Stream, StreamExt, stream};
use quorate_client::{Client, ErrorKind, Fallback, Question, limit};
use quorate_proto::convert::receipt_to_wire;
use quorate_proto::v1;
use tokio::sync::OnceCell;
use tonic::{Request, Response, Status, Streaming};

use super::frames::Frames;
use super::ingress::Ingress;
use super::reports::Reports;
use super::topology::Newest;
use crate::caps;

/// The service.
#[derive(Debug)]
pub struct Checks {
    ingress: Arc<Ingress>,
    /// This node's own address; plain checks are routed from here as any client's are.
    address: String,
    client: OnceCell<Client>,
    reports: Arc<Reports>,
    newest: Newest,
}

impl Checks {
    /// The service behind that ingress, on the node of that address; `newest` says which policies are in force.
    pub fn new(ingress: Arc<Ingress>, address: String, reports: Arc<Reports>, newest: Newest) -> Checks {
        Checks { ingress, address, client: OnceCell::new(), reports, newest }
    }

    async fn client(&self) -> Result<&Client, Status> {
        if !self.ingress.is_open() {
            return Err(Status::failed_precondition(super::NO_CLUSTER));
        }
        // Whoever asks here may reset or change a policy elsewhere, and is to see it at once: nothing is answered from memory.
        let builder = || Client::builder().endpoints([&self.address]).remember_denials(Duration::ZERO);
        let connect = || builder().connect_timeout(caps::UNARY_PATIENCE).connect();
        self.client.get_or_try_init(connect).await.map_err(|error| Status::unavailable(error.to_string()))
    }
}

#[tonic::async_trait]
impl v1::checks_server::Checks for Checks {
    type FramesStream = Pin<Box<dyn Stream<Item = Result<v1::FrameAnswer, Status>> + Send>>;

    async fn frames(&self, request: Request<Streaming<v1::Frame>>) -> Result<Response<Self::FramesStream>, Status> {
        // A message that cannot be read ends the input. What was taken before is still answered, then it is told why.
        let broken = Arc::new(OnceLock::new());
        let told = Arc::clone(&broken);
        let input =
            request.into_inner().scan((), move |(), frame| ready(frame.map_err(|status| _ = told.set(status)).ok()));
        let answers = Frames::new(Arc::clone(&self.ingress), input).map(Ok);
        let why = stream::once(ready(broken)).filter_map(|broken| ready(broken.get().cloned().map(Err)));
        Ok(Response::new(Box::pin(answers.chain(why))))
    }

    async fn check(&self, request: Request<v1::CheckRequest>) -> Result<Response<v1::CheckResponse>, Status> {
        let patience = timeout(&request).unwrap_or(caps::UNARY_PATIENCE).min(caps::UNARY_PATIENCE);
        let request = request.into_inner();
        let client = self.client().await?;
        let named = |named: &'_ v1::NamedLimit| named.cost.unwrap_or(1);
        let limits = request.limits.iter().map(|one| limit(&one.policy, one.key.as_str()).cost(named(one)));
        let mut question: Question<'_> = limits.collect();
        if request.peek {
            question = question.peek();
        }
        if let Some(us) = request.max_delay_us {
            question = question.max_delay(Duration::from_micros(us));
        }
        // A node speaks for the cluster, and decides nothing by itself: what to do without it is for the caller to say.
        let asked = client.check_many([question]).deadline(patience).on_unavailable(Fallback::FailClosed);
        let answered = asked.await;
        match answered.into_iter().next() {
            Some(Ok(decision)) => Ok(Response::new(decision_to_wire(&decision))),
            Some(Err(error)) => Err(status(&error)),
            None => Err(Status::internal("one question got no answer")),
        }
    }

    async fn report_false_positive(
        &self,
        request: Request<v1::FalsePositiveReport>,
    ) -> Result<Response<v1::FalsePositiveReported>, Status> {
        let newest = self.newest.borrow().clone();
        let Some(update) = newest else { return Err(Status::failed_precondition(super::NO_CLUSTER)) };
        let in_force = update.policies.as_ref().map_or(&[][..], |set| &set.policies);
        self.reports.take(&request.into_inner(), in_force)?;
        Ok(Response::new(v1::FalsePositiveReported {}))
    }
}

fn us(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn decision_to_wire(decision: &quorate_client::Decision) -> v1::CheckResponse {
    let limit = |one: &quorate_client::LimitDecision| v1::LimitAnswer {
        policy: one.policy.to_string(),
        key: one.key.clone(),
        allowed: one.allowed,
        charged: one.charged,
        shadow: one.shadow,
        limit: one.limit,
        remaining: one.remaining,
        reset_after_us: us(one.reset_after),
        retry_after_us: one.retry_after.map(us),
        delay_us: one.delay.map(us),
    };
    v1::CheckResponse {
        allowed: decision.allowed,
        shadow_denied: decision.shadow_denied,
        degraded: decision.degraded,
        retry_after_us: decision.retry_after.map(us),
        delay_us: decision.delay.map(us),
        limits: decision.limits.iter().map(limit).collect(),
        policy_version: decision.policy_version.0,
        receipt: Some(receipt_to_wire(&decision.receipt)),
    }
}

fn status(error: &quorate_client::Error) -> Status {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Invalid => Status::invalid_argument(text),
        ErrorKind::UnknownPolicy | ErrorKind::NotFound => Status::not_found(text),
        ErrorKind::TableFull | ErrorKind::Overloaded => Status::resource_exhausted(text),
        ErrorKind::Unavailable | ErrorKind::NoLeader | ErrorKind::Closed => Status::unavailable(text),
        ErrorKind::Deadline => Status::deadline_exceeded(text),
        ErrorKind::Forbidden => Status::permission_denied(text),
        ErrorKind::Conflict => Status::aborted(text),
        _ => Status::unknown(text),
    }
}

/// The caller's `grpc-timeout`, if it sent one: at most eight digits and a unit.
fn timeout<T>(request: &Request<T>) -> Option<Duration> {
    let text = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}
