//! *Digest equality*: replicas that have applied as much are the same, and the same as a shard that applied the whole log in
//! one go, without a snapshot or a restart.

use quorate_core::{GroupId, Index, Shard, Term};

use super::{Found, Logs, Secrets};
use crate::tap::Seen;

/// Replays each log and holds every sighting against it.
pub fn check(seen: &Seen, logs: &Logs, secrets: &Secrets) -> Found {
    for (shard, arc) in &secrets.shards {
        let mut whole = Shard::new(*shard, *arc);
        let Some(log) = logs.get(shard) else { continue };
        for (index, entry) in log {
            if let Some(batch) = &entry.batch {
                whole.apply(Term(entry.term), Index(*index), batch, false);
            }
            let digest = whole.digest().0;
            let sightings = seen.digests.get(&(GroupId::from(*shard), *index)).into_iter().flatten();
            for sighting in sightings {
                if sighting.digest != digest {
                    return Err(format!(
                        "machine {} is not what the log makes of {shard} at {index}",
                        sighting.machine
                    ));
                }
            }
        }
    }
    Ok(())
}
