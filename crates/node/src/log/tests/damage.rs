//! Every bit of a small log turned over, and its files cut at every length.

use super::*;

/// A log of two segments. With `vouched`, a mark stands at its end; without, nothing vouches for the last batch.
async fn small_log(vouched: bool) -> MemoryDisk {
    let memory = MemoryDisk::new(1);
    let settings = LogSettings { segment_bytes: 900, ..small() };
    let log = Log::open(memory.mount().unwrap(), identity(), settings).await.unwrap();
    let (one, two) = (log.group(GROUP), log.group(GroupId(2)));
    for index in 0..6 {
        append(&one, vec![entry(1, index, 60)]).await.unwrap();
        append(&two, vec![entry(1, index, 5)]).await.unwrap();
    }
    two.save_vote(ballot(3, 2)).await.unwrap();
    append(&one, vec![entry(2, 6, 33)]).await.unwrap();
    assert_eq!(log.usage().segments, 2);
    if vouched {
        log.close().await;
    }
    memory.kill();
    memory
}

async fn reopened(memory: &MemoryDisk) -> Result<Vec<(GroupId, Marks, Vec<Entry>)>, LogError> {
    let disk = memory.mount().unwrap();
    let settings = LogSettings { segment_bytes: 900, may_create: false, ..small() };
    let log = Log::open(disk, identity(), settings).await?;
    Ok(contents(&log).await)
}

fn found(error: &LogError) -> bool {
    matches!(error, LogError::Rotten { .. } | LogError::Newer { .. } | LogError::Incomplete { .. })
}

#[tokio::test(start_paused = true)]
async fn every_bit_that_is_vouched_for_is_missed() {
    let memory = small_log(true).await;
    let whole = reopened(&memory.fork(0)).await.unwrap();
    let (mut refused, mut cut) = (0, 0);
    for path in memory.paths().iter().filter(|path| path.ends_with(".wal")) {
        for bit in 0..memory.bytes(path).len() * 8 {
            let damaged = memory.fork(0);
            damaged.flip_bit(path, bit);
            match reopened(&damaged).await {
                Err(error) => {
                    assert!(found(&error), "{path}, bit {bit}: {error}");
                    refused += 1;
                }
                Ok(contents) => {
                    assert_eq!(contents, whole, "{path}, bit {bit}");
                    cut += 1;
                }
            }
        }
    }
    assert!(refused > 8000 && cut > 100, "{refused} refused, {cut} harmless");
}

#[tokio::test(start_paused = true)]
async fn a_bit_of_what_nothing_vouches_for_is_cut() {
    let memory = small_log(false).await;
    let whole = reopened(&memory.fork(0)).await.unwrap();
    let path = "log/00000002.wal";
    let end = memory.bytes(path).iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The last batch is the last entry's record alone.
    let last = (end - 36 - 33) / 4 * 4;
    for bit in last * 8..end * 8 {
        let damaged = memory.fork(0);
        damaged.flip_bit(path, bit);
        let contents = reopened(&damaged).await.unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        assert_eq!(contents[1], whole[1]);
        assert_eq!(contents[0].2, whole[0].2[..6], "bit {bit}");
        // It never comes back, and what is appended next is there again.
        assert!(damaged.bytes(path)[last..].iter().all(|byte| *byte == 0));
        damaged.kill();
        let log = Log::open(damaged.mount().unwrap(), identity(), small()).await.unwrap();
        append(&log.group(GROUP), vec![entry(3, 6, 1)]).await.unwrap();
        damaged.crash();
        assert_eq!(reopened(&damaged).await.unwrap()[0].2.last(), Some(&entry(3, 6, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_cut_is_missed() {
    let memory = small_log(true).await;
    for path in memory.paths().iter().filter(|path| path.ends_with(".wal")) {
        for len in 0..memory.bytes(path).len() {
            let damaged = memory.fork(0);
            damaged.rot(path, |bytes| bytes.truncate(len));
            let refused = reopened(&damaged).await.expect_err("cut");
            assert!(found(&refused), "{path}, {len} bytes: {refused}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_is_gone_is_missed() {
    let memory = small_log(true).await;
    let damaged = memory.fork(0);
    damaged.mount().unwrap().run(|files| files.remove("log/00000001.wal")).await.unwrap();
    let refused = reopened(&damaged).await.unwrap_err();
    assert!(refused.to_string().contains("should be there"), "{refused}");
    let three = memory.fork(0);
    let settings = LogSettings { segment_bytes: 900, ..small() };
    let log = Log::open(three.mount().unwrap(), identity(), settings).await.unwrap();
    append(&log.group(GROUP), (7..20).map(|index| entry(3, index, 60)).collect()).await.unwrap();
    three.kill();
    three.mount().unwrap().run(|files| files.remove("log/00000002.wal")).await.unwrap();
    let refused = reopened(&three).await.unwrap_err();
    assert!(refused.to_string().contains("are there"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_an_older_file_left_is_no_record() {
    // A log whose second segment's file once was its first: every record of it is whole, and in the wrong place.
    let memory = small_log(true).await;
    let whole = reopened(&memory.fork(0)).await.unwrap();
    let old = memory.bytes("log/00000001.wal");
    memory.rot("log/00000002.wal", |bytes| {
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap().next_multiple_of(4);
        bytes[end..].copy_from_slice(&old[end..]);
    });
    assert_eq!(reopened(&memory).await.unwrap(), whole);
}
