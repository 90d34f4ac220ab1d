//! Has the running sidecar reload a file that has changed, and reports the outcome.

use capd::client::{Client, ClientError, Endpoint, Options};
use capd::config::Config;
use capd::text;
use capd_proto::message::{Reloaded, Takes};

/// Reloads the running sidecar, and prints whether it admits the peer.
pub(super) async fn reload(config: &Config, name: &str) {
    let Some(socket) = config.listen.unix.clone() else {
        println!("listen.unix is off, so the sidecar is not reloaded; restart it, so that it admits {name}");
        return;
    };
    let client = match Client::connect(Endpoint::Unix(socket), Options::default()).await {
        Ok(client) => client,
        Err(ClientError::Connect { is_refused: false, is_full: false, .. }) => {
            println!("the sidecar does not run; it admits {name} once it does");
            return;
        }
        Err(error) => {
            eprintln!("capd: the sidecar is not reloaded: {}; run: capctl reload", line(&error));
            return;
        }
    };
    match client.reload(false).await {
        Ok(reloaded) if reloaded.applied => println!("the running sidecar admits {name}"),
        Ok(reloaded) => eprintln!(
            "capd: the sidecar is not reloaded: {} can change only with a restart; restart it, so that it admits {name}",
            restarts(&reloaded)
        ),
        Err(error) => eprintln!("capd: the sidecar is not reloaded: {}; run: capctl reload", line(&error)),
    }
    client.close().await;
}

fn line(error: &ClientError) -> String {
    text::line(&error.to_string()).to_string()
}

/// The keys that keep the file from being applied.
fn restarts(reloaded: &Reloaded<'_>) -> String {
    let mut keys: Vec<_> = reloaded.changes.iter().filter(|change| change.takes == Takes::Restart).collect();
    keys.dedup_by(|one, other| one.key == other.key);
    keys.iter().map(|change| text::line(&change.key).to_string()).collect::<Vec<_>>().join(", ")
}
