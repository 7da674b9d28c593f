//! A service behind a `RateLimitLayer` for each failure policy, asked at a steady pace whatever becomes of its answers.
//!
//! Open loop: a request is made when it is due, not when another was answered. So a service that holds its callers up is seen
//! to do so by all of them, and nothing waits for a slow one.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use quorate_client::identity::{Header, IdentityError};
use quorate_client::layer::{Decided, RateLimitLayer};
use quorate_client::{Client, DecidedBy, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _};

/// How often it is looked whether a request is due.
const TICK: Duration = Duration::from_millis(1);
const KEY: &str = "x-user";

/// What was answered, and who decided it.
#[derive(Clone, Debug)]
pub enum Said {
    /// The layer had a decision.
    Decided(Decided),
    /// It had none: of that kind was the error.
    Nothing(ErrorKind),
    /// Neither a decision nor an error was found with the answer.
    Unmarked,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Which policy it was asked of, as a place in the list that the service was made with.
    pub policy: usize,
    /// Whose request it was.
    pub key: usize,
    /// What the caller of [`Load::phase`] had set when it was made.
    pub phase: usize,
    /// When it was made.
    pub asked: Instant,
    /// How long it was under way.
    pub took: Duration,
    /// What a caller sees.
    pub status: StatusCode,
    /// Whether headers tell of the limit.
    pub tells_limit: bool,
    /// Whether it says when to come again.
    pub tells_wait: bool,
    /// What was decided.
    pub said: Said,
}

impl Answer {
    /// When it came.
    pub fn at(&self) -> Instant {
        self.asked + self.took
    }

    /// The decision, if there was one.
    pub fn decided(&self) -> Option<&Decided> {
        match &self.said {
            Said::Decided(decided) => Some(decided),
            _ => None,
        }
    }

    /// Whether the cluster itself has answered: neither this process for it, nor a denial that was remembered.
    pub fn is_of_cluster(&self) -> bool {
        self.decided().is_some_and(|decided| decided.decided_by == DecidedBy::Cluster && !decided.remembered)
    }

    /// Whether it was answered without the cluster: by this process, by nobody, or not at all.
    pub fn is_without_cluster(&self) -> bool {
        self.decided().is_none_or(|decided| decided.decided_by != DecidedBy::Cluster)
    }
}

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Requests of a second, over all policies and keys.
    pub rate: u32,
    /// Keys of each policy.
    pub keys: usize,
}

type Protected = BoxCloneSyncService<Request<()>, Response<()>, Infallible>;

/// Requests that are made one after another until they are told to end.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    driver: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    phase: AtomicUsize,
    served: AtomicU64,
    answers: Mutex<Vec<Answer>>,
}

impl Load {
    /// Begins to ask, of each of the policies in turn.
    ///
    /// # Errors
    ///
    /// None, as long as the name of the header with the key is one.
    pub fn begin(client: &Client, policies: &[&str], pace: Pace) -> Result<Load, IdentityError> {
        let shared = Arc::new(Shared::default());
        let protect = |policy: &&str| protected(client, policy, &shared);
        let services = policies.iter().map(protect).collect::<Result<Vec<_>, _>>()?;
        let driver = tokio::spawn(drive(services, pace, Arc::clone(&shared)));
        Ok(Load { shared, driver })
    }

    /// Marks what is asked from now on.
    pub fn phase(&self, phase: usize) {
        self.shared.phase.store(phase, Ordering::Release);
    }

    /// Looks at what was answered so far.
    pub fn look<T>(&self, look: impl FnOnce(&[Answer]) -> T) -> T {
        look(&self.shared.lock())
    }

    /// Asks nothing more, waits for what is under way, and returns all answers; and how many requests the service got to see.
    ///
    /// # Panics
    ///
    /// When a request has.
    pub async fn end(self) -> (Vec<Answer>, u64) {
        self.shared.over.store(true, Ordering::Release);
        self.driver.await.expect("no request panics");
        (std::mem::take(&mut *self.shared.lock()), self.shared.served.load(Ordering::Acquire))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service that does nothing but be reached, behind the limit of that policy.
fn protected(client: &Client, policy: &str, shared: &Arc<Shared>) -> Result<Protected, IdentityError> {
    let layer =
        RateLimitLayer::new(client.clone(), policy).key(Header::new(KEY)?).on_no_decision(|none, mut response| {
            response.extensions_mut().insert(none.error.kind());
            response
        });
    let shared = Arc::clone(shared);
    let service = tower::service_fn(move |request: Request<()>| {
        shared.served.fetch_add(1, Ordering::Release);
        let mut response = Response::new(());
        if let Some(decided) = request.extensions().get::<Decided>() {
            response.extensions_mut().insert(decided.clone());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let service = layer.layer(service).map_response(|response: Response<_>| response.map(drop));
    Ok(BoxCloneSyncService::new(service))
}

async fn drive(services: Vec<Protected>, pace: Pace, shared: Arc<Shared>) {
    let (begun, mut made, mut under_way) = (Instant::now(), 0, JoinSet::new());
    while !shared.over.load(Ordering::Acquire) {
        let due = begun.elapsed().as_micros() * u128::from(pace.rate) / 1_000_000;
        while (made as u128) < due {
            let (policy, key) = (made % services.len(), made / services.len() % pace.keys);
            made += 1;
            under_way.spawn(ask(services[policy].clone(), (policy, key), Instant::now(), Arc::clone(&shared)));
        }
        while let Some(ended) = under_way.try_join_next() {
            ended.expect("no request panics");
        }
        tokio::time::sleep(TICK).await;
    }
    while let Some(ended) = under_way.join_next().await {
        ended.expect("no request panics");
    }
}

async fn ask(service: Protected, (policy, key): (usize, usize), asked: Instant, shared: Arc<Shared>) {
    let phase = shared.phase.load(Ordering::Acquire);
    let request = Request::get("/").header(KEY, key_name(key)).body(()).expect("it is one");
    let response = match service.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (decided, error) = (response.extensions().get::<Decided>(), response.extensions().get::<ErrorKind>());
    let said = match (decided, error) {
        (Some(decided), None) => Said::Decided(decided.clone()),
        (None, Some(kind)) => Said::Nothing(*kind),
        _ => Said::Unmarked,
    };
    let tells_limit = response.headers().keys().any(|name| name.as_str().contains("ratelimit"));
    let tells_wait = response.headers().contains_key(http::header::RETRY_AFTER);
    let (status, took) = (response.status(), asked.elapsed());
    shared.lock().push(Answer { policy, key, phase, asked, took, status, tells_limit, tells_wait, said });
}

/// The name of a key, as the policies are asked about it.
pub fn key_name(key: usize) -> String {
    format!("user-{key}")
}
