//! The journal's own storage in; what one commit of one change costs on this disk, out.

use std::thread;
use std::time::{Duration, Instant};

use capd::store::{Begun, Change, Options, Row, Sqlite, Storage as _};
use capd_proto::envelope::MessageId;
use capd_proto::identity::Identity;
use capd_proto::ledger::{BodyDigest, Key};

/// A journal that only this process writes.
pub(crate) struct Disk {
    storage: Sqlite,
    row: u64,
    change: Begun,
    _files: tempfile::TempDir,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let storage = Sqlite::open(files.path(), Options::default()).unwrap();
        let change = Begun {
            row: Row(0),
            key: Key { from: Identity::from_seed([7; 32]).did().clone(), id: MessageId([7; 16]) },
            body: BodyDigest([7; 32]),
            expires_at_ms: 1,
            started_at_ms: 1,
            capability: crate::agents::JOURNALED.into(),
        };
        Self { storage, row: 0, change, _files: files }
    }

    /// The median time of one commit, each a while after the one before. **Units:** microseconds.
    pub(crate) fn commit_us(&mut self, commits: usize, pause: Duration) -> f64 {
        let times = (0..commits).map(|_| {
            self.row += 1;
            thread::sleep(pause);
            let change = Change::Begin(Begun { row: Row(self.row), ..self.change.clone() });
            let begin = Instant::now();
            self.storage.commit(&[change]).unwrap();
            begin.elapsed().as_secs_f64() * 1e6
        });
        let mut times: Vec<_> = times.collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}
