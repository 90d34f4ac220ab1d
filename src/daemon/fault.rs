//! Syncs the journal and the audit log after a panic, for a process that is about to end.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Daemon;
use super::sidecar::Written;
use crate::fault::{Fault, Faults};
use crate::store::Journal;
use crate::store::audit::Audit;

/// Watches for a panic of any part of a sidecar, and saves the journal and the audit log. It outlives the [`Daemon`].
pub struct Watch {
    faults: Faults,
    journal: Journal<Written>,
    audit: Audit,
    /// Of the threads that write those.
    ended: Vec<CancellationToken>,
}

impl Watch {
    pub(super) fn new(daemon: &Daemon) -> Self {
        Self {
            faults: daemon.faults.clone(),
            journal: daemon.sidecar.journal.clone(),
            audit: daemon.sidecar.account.audit.clone(),
            ended: daemon.threads.iter().map(|thread| thread.ended().clone()).collect(),
        }
    }

    /// The first panic, once there is one.
    pub async fn fault(&self) -> Fault {
        self.faults.first().await
    }

    /// The first panic so far.
    pub fn seen(&self) -> Option<Fault> {
        self.faults.seen()
    }

    /// Accepts no more work for the journal and the audit log, and waits until everything queued is on disk; returns
    /// whether it was `within` that time.
    pub async fn flush(&self, within: Duration) -> bool {
        let flushed = async {
            tokio::join!(self.journal.close(), self.audit.close());
            for ended in &self.ended {
                ended.cancelled().await;
            }
        };
        tokio::time::timeout(within, flushed).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc;

    use bytes::Bytes;
    use capd_proto::ledger::JournalId;

    use super::*;
    use crate::config::Config;
    use crate::net::{Seed, System};
    use crate::store::audit::{AuditOptions, AuditPlace, AuditWriter};
    use crate::store::{
        Change, Folder, Loaded, Medium, Row, Storage, StoreError, Thread, Work, Writer, spawn,
    };

    /// A journal that does what a test says each time it is to write.
    struct Told(Folder, Box<dyn Fn() -> Disk>);

    struct Disk(Box<dyn FnMut() + Send>);

    impl Storage for Disk {
        fn journal_id(&self) -> JournalId {
            JournalId([0; 16])
        }

        fn load(&mut self) -> Result<Loaded, StoreError> {
            Ok(Loaded::default())
        }

        fn commit(&mut self, _: &[Change]) -> Result<(), StoreError> {
            (self.0)();
            Ok(())
        }

        fn read(&mut self, _: Row) -> Result<Bytes, StoreError> {
            Ok(Bytes::new())
        }
    }

    impl Medium for Told {
        type Storage = Disk;
        type Audit = AuditPlace;

        fn open(&self) -> Result<Disk, StoreError> {
            Ok((self.1)())
        }

        fn run<T: Send + 'static>(&self, writer: Writer<T, Disk>) -> io::Result<Option<Thread>> {
            spawn(writer).map(Some)
        }

        fn open_audit(&self, options: AuditOptions, now_ms: u64) -> AuditPlace {
            self.0.open_audit(options, now_ms)
        }

        fn run_audit(&self, writer: AuditWriter<AuditPlace>) -> io::Result<Option<Thread>> {
            self.0.run_audit(writer)
        }
    }

    async fn daemon(dir: &std::path::Path, disk: impl Fn() -> Disk + 'static) -> Daemon {
        let overrides = [("agent.dir".to_owned(), dir.to_str().unwrap().to_owned())];
        let mut config = Config::layer(None, &[], &overrides).unwrap();
        config.listen.unix = None;
        let medium = Told(Folder::new(dir), Box::new(disk));
        Daemon::start_on(System::real(), config, &Seed::new([1; 32]), None, &medium).await.unwrap()
    }

    fn write(daemon: &Daemon) {
        let work = Work::Write(Change::Forget { row: Row(1) });
        assert!(daemon.sidecar.journal.submit(work, Written::Forgotten).is_ok());
    }

    #[tokio::test]
    async fn a_panic_of_the_journals_thread_is_a_fault_of_its_sidecar() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = daemon(dir.path(), || Disk(Box::new(|| panic!("no disk")))).await;
        let watch = daemon.watch();
        assert_eq!(watch.seen(), None);
        write(&daemon);
        let fault = watch.fault().await;
        assert_eq!((fault.text.as_str(), fault.thread.as_str()), ("no disk", "journal"));
        // Nobody is left who could write, and nobody waits for that.
        assert!(watch.flush(Duration::from_secs(30)).await);
    }

    #[tokio::test]
    async fn a_panic_of_a_task_is_a_fault_of_its_sidecar() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = daemon(dir.path(), || Disk(Box::new(|| {}))).await;
        daemon.sidecar.ctx.spawn(async { panic!("no task") });
        assert_eq!(daemon.watch().fault().await.text, "no task");
    }

    #[tokio::test]
    async fn a_flush_waits_for_what_is_queued_and_no_longer_than_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let (release, released) = mpsc::sync_channel(1);
        let released = std::sync::Mutex::new(Some(released));
        let disk = move || {
            let released = released.lock().unwrap().take().unwrap();
            Disk(Box::new(move || released.recv().unwrap()))
        };
        let daemon = daemon(dir.path(), disk).await;
        write(&daemon);
        assert!(!daemon.watch().flush(Duration::from_millis(20)).await);
        release.send(()).unwrap();
        assert!(daemon.watch().flush(Duration::from_secs(30)).await);
        assert_eq!(daemon.sidecar.journal.counters().changes, 1);
    }
}
