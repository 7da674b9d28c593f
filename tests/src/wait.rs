//! Waiting for what must become so.

use std::future::Future;
use std::time::Duration;

/// Far beyond what anything here takes, also on a machine that does ten other things.
const BOUND: Duration = Duration::from_secs(90);
/// How often it is asked.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is an answer.
///
/// # Panics
///
/// After a minute and a half, naming what did not come.
pub async fn until<T, F, Fut>(what: &str, mut ask: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let waited = tokio::time::timeout(BOUND, async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("waited {BOUND:?} in vain for: {what}"))
}
