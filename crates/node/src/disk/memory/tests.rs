use super::*;

async fn write_two(disk: &Disk) {
    disk.run(|files| {
        files.make_dir("d")?;
        files.sync_dir("")?;
        let file = files.create("d/f")?;
        file.write_at(0, b"synced")?;
        file.sync()?;
        files.sync_dir("d")?;
        file.write_at(6, &[7; 2000])?;
        files.create("d/g")?.sync()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_crash_takes_what_was_not_synced() {
    let (mut lost, mut kept, mut torn, mut named) = (0, 0, 0, 0);
    for seed in 0..200 {
        let memory = MemoryDisk::new(seed);
        let disk = memory.mount().unwrap();
        write_two(&disk).await;
        memory.crash();
        assert!(disk.run(|files| files.list("d")).await.is_err(), "the old handle is dead");
        let bytes = memory.bytes("d/f");
        assert_eq!(&bytes[..6], b"synced");
        match &bytes[6..] {
            [] => lost += 1,
            all if all.len() == 2000 && all.iter().all(|b| *b == 7) => kept += 1,
            _ => torn += 1,
        }
        named += usize::from(memory.paths().contains(&"d/g".to_string()));
        memory.mount().unwrap();
    }
    assert!(lost > 20 && kept > 20 && torn > 20, "{lost} {kept} {torn}");
    assert!(named > 20 && named < 180, "{named}");
}

#[tokio::test]
async fn the_same_seed_loses_the_same() {
    let crash = async |seed| {
        let memory = MemoryDisk::new(seed);
        write_two(&memory.mount().unwrap()).await;
        memory.crash();
        (memory.paths(), memory.bytes("d/f"))
    };
    for seed in 0..20 {
        assert_eq!(crash(seed).await, crash(seed).await);
    }
}

#[tokio::test]
async fn a_kill_takes_nothing() {
    let memory = MemoryDisk::new(1);
    write_two(&memory.mount().unwrap()).await;
    memory.kill();
    assert_eq!(memory.bytes("d/f").len(), 2006);
    assert_eq!(memory.paths(), ["d/f", "d/g"]);
}

#[tokio::test]
async fn a_removed_file_may_be_back() {
    let back = (0..50).filter(|seed| {
        let memory = MemoryDisk::new(*seed);
        let disk = memory.mount().unwrap();
        futures::executor::block_on(write_two(&disk));
        futures::executor::block_on(disk.run(|files| files.sync_dir("d").and_then(|()| files.remove("d/f")))).unwrap();
        memory.crash();
        memory.paths().contains(&"d/f".to_string())
    });
    assert!((5..45).contains(&back.count()));
}

#[tokio::test]
async fn a_failed_sync_is_lost_for_good() {
    let memory = MemoryDisk::new(1);
    let disk = memory.mount().unwrap();
    let file = disk.run(|files| files.create("f").and_then(|f| files.sync_dir("").map(|()| f))).await.unwrap();
    memory.set_faults(Faults { sync_fails_after: Some(0), ..Faults::default() });
    file.write_at(0, b"gone").unwrap();
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(memory.bytes("f"), b"gone");
    memory.crash();
    assert_eq!(memory.bytes("f"), b"");
}

#[tokio::test]
async fn power_capacity_and_rot() {
    let memory = MemoryDisk::new(1);
    let disk = memory.mount().unwrap();
    assert!(memory.mount().is_err());
    let file = disk.run(|files| files.create("f")).await.unwrap();
    memory.set_faults(Faults { capacity: Some(10), ..Faults::default() });
    assert_eq!(file.write_at(4, b"1234567").unwrap_err().kind(), io::ErrorKind::StorageFull);
    file.write_at(4, b"123456").unwrap();
    assert_eq!(disk.run(|files| files.space()).await.unwrap(), Space { free: 0, total: 10 });
    memory.flip_bit("f", 4 * 8);
    assert_eq!(memory.bytes("f"), b"\0\0\0\x00023456");
    memory.set_faults(Faults { unreadable: Some("f".into()), ..Faults::default() });
    assert!(file.read_exact_at(0, 1).is_err());
    memory.set_faults(Faults { power_after: Some(1), ..Faults::default() });
    file.write_at(0, b"x").unwrap();
    assert!(file.write_at(0, b"y").is_err() && memory.is_dead() && file.len().is_err());
    let copy = memory.fork(2);
    copy.crash();
    memory.crash();
    memory.mount().unwrap();
    assert!(disk.run(|files| files.list("")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_slow_disk_takes_virtual_time() {
    let memory = MemoryDisk::new(1);
    let disk = memory.mount().unwrap();
    let second = Duration::from_secs(1);
    memory.set_faults(Faults { latency: Some((second, second)), ..Faults::default() });
    let start = tokio::time::Instant::now();
    disk.run(|files| files.space()).await.unwrap();
    // tokio counts in milliseconds and rounds each of the two waits up.
    assert!((1000..=1002).contains(&start.elapsed().as_millis()));
}
