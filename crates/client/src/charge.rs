//! A charge as a token: it can be given back once, because giving it back consumes it.

use quorate_core::{Cost, PolicyId, Receipt};
use quorate_proto::convert::ChargeRef;

use crate::decision::Decision;

/// What a granted check charged, to be given back by [`Client::refund`](crate::Client::refund).
///
/// It is neither `Clone` nor `Copy`, so the types let it be refunded once:
///
/// ```compile_fail
/// # async fn f(client: quorate_client::Client) -> Result<(), quorate_client::Error> {
/// let decision = client.check("per-user", "alice").await?;
/// client.refund(decision).await?;
/// client.refund(decision).await?; // use of moved value
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a charge that is not refunded stays charged"]
pub struct Charge {
    /// One for each shard that charged; none where nothing was charged.
    pub(crate) parts: Vec<Part>,
}

/// What one shard charged, all in one command.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) receipt: Receipt,
    pub(crate) items: Vec<Item>,
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) policy: PolicyId,
    pub(crate) key: Box<[u8]>,
    pub(crate) cost: Cost,
    pub(crate) mark: Option<i128>,
}

impl Charge {
    /// Where and when it was charged, shard by shard.
    pub fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.parts.iter().map(|part| &part.receipt)
    }

    pub(crate) fn of(decision: &Decision) -> Option<Charge> {
        if decision.taken {
            return None;
        }
        let mut parts: Vec<Part> = Vec::new();
        for one in decision.limits.iter().filter(|one| one.charged) {
            let item = Item { policy: one.id, key: one.key.as_bytes().into(), cost: one.cost(), mark: one.mark };
            match parts.iter_mut().find(|part| part.receipt == one.receipt) {
                Some(part) => part.items.push(item),
                None => parts.push(Part { receipt: one.receipt, items: vec![item] }),
            }
        }
        (!parts.is_empty()).then_some(Charge { parts })
    }
}

/// The decision's charge; one that gives back nothing where nothing was charged, or where it was taken out before.
impl From<Decision> for Charge {
    fn from(decision: Decision) -> Self {
        Charge::of(&decision).unwrap_or(Charge { parts: Vec::new() })
    }
}

impl Part {
    pub(crate) fn charges(&self) -> Vec<ChargeRef<'_>> {
        self.items
            .iter()
            .map(|item| ChargeRef { policy: item.policy, key: &item.key, cost: item.cost, mark: item.mark })
            .collect()
    }

    /// A key of it, which tells the shard that holds all of them.
    pub(crate) fn key(&self) -> &[u8] {
        self.items.first().map_or(&[], |item| &item.key)
    }

    /// Bytes of keys.
    pub(crate) fn bytes(&self) -> usize {
        self.items.iter().map(|item| item.key.len()).sum()
    }
}
