//! Load on a protected HTTP service, by callers that do as they are told: who is denied waits for as long as `Retry-After`
//! says, and so finds out whether it was true.
//!
//! A wait of N whole seconds is true if the same request is granted after N, and still denied shortly before N - 1: waits are
//! rounded up, so that the exact one lies between. Both hold only for who asks alone under his key.

pub mod tally;
pub mod target;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use self::tally::{Probe, Tally};

/// How long before a wait's last second it is tried whether one is denied still.
const EARLY: Duration = Duration::from_millis(100);

/// A service that is asked.
pub trait Service: Send + 'static {
    /// Sends one request; its answer, or the kind of failure.
    fn send(&mut self) -> impl Future<Output = Result<Answer, &'static str>> + Send;
}

/// What a service answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// What `Retry-After` says, if it is there.
    pub retry_after: Option<Wait>,
}

impl Answer {
    fn is_refusal(self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

/// What a `Retry-After` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// So many seconds.
    Seconds(u64),
    /// Something else than a number of seconds.
    Unreadable,
}

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When to end.
    pub duration: Duration,
    /// Requests of all callers together, at the most.
    pub requests: Option<u64>,
    /// How long a request may take.
    pub timeout: Duration,
}

/// A run under way.
#[derive(Debug, Default)]
pub struct Run {
    tally: Mutex<Tally>,
    stop: AtomicBool,
    taken: AtomicU64,
}

impl Run {
    /// Lets every caller end after the request that it waits for.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// What came of it so far.
    pub fn tally<T>(&self, look: impl FnOnce(&mut Tally) -> T) -> T {
        look(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether one more request may be sent.
    fn take(&self, plan: &Plan) -> bool {
        let over = || plan.requests.is_some_and(|most| self.taken.fetch_add(1, Ordering::Relaxed) >= most);
        !self.stop.load(Ordering::Relaxed) && !over()
    }
}

/// Runs a caller for each service to the end; how long it took.
pub async fn run<S: Service>(run: &Arc<Run>, plan: Plan, services: impl IntoIterator<Item = S>) -> Duration {
    let began = Instant::now();
    let call = |service| tokio::spawn(call(Arc::clone(run), plan, service, began + plan.duration));
    let callers: Vec<_> = services.into_iter().map(call).collect();
    for caller in callers {
        // A caller only ends early by a panic, which has been reported already.
        let _ = caller.await;
    }
    began.elapsed()
}

/// Sends one request and counts it; when it was sent, and the answer.
async fn send(run: &Run, plan: &Plan, service: &mut impl Service) -> Option<(Instant, Answer)> {
    if !run.take(plan) {
        return None;
    }
    let sent = Instant::now();
    let answer = timeout(plan.timeout, service.send()).await.unwrap_or(Err("timeout"));
    run.tally(|tally| tally.add(answer, sent.elapsed()));
    match answer {
        Ok(answer) => Some((sent, answer)),
        Err(_) => Some((sent, Answer { status: 0, retry_after: None })),
    }
}

async fn call(run: Arc<Run>, plan: Plan, mut service: impl Service, ends: Instant) {
    let mut denied = None;
    while Instant::now() < ends {
        let answered = match denied.take() {
            None => send(&run, &plan, &mut service).await,
            Some((sent, wait)) => waited(&run, &plan, &mut service, (sent, wait), ends).await,
        };
        let Some((sent, answer)) = answered else { return };
        denied = match answer.retry_after {
            Some(Wait::Seconds(seconds)) if answer.is_refusal() => Some((sent, seconds)),
            _ => None,
        };
        if answer.status == 0 {
            // Whatever is wrong, a moment's rest keeps it from being all that this tool does.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Waits as told, asking once too early where the wait is long enough to know what has to come of it; the answer after the
/// wait. None where the run ends first.
async fn waited(
    run: &Run,
    plan: &Plan,
    service: &mut impl Service,
    (sent, seconds): (Instant, u64),
    ends: Instant,
) -> Option<(Instant, Answer)> {
    let told = Instant::now();
    let due = told + Duration::from_secs(seconds);
    if due >= ends {
        run.tally(|tally| tally.cut_short += 1);
        return None;
    }
    // Counted from when the denied request was sent: it was decided later than that.
    let early = sent + Duration::from_secs(seconds.saturating_sub(1)).saturating_sub(EARLY);
    if seconds >= 2 && early > told {
        sleep_until(early).await;
        let answered = send(run, plan, service).await?;
        let answer = answered.1;
        run.tally(|tally| tally.early.add(Probe { held: answer.is_refusal(), answered: answer.status != 0 }));
        if answer.status != 0 && !answer.is_refusal() {
            // It was charged, so what comes of the wait says nothing any more.
            return Some(answered);
        }
    }
    sleep_until(due).await;
    let answered = send(run, plan, service).await?;
    let answer = answered.1;
    run.tally(|tally| tally.on_time.add(Probe { held: !answer.is_refusal(), answered: answer.status != 0 }));
    Some(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grants `burst` requests, then one each `every`; says the wait that `told` makes of the true one.
    struct Limited {
        every: Duration,
        told: fn(Duration) -> Option<Wait>,
        next: Instant,
    }

    impl Service for Limited {
        async fn send(&mut self) -> Result<Answer, &'static str> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = Instant::now();
            if now < self.next {
                return Ok(Answer { status: 429, retry_after: (self.told)(self.next - now) });
            }
            self.next = now + self.every;
            Ok(Answer { status: 200, retry_after: None })
        }
    }

    fn up(wait: Duration) -> Option<Wait> {
        Some(Wait::Seconds(wait.as_millis().div_ceil(1000) as u64))
    }

    fn down(wait: Duration) -> Option<Wait> {
        Some(Wait::Seconds(wait.as_secs()))
    }

    fn twice(wait: Duration) -> Option<Wait> {
        Some(Wait::Seconds(2 * wait.as_secs() + 2))
    }

    const PLAN: Plan = Plan { duration: Duration::from_secs(60), requests: None, timeout: Duration::from_secs(1) };

    fn ran(plan: Plan, callers: usize, every: u64, told: fn(Duration) -> Option<Wait>) -> Tally {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let under_way = Arc::new(Run::default());
        runtime.block_on(async {
            let next = Instant::now();
            let service = |_| Limited { every: Duration::from_millis(every), told, next };
            run(&under_way, plan, (0..callers).map(service)).await
        });
        under_way.tally(std::mem::take)
    }

    #[test]
    fn true_waits_are_found_true() {
        let tally = ran(PLAN, 3, 4_500, up);
        assert!(tally.on_time.held >= 30 && tally.on_time.broken == 0, "{:?}", (tally.on_time, tally.early));
        assert!(tally.early.held >= 30 && tally.early.broken == 0, "{:?}", (tally.on_time, tally.early));
        assert_eq!(tally.statuses[&200], tally.on_time.held + 3, "granted at once, and after each wait");
        assert_eq!(tally.cut_short, 3);
    }

    #[test]
    fn waits_that_are_too_short_are_found() {
        let tally = ran(PLAN, 1, 4_500, down);
        assert!(tally.on_time.broken > 0 && tally.early.broken == 0, "{:?}", (tally.on_time, tally.early));
    }

    #[test]
    fn waits_that_are_too_long_are_found() {
        let tally = ran(PLAN, 1, 4_500, twice);
        assert!(tally.early.broken > 0 && tally.on_time.broken == 0, "{:?}", (tally.on_time, tally.early));
    }

    #[test]
    fn a_wait_of_a_second_cannot_be_tried_early() {
        let tally = ran(PLAN, 1, 900, up);
        assert!(
            tally.on_time.held > 50 && tally.early.held + tally.early.broken == 0,
            "{:?}",
            (tally.on_time, tally.early)
        );
    }

    #[test]
    fn it_ends_by_count_as_well() {
        let tally = ran(Plan { requests: Some(7), ..PLAN }, 2, 1, up);
        assert_eq!(tally.latency.len(), 7);
    }

    #[test]
    fn a_service_that_says_no_wait_is_asked_on() {
        let tally = ran(Plan { requests: Some(100), ..PLAN }, 1, 10_000, |_| None);
        assert_eq!((tally.statuses[&429], tally.without_wait), (99, 99));
    }

    #[test]
    fn what_takes_too_long_is_a_failure() {
        struct Stuck;
        impl Service for Stuck {
            async fn send(&mut self) -> Result<Answer, &'static str> {
                std::future::pending().await
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let under_way = Arc::new(Run::default());
        runtime.block_on(run(&under_way, Plan { duration: Duration::from_secs(10), ..PLAN }, [Stuck]));
        assert_eq!(under_way.tally(|tally| tally.failures["timeout"]), 10);
    }
}
