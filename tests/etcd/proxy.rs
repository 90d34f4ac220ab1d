//! Stands between sidecars and etcd: passes bytes on, late, not at all, or refuses everybody.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// What it does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Passes them on.
    Through,
    /// Passes them on later.
    Late(Duration),
    /// Keeps connections, and loses every byte.
    Lost,
    /// Keeps connections, and loses what etcd says.
    Mute,
    /// Closes connections, and takes no new one.
    Cut,
}

/// One way to one etcd. Clones are the same.
#[derive(Clone)]
pub struct Proxy(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    etcd: Mutex<SocketAddr>,
    mode: watch::Sender<Mode>,
}

impl Proxy {
    pub async fn start(etcd: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, _) = watch::channel(Mode::Through);
        let proxy = Self(Arc::new(Shared { address, etcd: Mutex::new(etcd), mode }));
        tokio::spawn(proxy.clone().serve(listener));
        proxy
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// etcd is elsewhere.
    pub fn lead_to(&self, etcd: SocketAddr) {
        *self.0.etcd.lock().unwrap() = etcd;
    }

    pub fn set(&self, mode: Mode) {
        self.0.mode.send_replace(mode);
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((client, _)) = listener.accept().await {
            let proxy = self.clone();
            tokio::spawn(async move { proxy.carry(client).await });
        }
    }

    async fn carry(self, client: TcpStream) {
        let mut mode = self.0.mode.subscribe();
        let etcd = *self.0.etcd.lock().unwrap();
        if *mode.borrow() == Mode::Cut {
            return;
        }
        let Ok(etcd) = TcpStream::connect(etcd).await else { return };
        let (from_client, to_client) = client.into_split();
        let (from_etcd, to_etcd) = etcd.into_split();
        tokio::select! {
            () = pass(from_client, to_etcd, self.0.mode.subscribe(), false) => {}
            () = pass(from_etcd, to_client, self.0.mode.subscribe(), true) => {}
            _ = mode.wait_for(|mode| *mode == Mode::Cut) => {}
        }
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: watch::Receiver<Mode>, is_etcds: bool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len) = from.read(&mut bytes).await {
        if len == 0 {
            return;
        }
        let mode = *mode.borrow();
        match mode {
            Mode::Late(by) => sleep(by).await,
            Mode::Lost => continue,
            Mode::Mute if is_etcds => continue,
            Mode::Through | Mode::Mute | Mode::Cut => {}
        }
        if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}
