//! Tests a daemon as a value: what remains when it is dropped.

use std::sync::Arc;

use tokio::sync::Notify;

use super::*;
use crate::client::{CallRequest, Client, Invocation, Options, Target};
use crate::config::Config;
use crate::store::Folder;

#[test]
fn a_daemon_that_is_dropped_with_a_call_in_flight_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let overrides = [("agent.dir".to_owned(), dir.path().to_str().unwrap().to_owned())];
    let mut config = Config::layer(None, &[], &overrides).unwrap();
    config.listen.unix = None;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (sidecar, executor, caller) = runtime.block_on(async {
        let journal = Folder::new(dir.path());
        let daemon =
            Daemon::start_on(System::real(), config, &Seed::new([1; 32]), None, &journal).await.unwrap();
        let (ours, theirs) = tokio::io::duplex(4_096);
        daemon.serve_stream(ours);
        let agent = Client::connect_stream(theirs, Options::default(), System::real()).await.unwrap();
        let taken = Arc::new(Notify::new());
        let is_taken = Arc::clone(&taken);
        let handler = move |_: Invocation| {
            taken.notify_one();
            std::future::pending()
        };
        agent.serve(1, handler).unwrap();
        let id: capd_proto::capability::CapabilityId = "org.example.endless:1.0.0".parse().unwrap();
        let draft = capd_proto::message::DescriptorDraft::new(id.clone());
        agent.declare(&[draft.finish().unwrap()]).await.unwrap();
        let _call = agent.call(CallRequest::new(Target::Id(id))).unwrap();
        is_taken.notified().await;
        let Sidecar { executor, caller, .. } = &*daemon.sidecar;
        (Arc::downgrade(&daemon.sidecar), Arc::downgrade(executor), Arc::downgrade(caller))
    });
    // With the runtime go the tasks, and with them whoever else held a room.
    drop(runtime);
    let left = (sidecar.strong_count(), executor.strong_count(), caller.strong_count());
    assert_eq!(left, (0, 0, 0));
}
