//! What machine it was measured on.

use std::fs::read_to_string;

/// In one line: processor, cores, memory, system.
pub(crate) fn describe() -> String {
    let field = |file: &str, name: &str| {
        let text = read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kib: u64 = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
    let system = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {}, {} GiB, Linux {}", field("/proc/cpuinfo", "model name"), kib >> 20, system.trim())
}

/// The part of the last minute in which somebody waited for a core, in percent, if the kernel tells.
pub(crate) fn contention() -> Option<f64> {
    let text = read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg60=")?.parse().ok())
}
