//! Generates the Rust of etcd's interface from its `.proto` files, and holds it against what is checked in.
//!
//! `CAPD_WRITE=1 cargo test --test etcd_api` writes it.

#![allow(clippy::unwrap_used, reason = "whatever cannot be generated fails the test")]

use std::fs;
use std::path::Path;

#[test]
fn the_checked_in_code_is_what_the_proto_files_give() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/fleet/etcd/api");
    let files = protox::compile([folder.join("rpc.proto")], [&folder]).unwrap();
    let made = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .bytes(".")
        .out_dir(made.path())
        .compile_fds(files)
        .unwrap();
    for name in ["etcdserverpb.rs", "mvccpb.rs"] {
        let text = fs::read_to_string(made.path().join(name)).unwrap();
        let path = folder.join(name);
        if std::env::var_os("CAPD_WRITE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let is_same = fs::read_to_string(&path).is_ok_and(|kept| kept == text);
        assert!(is_same, "{name} differs: run CAPD_WRITE=1 cargo test --test etcd_api, and commit it");
    }
}
