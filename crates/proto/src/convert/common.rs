//! Receipts, marks, costs and refusals on the wire.

use bytes::Bytes;
use quorate_core::{Cost, Index, Receipt, Refusal, ShardId, Span, Stamp, Term, caps};

use super::Malformed;
use crate::v1;

/// A receipt as it goes over the wire.
///
/// ```
/// use quorate_core::Receipt;
/// use quorate_proto::convert::{receipt_from_wire, receipt_to_wire};
/// let receipt = Receipt { place: 2, ..Receipt::default() };
/// assert_eq!(receipt_from_wire(Some(&receipt_to_wire(&receipt))), Ok(receipt));
/// ```
pub fn receipt_to_wire(receipt: &Receipt) -> v1::Receipt {
    v1::Receipt {
        shard: receipt.shard.0,
        term: receipt.term.0,
        index: receipt.index.0,
        place: receipt.place,
        stamp_us: receipt.stamp.0,
    }
}

/// A receipt as it came.
///
/// # Errors
/// Where it is missing, or its stamp is no moment.
pub fn receipt_from_wire(receipt: Option<&v1::Receipt>) -> Result<Receipt, Malformed> {
    let Some(receipt) = receipt else {
        return Err(Malformed::new("receipt", "it is missing; send the one that came with the answer"));
    };
    Ok(Receipt {
        shard: ShardId(receipt.shard),
        term: Term(receipt.term),
        index: Index(receipt.index),
        place: receipt.place,
        stamp: stamp("receipt.stamp_us", receipt.stamp_us)?,
    })
}

/// A charge's mark: 16 bytes, the lowest first; nothing where there is none.
///
/// ```
/// use quorate_proto::convert::{mark_from_wire, mark_to_wire};
/// assert_eq!(mark_from_wire(&mark_to_wire(Some(-7))), Ok(Some(-7)));
/// assert!(mark_to_wire(None).is_empty());
/// ```
pub fn mark_to_wire(mark: Option<i128>) -> Bytes {
    mark.map_or_else(Bytes::new, |mark| Bytes::copy_from_slice(&mark.to_le_bytes()))
}

/// A charge's mark as it came.
///
/// # Errors
/// Where it is neither 16 bytes nor none.
pub fn mark_from_wire(mark: &[u8]) -> Result<Option<i128>, Malformed> {
    if mark.is_empty() {
        return Ok(None);
    }
    match mark.try_into() {
        Ok(bytes) => Ok(Some(i128::from_le_bytes(bytes))),
        Err(_) => Err(Malformed::new("mark", format!("it has {} bytes; allowed are 16 or none", mark.len()))),
    }
}

/// Why a shard decided nothing, as an error of one place.
///
/// ```
/// use quorate_core::{PolicyId, Refusal};
/// use quorate_proto::{convert::refusal_to_wire, v1::ErrorCode};
/// assert_eq!(refusal_to_wire(&Refusal::UnknownPolicy(PolicyId(9))).code(), ErrorCode::UnknownPolicy);
/// ```
pub fn refusal_to_wire(refusal: &Refusal) -> v1::Error {
    let code = match refusal {
        Refusal::UnknownPolicy(_) => v1::ErrorCode::UnknownPolicy,
        Refusal::CostAboveMax { .. } => v1::ErrorCode::CostAboveMax,
        Refusal::TableFull => v1::ErrorCode::TableFull,
        Refusal::UnknownSession(_) => v1::ErrorCode::UnknownSession,
        Refusal::SessionSpan => v1::ErrorCode::SessionSpan,
        Refusal::Acknowledged => v1::ErrorCode::Acknowledged,
        Refusal::CostTooLarge | Refusal::NotReservable | Refusal::Invalid(_) => v1::ErrorCode::Invalid,
    };
    v1::Error { code: code.into(), message: refusal.to_string(), ..v1::Error::default() }
}

/// A moment: 0 to 2^62.
pub(super) fn stamp(field: &'static str, us: i64) -> Result<Stamp, Malformed> {
    if (0..=caps::LONGEST_US).contains(&us) {
        Ok(Stamp(us))
    } else {
        Err(Malformed::new(field, format!("{us} microseconds are no moment; allowed are 0 to 2^62")))
    }
}

/// A cost: 0 to 10^12.
pub(super) fn cost(field: &'static str, at: usize, units: u64) -> Result<Cost, Malformed> {
    Cost::new(units).ok_or_else(|| Malformed::at(field, at, format!("{units} units; allowed are 0 to {}", Cost::MAX)))
}

/// A span that is sent plus one, so that 0 says that there is none.
pub(super) fn optional_span(field: &'static str, at: usize, plus_one: u64) -> Result<Option<Span>, Malformed> {
    match plus_one {
        0 => Ok(None),
        _ if plus_one - 1 <= caps::LONGEST_US as u64 => Ok(Some(Span((plus_one - 1) as i64))),
        _ => Err(Malformed::at(
            field,
            at,
            format!("{plus_one} (microseconds plus one) is no span; allowed are 0 to 2^62"),
        )),
    }
}

/// The inverse of [`optional_span`].
pub(super) fn span_plus_one(span: Option<Span>) -> u64 {
    span.map_or(0, |span| span.0.max(0) as u64 + 1)
}
