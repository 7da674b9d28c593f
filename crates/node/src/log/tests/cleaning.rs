//! The way out: purging frees the disk, also where a quiet group holds old segments back.

use super::*;

/// Lets everything that waits for an idle moment happen.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn purging_gives_the_disk_back() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    group.save_vote(ballot(1, 2)).await.unwrap();
    append(&group, (0..500).map(|index| entry(1, index, 60)).collect()).await.unwrap();
    assert!(log.usage().segments > 20);
    group.save_committed(EntryId::new(1, 499)).unwrap();
    group.purge(EntryId::new(1, 480)).unwrap();
    settle().await;
    let usage = log.usage();
    assert!(usage.segments <= 3, "{usage:?}");
    assert!(memory.paths().len() <= 4, "{:?}", memory.paths());
    let before = contents(&log).await;
    assert_eq!(before[0].1.vote, Some(ballot(1, 2)), "the vote outlives its segment");
    drop((log, group));
    memory.crash();
    let log = open(&memory).await.unwrap();
    assert_eq!(contents(&log).await, before);
    // Everything, and beyond.
    log.group(GROUP).purge(EntryId::new(2, 1000)).unwrap();
    settle().await;
    append(&log.group(GROUP), vec![entry(2, 1001, 5)]).await.unwrap();
    assert_eq!(all(&log.group(GROUP)).await, [entry(2, 1001, 5)]);
    memory.crash();
    let log = open(&memory).await.unwrap();
    assert_eq!(all(&log.group(GROUP)).await, [entry(2, 1001, 5)]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_group_does_not_hold_the_disk() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let (quiet, busy) = (log.group(GroupId(2)), log.group(GROUP));
    quiet.save_vote(ballot(7, 1)).await.unwrap();
    append(&quiet, (0..10).map(|index| entry(7, index, 20)).collect()).await.unwrap();
    for round in 0..100 {
        let from = round * 20;
        append(&busy, (from..from + 20).map(|index| entry(1, index, 60)).collect()).await.unwrap();
        busy.purge(EntryId::new(1, from + 10)).unwrap();
    }
    settle().await;
    let usage = log.usage();
    assert!(usage.segments <= 8, "{usage:?}");
    let expected: Vec<Entry> = (0..10).map(|index| entry(7, index, 20)).collect();
    assert_eq!(all(&quiet).await, expected);
    let before = contents(&log).await;
    drop((log, quiet, busy));
    memory.crash();
    let log = open(&memory).await.unwrap();
    assert_eq!(contents(&log).await, before);
    assert_eq!(log.group(GroupId(2)).marks().vote, Some(ballot(7, 1)));
}

#[tokio::test(start_paused = true)]
async fn reading_goes_on_while_segments_go() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let latency = Some((Duration::ZERO, Duration::from_millis(3)));
    memory.set_faults(Faults { latency, ..Faults::default() });
    let group = log.group(GROUP);
    let reader = tokio::spawn({
        let group = group.clone();
        async move {
            let mut seen = 0;
            while seen < 1000 {
                let entries = group.read(0..u64::MAX, 2000).await.unwrap();
                assert!(entries.iter().zip(entries.iter().skip(1)).all(|(a, b)| a.id.index.0 + 1 == b.id.index.0));
                assert!(entries.iter().all(|found| *found == entry(1, found.id.index.0, 40)));
                seen = seen.max(entries.last().map_or(0, |last| last.id.index.0));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    for round in 0..150 {
        let from = round * 10;
        append(&group, (from..from + 10).map(|index| entry(1, index, 40)).collect()).await.unwrap();
        if from >= 30 {
            group.purge(EntryId::new(1, from - 30)).unwrap();
        }
    }
    reader.await.unwrap();
}
