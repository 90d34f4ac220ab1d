//! Tests the unix socket's file: its mode, its lifetime, and files in its place.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::super::local;
use super::*;

#[tokio::test]
async fn the_socket_is_private_and_goes_with_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let server = End::sidecar(1);
    local::listen_unix(&server.host, &path).unwrap();
    let file = std::fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o777, 0o600);
    server.shut_down().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "its file outlives the listener");
    let server = End::sidecar(1);
    local::listen_unix(&server.host, &path).unwrap();

    let second = End::sidecar(2);
    let error = local::listen_unix(&second.host, &path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    local::connect_unix(&End::agent().host, &path, false).await.unwrap();
    server.shut_down().await;
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    std::fs::write(&path, "precious").unwrap();
    let error = local::listen_unix(&End::sidecar(1).host, &path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_socket_put_in_place_of_ours_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let server = End::sidecar(1);
    local::listen_unix(&server.host, &path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    server.shut_down().await;
    assert!(path.exists());
}

#[tokio::test]
async fn a_pipe_within_the_process_is_a_local_link() {
    let (mut server, mut agent) = (End::sidecar(1), End::agent());
    let (ours, theirs) = tokio::io::duplex(4_096);
    local::serve_stream(&server.host, ours);
    let link = local::connect_stream(&agent.host, theirs).await.unwrap();
    assert_eq!(link.principal(), &server.did());
    agent.opened().await;
    let _opened = server.opened().await;
    // More than the pipe holds at once.
    let question = Bytes::from([b"?".as_slice(), &[7; 20_000]].concat());
    let route = link.request(question.clone()).unwrap();
    let (answer, _) = agent.message().await;
    assert_eq!((answer[0], answer.len()), (b'!', question.len()));
    drop(route);
    link.drain();
    assert_eq!(agent.closed().await, CloseReason::Drained);
    server.closed().await;
}
