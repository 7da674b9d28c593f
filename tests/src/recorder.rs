//! What the client counts, as an operator's recorder would see it.
//!
//! One for the whole process, since that is what the `metrics` facade has; nothing is ever taken out of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Everything counted so far, by its name and labels: `name label=value label=value`, labels in their order.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    all: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
}

/// How often something was timed.
#[derive(Debug)]
struct Times(Arc<AtomicU64>);

impl Counted {
    /// The recorder of this process, which counts from the first time that it is asked for.
    ///
    /// # Panics
    ///
    /// When another was installed before.
    pub fn here() -> &'static Counted {
        static HERE: OnceLock<Counted> = OnceLock::new();
        HERE.get_or_init(|| {
            let counted = Counted::default();
            metrics::set_global_recorder(counted.clone()).expect("no other recorder is installed");
            counted
        })
    }

    /// All counters, and how often each histogram was recorded to, of that name: by their labels.
    pub fn of(&self, name: &str) -> BTreeMap<String, u64> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let of_name = |(key, count): (&String, &Arc<AtomicU64>)| {
            let labels = key.strip_prefix(name)?.strip_prefix(' ')?;
            Some((labels.to_owned(), count.load(Ordering::Acquire)))
        };
        all.iter().filter_map(of_name).collect()
    }

    /// The level of a gauge without labels; 0 if it was never set.
    pub fn level(&self, name: &str) -> f64 {
        f64::from_bits(self.cell(name.to_owned()).load(Ordering::Acquire))
    }

    fn cell(&self, name: String) -> Arc<AtomicU64> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name).or_default())
    }

    fn register(&self, key: &Key) -> Arc<AtomicU64> {
        let mut labels: Vec<_> = key.labels().map(|label| format!(" {}={}", label.key(), label.value())).collect();
        labels.sort();
        self.cell(format!("{}{}", key.name(), labels.concat()))
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Times(self.register(key))))
    }
}

impl HistogramFn for Times {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Release);
    }
}
