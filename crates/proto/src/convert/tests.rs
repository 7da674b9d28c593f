//! What is packed comes back as it was; what is hostile gets an error that names the column.

use proptest::prelude::*;
use quorate_core::*;

use super::*;
use crate::v1;

/// A stand-in for the node's hashing that tells keys and policies apart.
fn print(policy: PolicyId, key: &[u8]) -> Fingerprint {
    let fold = |seed: u64| key.iter().fold(seed, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte) + 1));
    Fingerprint { ring: fold(1), table: fold(u64::from(policy.0) + 7) }
}

fn unpack(frame: &v1::Frame) -> Result<Vec<(u32, Command)>, UnpackError<()>> {
    unpack_frame(frame, |policy, key| Ok(print(policy, key)))
}

type OwnedLimit = (u32, Vec<u8>, u64);

#[derive(Clone, Debug)]
enum Asked {
    Check(Vec<OwnedLimit>, bool, Option<i64>),
    Refund(Receipt, Vec<(OwnedLimit, Option<i128>)>),
    Reserve(Vec<OwnedLimit>, i64),
    Settle(Receipt, i64, Vec<(OwnedLimit, Option<i128>, u64)>),
    Reset(u32, Vec<u8>),
}

fn limit() -> impl Strategy<Value = OwnedLimit> {
    let cost = prop_oneof![3 => Just(1), 1 => 0..=caps::UNITS];
    (any::<u32>(), prop::collection::vec(any::<u8>(), 0..40), cost)
}

fn limits() -> impl Strategy<Value = Vec<OwnedLimit>> {
    prop_oneof![4 => prop::collection::vec(limit(), 1..=1), 1 => prop::collection::vec(limit(), 1..=16)]
}

fn receipt() -> impl Strategy<Value = Receipt> {
    (any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>(), 0..=caps::LONGEST_US).prop_map(
        |(shard, term, index, place, stamp)| Receipt {
            shard: ShardId(shard),
            term: Term(term),
            index: Index(index),
            place,
            stamp: Stamp(stamp),
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    let ttl = 1..=caps::RESERVATION.0;
    let charge = (limit(), any::<Option<i128>>());
    let settled = (limit(), any::<Option<i128>>(), 0..=caps::UNITS);
    prop_oneof![
        8 => (limits(), any::<bool>(), prop::option::of(0..=caps::LONGEST_US)).prop_map(|(l, p, d)| Asked::Check(l, p, d)),
        8 => limits().prop_map(|l| Asked::Check(l, false, None)),
        1 => (receipt(), prop::collection::vec(charge, 1..4)).prop_map(|(r, c)| Asked::Refund(r, c)),
        1 => (limits(), ttl.clone()).prop_map(|(l, t)| Asked::Reserve(l, t)),
        1 => (receipt(), ttl, prop::collection::vec(settled, 1..4)).prop_map(|(r, t, c)| Asked::Settle(r, t, c)),
        1 => (any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(p, k)| Asked::Reset(p, k)),
    ]
}

fn limit_ref((policy, key, units): &OwnedLimit) -> LimitRef<'_> {
    LimitRef { policy: PolicyId(*policy), key, cost: Cost::new(*units).unwrap() }
}

fn charge_ref<'a>((policy, key, units): &'a OwnedLimit, mark: &Option<i128>) -> ChargeRef<'a> {
    ChargeRef { policy: PolicyId(*policy), key, cost: Cost::new(*units).unwrap(), mark: *mark }
}

fn core_limit(limit: &OwnedLimit) -> Limit {
    let LimitRef { policy, key, cost } = limit_ref(limit);
    Limit { policy, key: print(policy, key), cost }
}

fn core_charge(limit: &OwnedLimit, mark: &Option<i128>) -> Charge {
    let Limit { policy, key, cost } = core_limit(limit);
    Charge { policy, key, cost, mark: *mark }
}

fn pack_one(packer: &mut FramePacker, place: u32, asked: &Asked) -> Command {
    match asked {
        Asked::Check(limits, peek, max_delay) => {
            let refs: Vec<_> = limits.iter().map(limit_ref).collect();
            let max_delay = max_delay.map(Span);
            packer.check(place, &refs, *peek, max_delay);
            Command::Check(Check { limits: limits.iter().map(core_limit).collect(), peek: *peek, max_delay })
        }
        Asked::Refund(receipt, charges) => {
            let refs: Vec<_> = charges.iter().map(|(limit, mark)| charge_ref(limit, mark)).collect();
            packer.refund(place, receipt, &refs);
            let charges = charges.iter().map(|(limit, mark)| core_charge(limit, mark)).collect();
            Command::Refund { receipt: receipt.position(), at: receipt.stamp, charges }
        }
        Asked::Reserve(limits, ttl) => {
            let refs: Vec<_> = limits.iter().map(limit_ref).collect();
            packer.reserve(place, &refs, Span(*ttl));
            let limits = limits.iter().map(core_limit).collect();
            Command::Reserve { check: Check { limits, ..Check::default() }, ttl: Span(*ttl) }
        }
        Asked::Settle(receipt, ttl, settled) => {
            let cost = |units: &u64| Cost::new(*units).unwrap();
            let refs: Vec<_> = settled.iter().map(|(limit, mark, to)| (charge_ref(limit, mark), cost(to))).collect();
            packer.settle(place, receipt, Span(*ttl), &refs);
            Command::Settle {
                receipt: receipt.position(),
                at: receipt.stamp,
                ttl: Span(*ttl),
                charges: settled.iter().map(|(limit, mark, _)| core_charge(limit, mark)).collect(),
                actual: settled.iter().map(|(_, _, to)| cost(to)).collect(),
            }
        }
        Asked::Reset(policy, key) => {
            packer.reset(place, PolicyId(*policy), key);
            Command::Reset { policy: PolicyId(*policy), key: print(PolicyId(*policy), key) }
        }
    }
}

fn limit_answer() -> impl Strategy<Value = LimitAnswer> {
    let span = || prop::option::of((0..=caps::LONGEST_US).prop_map(Span));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<u32>(), flags, any::<u64>(), any::<u64>(), span(), span(), span(), any::<Option<i128>>()).prop_map(
        |(policy, (allowed, charged, shadow), limit, remaining, retry_after, reset_after, delay, mark)| LimitAnswer {
            policy: PolicyId(policy),
            ordinal: 0,
            allowed,
            charged,
            shadow,
            limit,
            remaining,
            retry_after,
            reset_after: reset_after.unwrap_or_default(),
            delay,
            mark,
            cost: Cost::ZERO,
        },
    )
}

/// A decision whose whole follows from its parts, as the core's do.
fn decision() -> impl Strategy<Value = Decision> {
    let limits = prop_oneof![4 => prop::collection::vec(limit_answer(), 1..=1), 1 => prop::collection::vec(limit_answer(), 0..=16)];
    (limits, any::<bool>(), any::<bool>(), 1..3_u64).prop_map(|(mut limits, shadow_denied, degraded, version)| {
        for (nth, limit) in limits.iter_mut().enumerate() {
            limit.ordinal = nth as u16;
        }
        let against: Vec<_> = limits.iter().filter(|limit| !limit.allowed && !limit.shadow).cloned().collect();
        let allowed = against.is_empty();
        let never = against.iter().any(|limit| limit.retry_after.is_none());
        Decision {
            allowed,
            shadow_denied,
            degraded,
            retry_after: if never { None } else { against.iter().filter_map(|limit| limit.retry_after).max() },
            delay: if allowed { limits.iter().filter_map(|limit| limit.delay).max() } else { None },
            limits: limits.into(),
            version: PolicyVersion(version),
        }
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        6 => decision().prop_map(Answer::Decision),
        1 => any::<u16>().prop_map(Answer::Undone),
        1 => any::<u64>().prop_map(|id| Answer::SessionOpened(SessionId(id))),
        1 => Just(Answer::Done),
    ]
}

proptest! {
    #[test]
    fn a_frame_comes_back(asked in prop::collection::vec(asked(), 1..40), gaps in prop::collection::vec(0..3_u32, 40), dense: bool) {
        let mut packer = FramePacker::default();
        let (mut place, mut wanted) = (0, Vec::new());
        for (asked, gap) in asked.iter().zip(gaps) {
            place += if dense { 0 } else { gap };
            wanted.push((place, pack_one(&mut packer, place, asked)));
            place += 1;
        }
        prop_assert_eq!(packer.len(), wanted.len());
        prop_assert_eq!(unpack(&packer.pack(&FrameHead::default())), Ok(wanted));
    }

    #[test]
    fn answers_come_back(answers in prop::collection::vec((answer(), receipt(), any::<bool>()), 1..20)) {
        let mut given: Vec<PlaceAnswer> = Vec::new();
        for (at, (answer, receipt, same_entry)) in answers.into_iter().enumerate() {
            let receipt = match given.last() {
                Some(last) if same_entry => Receipt { place: last.receipt.place.wrapping_add(1), ..last.receipt },
                _ => Receipt { shard: ShardId(5), ..receipt },
            };
            given.push(PlaceAnswer { place: at as u32 * 2, receipt, answer });
        }
        let packed = pack_answers(9, ShardId(5), &given);
        let mut back = Vec::new();
        for answer in &packed {
            prop_assert_eq!((answer.tag, answer.shard), (9, 5));
            back.extend(unpack_answer(answer).unwrap());
        }
        back.sort_by_key(|outcome| outcome.place);
        let wanted: Vec<_> = given
            .into_iter()
            .map(|PlaceAnswer { place, receipt, answer }| PlaceOutcome { place, receipt, outcome: Outcome::Answer(answer) })
            .collect();
        prop_assert_eq!(back, wanted);
    }

    #[test]
    fn no_frame_makes_it_panic(
        columns in prop::collection::vec(prop::collection::vec(prop_oneof![0..4_u64, any::<u64>()], 0..4), 9),
        keys in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let short = |at: usize| columns[at].iter().map(|&value| value as u32).collect::<Vec<_>>();
        let frame = v1::Frame {
            places: short(0),
            limit_counts: short(1),
            flags: short(2),
            max_delays_us: columns[3].clone(),
            policies: short(4),
            key_lengths: short(5),
            costs: columns[6].clone(),
            keys: keys.into(),
            ..v1::Frame::default()
        };
        let _ = unpack(&frame);
        let answer = v1::FrameAnswer {
            places: short(0),
            limit_counts: short(1),
            verdicts: short(2),
            policies: short(4),
            ordinals: short(5),
            limit_flags: short(4),
            limits: columns[7].clone(),
            remaining: columns[8].clone(),
            reset_after_us: columns[6].clone(),
            retry_after_us: columns[3].clone(),
            ..v1::FrameAnswer::default()
        };
        let _ = unpack_answer(&answer);
    }
}

fn frame(keys: &[&str]) -> v1::Frame {
    let mut packer = FramePacker::default();
    for (at, key) in keys.iter().enumerate() {
        let limit = LimitRef { policy: PolicyId(1), key: key.as_bytes(), cost: Cost::ONE };
        packer.check(at as u32, &[limit], false, None);
    }
    packer.pack(&FrameHead { shard: ShardId(1), ..FrameHead::default() })
}

#[test]
fn the_commonest_frame_has_three_columns() {
    let frame = frame(&["alice", "bob"]);
    assert_eq!((&frame.policies, &frame.key_lengths, &frame.keys[..]), (&vec![1, 1], &vec![5, 3], &b"alicebob"[..]));
    let others = [frame.places.len(), frame.limit_counts.len(), frame.flags.len(), frame.costs.len()];
    assert_eq!((others, frame.max_delays_us.len()), ([0; 4], 0));
}

#[test]
fn hostile_frames_are_told_what_is_wrong() {
    type Spoil = fn(&mut v1::Frame);
    let cases: [(Spoil, &str); 17] = [
        (|f| f.policies.clear(), "key_lengths: 2 elements; 0 belong to the others"),
        (|f| f.key_lengths[1] = 1025, "key_lengths[1]: a key of 1025 bytes; allowed are 1024"),
        (|f| f.key_lengths[1] = u32::MAX, "key_lengths[1]: a key of 4294967295 bytes; allowed are 1024"),
        (|f| f.key_lengths[1] = 4, "keys: 8 bytes, and key_lengths add up to 9"),
        (|f| f.costs = vec![1], "costs: 1 elements; 2 belong to the others"),
        (|f| f.costs = vec![1, caps::UNITS + 1], "costs[1]: 1000000000001 units; allowed are 0 to 1000000000000"),
        (|f| f.places = vec![3, 3], "places[1]: place 3 comes twice; each command has its own"),
        (|f| f.places = vec![3, 1024], "places[1]: place 1024; allowed are 0 to 1023"),
        (|f| f.places = vec![3, u32::MAX], "places[1]: place 4294967295; allowed are 0 to 1023"),
        (|f| f.flags = vec![0, 2], "flags[1]: 2 has a flag that is not known here; allowed are 0 and 1"),
        (|f| f.limit_counts = vec![0, 2], "limit_counts[0]: 0 limits; allowed are 1 to 16"),
        (|f| f.limit_counts = vec![17], "limit_counts[0]: 17 limits; allowed are 1 to 16"),
        (|f| f.limit_counts = vec![1, 1, 1], "limit_counts: they add up to 3, and policies has 2"),
        (
            |f| f.max_delays_us = vec![0, u64::MAX],
            "max_delays_us[1]: 18446744073709551615 (microseconds plus one) is no span; allowed are 0 to 2^62",
        ),
        (
            |f| f.operations = vec![v1::Operation { place: 2, operation: None }],
            "operation[0]: it is missing, or of a kind that is not known here",
        ),
        (
            |f| f.operations = vec![v1::Operation { place: 0, operation: None }],
            "operations.place[0]: place 0 comes twice; each command has its own",
        ),
        (
            |f| {
                f.operations = (2..1025).map(|place| v1::Operation { place, operation: None }).collect();
            },
            "frame: it has 1025 commands; allowed are 1 to 1024",
        ),
    ];
    for (spoil, wanted) in cases {
        let mut frame = frame(&["alice", "bob"]);
        spoil(&mut frame);
        match unpack(&frame) {
            Err(UnpackError::Malformed(problem)) => assert_eq!(problem.to_string(), wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
}

#[test]
fn hostile_operations_are_told_what_is_wrong() {
    use v1::operation::Operation as O;
    let charge = |mark: &'static [u8]| v1::Charge { policy: 1, key: "k".into(), cost: 1, mark: mark.into() };
    let stamped = |stamp_us| Some(v1::Receipt { stamp_us, ..v1::Receipt::default() });
    let settle =
        |actual, ttl_us| O::Settle(v1::Settle { receipt: stamped(1), charges: vec![charge(b"")], ttl_us, actual });
    let long = "x".repeat(1025);
    let cases = [
        (O::Refund(v1::Refund::default()), "receipt[0]: it is missing; send the one that came with the answer"),
        (O::Refund(v1::Refund { receipt: stamped(1), charges: vec![] }), "charges[0]: 0 limits; allowed are 1 to 16"),
        (
            O::Refund(v1::Refund { receipt: stamped(-1), charges: vec![charge(b"")] }),
            "receipt.stamp_us[0]: -1 microseconds are no moment; allowed are 0 to 2^62",
        ),
        (
            O::Refund(v1::Refund { receipt: stamped(1), charges: vec![charge(b"abc")] }),
            "mark[0]: it has 3 bytes; allowed are 16 or none",
        ),
        (settle(vec![], 1), "actual[0]: 0 elements; 1 belong to the others"),
        (settle(vec![1], 0), "ttl_us[0]: 0 microseconds; allowed are 1 to 3600000000 (1h)"),
        (settle(vec![1], i64::MAX), "ttl_us[0]: 9223372036854775807 microseconds; allowed are 1 to 3600000000 (1h)"),
        (O::Reset(v1::Reset { policy: 1, key: long.into() }), "key[0]: a key of 1025 bytes; allowed are 1024"),
        (O::Reserve(v1::Reserve::default()), "limits[0]: 0 limits; allowed are 1 to 16"),
    ];
    for (operation, wanted) in cases {
        let operations = vec![v1::Operation { place: 0, operation: Some(operation) }];
        match unpack(&v1::Frame { operations, ..v1::Frame::default() }) {
            Err(UnpackError::Malformed(problem)) => assert_eq!(problem.to_string(), wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
    let operations = vec![v1::Operation { place: 0, operation: Some(O::OpenSession(v1::OpenSession {})) }];
    let opening = v1::Frame { session: 3, operations, ..v1::Frame::default() };
    assert!(matches!(unpack(&opening), Err(UnpackError::Malformed(problem)) if problem.field == "open_session"));
}

#[test]
fn a_key_that_is_not_taken_names_its_place() {
    let frame = frame(&["alice", "bob"]);
    let error = unpack_frame(&frame, |policy, key| if key == b"bob" { Err("moved") } else { Ok(print(policy, key)) });
    assert_eq!(error, Err(UnpackError::Key { place: 1, error: "moved" }));
}

#[test]
fn heads_come_back_or_are_told_what_is_wrong() {
    let id = FrameId { session: SessionId(4), sequence: Sequence(9), lowest_unanswered: Sequence(7) };
    let head = FrameHead {
        tag: 1,
        shard: ShardId(2),
        epoch: Epoch(3),
        policy_version: PolicyVersion(5),
        frame: Some(id),
        budget: Some(Span(50_000)),
        first: true,
    };
    let frame = FramePacker::default().pack(&head);
    assert_eq!(unpack_head(&frame), Ok(head));
    assert_eq!(FramePacker::default().pack(&FrameHead { budget: Some(Span(0)), ..head }).budget_us, 1);
    for (spoilt, wanted) in [
        (v1::Frame { shard: 0, ..frame.clone() }, "shard: it is 0; shards are numbered from 1"),
        (v1::Frame { sequence: 0, ..frame.clone() }, "sequence: it is 0; a session's frames are numbered from 1"),
        (
            v1::Frame { lowest_unanswered: 10, ..frame.clone() },
            "lowest_unanswered: it is 10; allowed is 1 to the sequence, 9",
        ),
        (v1::Frame { lowest_unanswered: 0, ..frame }, "lowest_unanswered: it is 0; allowed is 1 to the sequence, 9"),
    ] {
        assert_eq!(unpack_head(&spoilt).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn hostile_answers_are_told_what_is_wrong() {
    type Spoil = fn(&mut v1::FrameAnswer);
    let cases: [(Spoil, &str); 6] = [
        (|a| a.verdicts = vec![1; 1025], "verdicts: answers to 1025 places; a frame has at most 1024"),
        (|a| a.limits.clear(), "limits: 0 elements; 1 belong to the others"),
        (|a| a.limit_counts = vec![u32::MAX], "limit_counts[0]: 4294967295 limits; allowed are 0 to 16"),
        (|a| a.ordinals = vec![16], "ordinals[0]: 16; allowed are 0 to 15"),
        (|a| a.marks = vec!["ab".into()], "marks[0]: it has 2 bytes; allowed are 16 or none"),
        (|a| a.stamp_us = -1, "stamp_us: -1 microseconds are no moment; allowed are 0 to 2^62"),
    ];
    let decision =
        Decision { allowed: true, limits: [LimitAnswer::default()].into_iter().collect(), ..Decision::default() };
    let given = [PlaceAnswer { place: 0, receipt: Receipt::default(), answer: Answer::Decision(decision) }];
    for (spoil, wanted) in cases {
        let mut answer = pack_answers(1, ShardId(1), &given).remove(0);
        assert!(unpack_answer(&answer).is_ok());
        spoil(&mut answer);
        assert_eq!(unpack_answer(&answer).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn policies_come_back() {
    let (span, rate) = (Span(60_000_000), Rate { units: 7, period: Span(1_000_000) });
    let algorithms = [
        Algorithm::FixedWindow { limit: 1, window: span },
        Algorithm::SlidingLog { limit: 2, window: span },
        Algorithm::SlidingCounter { limit: 3, window: span },
        Algorithm::TokenBucket { capacity: 4, refill: rate },
        Algorithm::LeakyBucket { queue: 5, rate },
    ];
    let unavailable = [
        OnUnavailable::FailClosed,
        OnUnavailable::FailOpen,
        OnUnavailable::Local { share_ppm: None },
        OnUnavailable::Local { share_ppm: Some(9) },
    ];
    let modes = [Mode::Enforce, Mode::Shadow, Mode::Disabled];
    let mut set = PolicySet { version: PolicyVersion(3), policies: vec![] };
    for (at, algorithm) in algorithms.into_iter().cycle().take(60).enumerate() {
        let mut policy = Policy::new(format!("policy-{at}"), algorithm);
        policy.id = PolicyId(at as u32 + 1);
        policy.mode = modes[at % 3];
        policy.on_unavailable = unavailable[at % 4];
        policy.on_full = if at % 2 == 0 { OnFull::Refuse } else { OnFull::Evict };
        policy.max_cost = if at % 7 == 0 { None } else { Cost::new(at as u64) };
        policy.description = "d".repeat(at);
        set.policies.push(policy);
    }
    assert_eq!(policy_set_from_wire(&policy_set_to_wire(&set)), Ok(set.clone()));

    let mut twice = policy_set_to_wire(&set);
    twice.policies[1].name = "policy-0".into();
    assert!(policy_set_from_wire(&twice).unwrap_err().to_string().contains("one name"));
    let mut strange = policy_set_to_wire(&set);
    strange.policies[4].mode = 77;
    assert_eq!(policy_set_from_wire(&strange).unwrap_err().at, Some(4));
}
