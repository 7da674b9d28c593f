//! Snapshot files come back as they were written, or not at all.

use futures::TryStreamExt;

use super::*;
use crate::disk::RealDisk;
use crate::raft::types::log_id;

fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta { last_log_id: Some(log_id(2, index)), ..SnapshotMeta::default() }
}

async fn files(directory: &tempfile::TempDir) -> SnapshotFiles {
    let disk = RealDisk::open(directory.path()).await.unwrap();
    SnapshotFiles::new(disk, ClusterId(7), GroupId(3))
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

async fn write(files: &SnapshotFiles, index: u64, bytes: Vec<u8>) -> SnapshotHandle {
    files.create(meta(index), move |to| to.write_all(&bytes)).await.unwrap()
}

async fn read(handle: &SnapshotHandle) -> io::Result<Vec<u8>> {
    handle
        .read(|reader| {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        })
        .await
}

#[tokio::test]
async fn the_newest_comes_back_and_two_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&directory).await;
    assert!(files.latest().await.unwrap().is_none());
    for (index, len) in [(9, 0), (10, 1), (100, caps::SNAPSHOT_BLOCK_BYTES), (1000, 3 * caps::SNAPSHOT_BLOCK_BYTES + 5)]
    {
        write(&files, index, content(len)).await;
        let latest = files.latest().await.unwrap().unwrap();
        assert_eq!((latest.meta().clone(), latest.len()), (meta(index), len as u64));
        assert_eq!(read(&latest).await.unwrap(), content(len));
        let pieces: Vec<Bytes> = latest.blocks().try_collect().await.unwrap();
        assert_eq!(pieces.concat(), content(len));
    }
    let kept = std::fs::read_dir(directory.path().join(DIR)).unwrap().count();
    assert_eq!(kept, caps::SNAPSHOTS_KEPT);
}

#[tokio::test]
async fn what_another_node_sends_is_whole_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&directory).await;
    let pieces = |count: usize| stream::iter((0..count).map(|_| Ok(Bytes::from(content(1000))))).boxed();
    let handle = files.receive(meta(5), 3000, pieces(3)).await.unwrap();
    assert_eq!(read(&handle).await.unwrap().len(), 3000);
    for (length, count) in [(3001, 3), (2999, 3), (1, 0)] {
        assert!(files.receive(meta(6), length, pieces(count)).await.is_err());
        assert_eq!(files.latest().await.unwrap().unwrap().meta(), &meta(5));
    }
}

#[tokio::test]
async fn every_flipped_bit_and_every_cut_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&directory).await;
    write(&files, 1, content(10)).await;
    write(&files, 2, content(200)).await;
    let path = directory.path().join(DIR).join(files.name(&meta(2)));
    let good = std::fs::read(&path).unwrap();
    let older = |what: String| {
        let files = files.clone();
        async move {
            let latest = files.latest().await.unwrap().unwrap();
            assert_eq!(latest.meta(), &meta(1), "{what}");
        }
    };
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bad).unwrap();
        older(format!("bit {bit} flipped")).await;
    }
    for len in 0..good.len() {
        std::fs::write(&path, &good[..len]).unwrap();
        older(format!("cut after {len} bytes")).await;
    }
}

#[tokio::test]
async fn a_snapshot_of_another_group_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&directory).await;
    write(&files, 1, content(10)).await;
    let other = SnapshotFiles::new(files.disk.clone(), ClusterId(8), GroupId(3));
    assert!(other.latest().await.unwrap().is_none());
}
