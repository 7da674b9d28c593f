//! The way in: order, sharing of syncs, backpressure, and what happens when the disk fails.

use super::*;

/// Lets the next segment be prepared, and the log come to rest.
async fn idle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn groups_share_a_sync_and_callbacks_come_in_order() {
    let memory = MemoryDisk::new(1);
    let settings = LogSettings { segment_bytes: 1 << 20, ..small() };
    let log = Log::open(memory.mount().unwrap(), identity(), settings).await.unwrap();
    let latency = Some((Duration::from_millis(5), Duration::from_millis(5)));
    memory.set_faults(Faults { latency, ..Faults::default() });
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (1..=16)
        .map(|id| {
            let (group, order) = (log.group(GroupId(id)), order.clone());
            tokio::spawn(async move {
                for index in 0..50 {
                    let (told, id) = (order.clone(), group.id());
                    let done = move |result: Result<(), LogError>| {
                        result.unwrap();
                        told.lock().unwrap().push((id, index));
                    };
                    group.append(vec![entry(1, index, 3)], Box::new(done)).await.unwrap();
                    if index % 10 == 0 {
                        let told = order.clone();
                        group.save_vote(ballot(index + 1, 1)).await.unwrap();
                        assert_eq!(group.marks().vote, Some(ballot(index + 1, 1)));
                        let told = told.lock().unwrap().contains(&(group.id(), index));
                        assert!(told, "what came before a vote is durable when the vote is");
                    }
                }
                group.flush().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 800);
    for id in 1..=16 {
        let of_group: Vec<u64> = order.iter().filter(|(group, _)| group.0 == id).map(|(_, index)| *index).collect();
        assert_eq!(of_group, (0..50).collect::<Vec<_>>());
    }
    let usage = log.usage();
    assert_eq!(usage.entries_written, 800);
    assert!(usage.syncs < 100, "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn who_comes_when_the_queue_is_full_waits() {
    let memory = MemoryDisk::new(1);
    let settings = LogSettings { queue_bytes: 1000, ..small() };
    let log = Log::open(memory.mount().unwrap(), identity(), settings).await.unwrap();
    let latency = Some((Duration::from_millis(50), Duration::from_millis(50)));
    memory.set_faults(Faults { latency, ..Faults::default() });
    let group = log.group(GROUP);
    let start = tokio::time::Instant::now();
    let mut waited = vec![];
    for index in 0..4 {
        group.append(vec![entry(1, index, 450)], Box::new(|result| result.unwrap())).await.unwrap();
        waited.push(start.elapsed().as_millis());
    }
    assert!(waited[1] == 0 && waited[2] >= 50, "{waited:?}");
    // One that is larger than the queue goes alone.
    append(&group, vec![entry(1, 4, 5000)]).await.unwrap();
    assert_eq!(all(&group).await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_failed_is_never_tried_again() {
    for good in 0..4 {
        let memory = MemoryDisk::new(1);
        let log = open(&memory).await.unwrap();
        let group = log.group(GROUP);
        let mut failed = log.failed();
        idle().await;
        assert!(failed.borrow().is_none());
        memory.set_faults(Faults { sync_fails_after: Some(good), ..Faults::default() });
        let mut acknowledged = 0;
        let refused = loop {
            match append(&group, vec![entry(1, acknowledged, 10)]).await {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, LogError::Disk { .. }), "{refused}");
        assert!(failed.wait_for(Option::is_some).await.is_ok());
        let syncs = memory.syncs();
        assert!(append(&group, vec![entry(1, acknowledged + 1, 10)]).await.is_err());
        assert!(group.save_vote(ballot(1, 1)).await.is_err());
        assert!(group.flush().await.is_err() && group.purge(EntryId::new(1, 0)).is_err());
        log.close().await;
        assert_eq!(memory.syncs(), syncs);
        memory.crash();
        let log = open(&memory).await.unwrap();
        assert_eq!(all(&log.group(GROUP)).await.len() as u64, acknowledged);
    }
}

#[tokio::test(start_paused = true)]
async fn everyone_who_waits_learns_that_it_failed() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    idle().await;
    let latency = Some((Duration::from_millis(5), Duration::from_millis(5)));
    memory.set_faults(Faults { latency, sync_fails_after: Some(1), ..Faults::default() });
    let group = log.group(GROUP);
    let told = Arc::new(Mutex::new(Vec::new()));
    for index in 0..100 {
        let told = told.clone();
        let done = move |result: Result<(), LogError>| told.lock().unwrap().push(result.is_ok());
        if group.append(vec![entry(1, index, 100)], Box::new(done)).await.is_err() {
            break;
        }
        if index % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    log.close().await;
    let told = told.lock().unwrap();
    let good = told.iter().take_while(|good| **good).count();
    assert!(good > 0 && told[good..].iter().all(|good| !good) && told.len() > good, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_the_log_and_loses_nothing() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    memory.set_faults(Faults { capacity: Some(9000), ..Faults::default() });
    let group = log.group(GROUP);
    let mut acknowledged = 0;
    let refused = loop {
        match append(&group, vec![entry(1, acknowledged, 100)]).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.to_string().contains("no space left"), "{refused}");
    assert!(acknowledged > 40);
    memory.kill();
    // There is room again.
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    assert_eq!(all(&group).await.len() as u64, acknowledged);
    append(&group, vec![entry(1, acknowledged, 100)]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_cannot_be_read_fails_the_log() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    append(&group, (0..20).map(|index| entry(1, index, 60)).collect()).await.unwrap();
    memory.rot("log/00000001.wal", |bytes| bytes[600] ^= 4);
    let error = group.read(0..20, usize::MAX).await.unwrap_err();
    assert!(matches!(error, LogError::Rotten { .. }), "{error}");
    assert!(log.failed().borrow().is_some());
    assert!(append(&group, vec![entry(1, 20, 1)]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_idle_log_says_how_far_it_was_synced() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    append(&group, vec![entry(1, 0, 100)]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let syncs = memory.syncs();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(memory.syncs(), syncs, "an idle log stays idle");
    memory.rot("log/00000001.wal", |bytes| bytes[64 + 50] ^= 1);
    memory.kill();
    let refused = open(&memory).await.unwrap_err();
    assert!(matches!(refused, LogError::Rotten { offset: 64, .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_writer_ends_with_its_last_handle() {
    let memory = MemoryDisk::new(1);
    let log = open(&memory).await.unwrap();
    let group = log.group(GROUP);
    group.append(vec![entry(1, 0, 9)], Box::new(|result| result.unwrap())).await.unwrap();
    drop((log, group));
    while memory.mount().is_err() {
        tokio::task::yield_now().await;
    }
    memory.kill();
    assert_eq!(all(&open(&memory).await.unwrap().group(GROUP)).await.len(), 1);
}
