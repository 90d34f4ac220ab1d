//! Dapr's programs in, which `dapr.sh` builds; its certificate authority and its sidecars, running, out.
//!
//! Two sidecars as Dapr's documentation runs them on one machine, with mutual TLS between them. What would cost calls time
//! and is of no use here is off: metrics, traces and the log of each call.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::interval;

use crate::role::{Ready, done, say};

/// The id of the sidecar that has the application.
const PROVIDER: &str = "provider";
/// Where a caller posts to at its sidecar, before the path of the application.
pub(crate) const INVOKE: &str = "/v1.0/invoke/provider/method";

/// Which sidecar.
#[derive(Clone, Debug, Args)]
pub(crate) struct Side {
    files: PathBuf,
    /// The folder of its programs.
    programs: PathBuf,
    /// Where its certificate authority listens.
    authority: String,
    /// The application's port: this is the provider's sidecar.
    #[arg(long)]
    app: Option<String>,
    /// Where the provider's sidecar takes other sidecars: this is the caller's.
    #[arg(long)]
    peer: Option<String>,
}

/// Runs the certificate authority.
pub(crate) async fn authority(files: &Path, programs: &Path) {
    let config = files.join("authority.yaml");
    std::fs::write(&config, configuration("")).unwrap();
    let [port, health] = [(); 2].map(|()| free_port().to_string());
    let mut command = program(programs, "sentry", files);
    command.arg("--issuer-credentials").arg(files).arg("--config").arg(config);
    command.args(["--listen-address", HOST, "--port", &port]);
    command.args(["--healthz-listen-address", HOST, "--healthz-port", &health]);
    let mut authority = command.spawn().unwrap();
    listens(&mut authority, &port).await;
    run(authority, format!("{HOST}:{port}")).await;
}

/// Runs a sidecar: the caller's is reached by callers, the provider's by the caller's.
pub(crate) async fn sidecar(Side { files, programs, authority, app, peer }: Side) {
    let [http, grpc, internal] = [(); 3].map(|()| free_port().to_string());
    let id = if app.is_some() { PROVIDER } else { "caller" };
    let peer = peer.unwrap_or_else(|| "none".to_owned());
    let names = format!(
        "  nameResolution:\n    component: fixed\n    configuration:\n      {PROVIDER}: \"{peer}\"\n"
    );
    let config = files.join(format!("{id}.yaml"));
    std::fs::write(&config, configuration(&names)).unwrap();
    let mut command = program(&programs, "daprd", &files);
    command.env("DAPR_TRUST_ANCHORS", std::fs::read_to_string(files.join("ca.crt")).unwrap());
    command
        .args(["--app-id", id, "--enable-mtls", "--sentry-address", &authority])
        .arg("--config")
        .arg(config);
    command.args(["--control-plane-trust-domain", "localhost", "--dapr-listen-addresses", HOST]);
    command.args(["--dapr-http-port", &http, "--dapr-grpc-port", &grpc]);
    command.args(["--dapr-internal-grpc-listen-address", HOST, "--dapr-internal-grpc-port", &internal]);
    if let Some(app) = &app {
        let (host, port) = app.rsplit_once(':').expect("an address has a port");
        command.args(["--app-channel-address", host, "--app-port", port]);
    }
    let mut sidecar = command.spawn().unwrap();
    for port in [&http, &internal] {
        listens(&mut sidecar, port).await;
    }
    let port = if app.is_some() { internal } else { http };
    run(sidecar, format!("{HOST}:{port}")).await;
}

fn program(programs: &Path, name: &str, files: &Path) -> Command {
    let mut command = Command::new(programs.join(name));
    command.env_clear().env("HOME", files).env("NAMESPACE", "default").env("DAPR_HOST_IP", HOST);
    command.args(["--enable-metrics=false", "--log-level", "error"]);
    command.current_dir(files).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true);
    command
}

fn configuration(further: &str) -> String {
    format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Configuration\nmetadata:\n  name: e2e\nspec:\n  \
         mtls:\n    enabled: true\n  metric:\n    enabled: false\n  tracing:\n    samplingRate: \"0\"\n{further}"
    )
}

/// Says where a program is reached, and ends it once nobody needs it any more.
async fn run(mut child: Child, address: String) {
    say(&Ready { pid: child.id().expect("it runs"), address });
    done().await;
    child.kill().await.unwrap();
}

/// Waits until a program takes connections.
async fn listens(child: &mut Child, port: &str) {
    let mut ticks = interval(TICK);
    let deadline = Instant::now() + PATIENCE;
    loop {
        ticks.tick().await;
        assert!(child.try_wait().unwrap().is_none(), "a program of Dapr ended before it listened");
        if TcpStream::connect(format!("{HOST}:{port}")).await.is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "a program of Dapr does not listen");
    }
}

/// A port that was free a moment ago: Dapr takes none that the system gives.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

const HOST: &str = "127.0.0.1";
const PATIENCE: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_millis(50);
