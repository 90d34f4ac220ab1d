//! Thousands of open links on which a frame comes a byte a second in; honest peers that do not notice, out.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::client::TlsStream;

use crate::crowd::{open, tcp_port};
use crate::field::Field;
use crate::peer::ERROR_FRAME;
use crate::support::{AMP_MESSAGE, Setup, decode, field as field_of};

/// Links of the attack.
const LINKS: usize = 2_000;
/// A frame of 16 MiB that would take half a year.
const SLOWLY: [u8; 6] = [0, 0xff, 0xff, 0xff, AMP_MESSAGE, 0xa9];

/// Links on which a byte comes each second until this is dropped.
struct Slow {
    /// The task ends, and closes the links, when this is dropped.
    _running: oneshot::Sender<()>,
}

impl Slow {
    fn begin(field: &Field) -> Self {
        let (to, did) = (tcp_port(&field.sidecar), field.sidecar.did.clone());
        let mut links = field
            .crowd
            .each(LINKS, |_| open(to, did.clone()))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let (running, mut stopped) = oneshot::channel::<()>();
        let (first, has_begun) = oneshot::channel();
        let mut first = Some(first);
        field.crowd.spawn(async move {
            for byte in SLOWLY.into_iter().chain(std::iter::repeat(0xf6)) {
                for link in &mut links {
                    // The sidecar may have had enough of it.
                    let _closed = say(link, byte).await;
                }
                if let Some(first) = first.take() {
                    // The test may have failed meanwhile.
                    let _gone = first.send(());
                }
                if tokio::time::timeout(Duration::from_secs(1), &mut stopped).await.is_ok() {
                    return;
                }
            }
        });
        field.crowd.run(has_begun).expect("the attack begins");
        Self { _running: running }
    }
}

async fn say(link: &mut TlsStream<TcpStream>, byte: u8) -> std::io::Result<()> {
    link.write_all(&[byte]).await?;
    link.flush().await
}

#[test]
fn a_byte_a_second_on_2000_links_holds_up_nobody() {
    let mut field = Field::with(Setup::new().set("limits.links_max", "4096"));
    field.withstands("a byte a second on 2,000 links", Slow::begin);
    // A link that ends inside its frame is told so.
    let (to, did) = (tcp_port(&field.sidecar), field.sidecar.did.clone());
    let ends = field.crowd.each(20, |_| {
        let did = did.clone();
        async move {
            let mut link = open(to, did).await.unwrap();
            for byte in SLOWLY {
                say(&mut link, byte).await.unwrap();
            }
            link.shutdown().await.unwrap();
            let mut said = Vec::new();
            link.read_to_end(&mut said).await.unwrap();
            said
        }
    });
    for said in ends {
        // Questions may come before; the last frame is the ERROR.
        let last = last_frame(&said);
        assert_eq!(last[0], ERROR_FRAME, "{said:02x?}");
        assert_eq!(field_of(&decode(&last[1..]), "code"), Some(&1001.into()));
    }
}

/// Type and payload of the last of several frames.
fn last_frame(mut bytes: &[u8]) -> &[u8] {
    loop {
        let (head, rest) = bytes.split_first_chunk().expect("a frame's length");
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*head) as usize);
        if rest.is_empty() {
            return frame;
        }
        bytes = rest;
    }
}
