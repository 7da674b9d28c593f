//! *One leader a term*: in one term of a group, one node at most sends appends.

use quorate_core::{GroupId, NodeId};

use crate::tap::Seen;

/// An append of that term came from that node; whether it is the term's first.
pub fn append(seen: &mut Seen, group: GroupId, term: u64, node: NodeId) -> Result<bool, String> {
    match seen.leaders.insert((group, term), node) {
        None => Ok(true),
        Some(before) if before == node => Ok(false),
        Some(before) => Err(format!("both {before} and {node} lead {group} in term {term}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_leader_is_found() {
        let mut seen = Seen::default();
        assert_eq!(append(&mut seen, GroupId(1), 4, NodeId(1)), Ok(true));
        assert_eq!(append(&mut seen, GroupId(1), 4, NodeId(1)), Ok(false));
        assert_eq!(append(&mut seen, GroupId(2), 4, NodeId(2)), Ok(true));
        let found = append(&mut seen, GroupId(1), 4, NodeId(3)).map(|_| ());
        assert_eq!(found.unwrap_err(), "both n1 and n3 lead g1 in term 4");
    }
}
