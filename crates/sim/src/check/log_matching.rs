//! *Log matching*: an entry that was applied anywhere is the entry of its index everywhere, for ever.

use quorate_core::GroupId;

use crate::net::Machine;
use crate::tap::{Applied, Seen};

/// A machine applied an entry; whether it is the first to.
pub fn applied(seen: &mut Seen, machine: Machine, group: GroupId, index: u64, entry: Applied) -> Result<bool, String> {
    let log = seen.logs.entry(group).or_default();
    let Some(first) = log.get(&index) else {
        log.insert(index, entry);
        return Ok(true);
    };
    if first.same(&entry) {
        return Ok(false);
    }
    Err(format!(
        "machine {machine} applied another entry {index} of {group}: one of term {}, where one of term {} was",
        entry.term, first.term
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_entry_at_the_same_index_is_found() {
        let mut seen = Seen::default();
        let entry = |term, byte: u8| Applied { term, kind: 1, payload: vec![byte].into(), seen: 0 };
        assert_eq!(applied(&mut seen, 0, GroupId(1), 7, entry(2, 1)), Ok(true));
        assert_eq!(applied(&mut seen, 1, GroupId(1), 7, entry(2, 1)), Ok(false));
        assert!(applied(&mut seen, 2, GroupId(1), 7, entry(2, 2)).is_err());
        assert!(applied(&mut seen, 2, GroupId(1), 7, entry(3, 1)).is_err());
    }
}
