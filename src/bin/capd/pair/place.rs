//! Reads and writes where a code is to be used: `CODE@HOST` or `CODE@HOST:PORT`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::str::FromStr;

use capd::pair::Code;

/// A code and the machine that waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) code: Code,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (code, at) = text.split_once('@').ok_or("accepted: CODE@HOST or CODE@HOST:PORT")?;
        let code = code.parse().map_err(|error: capd::pair::CodeError| error.to_string())?;
        let wrong = || format!("{at:?} is no HOST or HOST:PORT");
        let (host, port) = match at.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
                (host, rest.strip_prefix(':').or(rest.is_empty().then_some("")).ok_or_else(wrong)?)
            }
            None if matches!(at.parse(), Ok(IpAddr::V6(_))) => (at, ""),
            None => at.split_once(':').unwrap_or((at, "")),
        };
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
        if host.is_empty() || !host.bytes().all(fits) {
            return Err(wrong());
        }
        let port = match port {
            "" => DEFAULT_PORT,
            port => port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
        };
        Ok(Self { code, host: host.to_owned(), port })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.code, super::bracketed(&self.host))?;
        if self.port == DEFAULT_PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// The address by which other machines probably reach this one.
pub(crate) fn host_of(listening: IpAddr) -> String {
    if !listening.is_unspecified() {
        return listening.to_string();
    }
    // Nothing is sent: the system only says which of its addresses it would use.
    let outward = UdpSocket::bind((listening, 0)).and_then(|socket| {
        let anywhere: SocketAddr = if listening.is_ipv4() { DOCUMENTATION_V4 } else { DOCUMENTATION_V6 };
        socket.connect(anywhere)?;
        socket.local_addr()
    });
    match outward {
        Ok(address) if !address.ip().is_unspecified() => address.ip().to_string(),
        _ => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}

/// The TCP port of `capd pair`.
pub(crate) const DEFAULT_PORT: u16 = 7009;
/// Addresses that nobody has (RFC 5737, RFC 3849).
const DOCUMENTATION_V4: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 9);
const DOCUMENTATION_V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_as_it_is_written() {
        for (text, host, port) in [
            ("7Q2K-9XHD@192.0.2.7", "192.0.2.7", DEFAULT_PORT),
            ("7Q2K-9XHD@build-7.example:7100", "build-7.example", 7100),
            ("7Q2K-9XHD@[2001:db8::7]:7100", "2001:db8::7", 7100),
            ("7Q2K-9XHD@[::1]", "::1", DEFAULT_PORT),
        ] {
            let place: Place = text.parse().unwrap();
            assert_eq!((place.host.as_str(), place.port), (host, port), "{text}");
            assert_eq!(place.to_string(), text);
        }
        assert_eq!("7q2k9xhd@::1".parse::<Place>().unwrap().host, "::1");
    }

    #[test]
    fn other_texts_are_no_place() {
        for text in [
            "",
            "7Q2K-9XHD",
            "7Q2K-9XHD@",
            "7Q2K@a",
            "7Q2K-9XHD@a:0",
            "7Q2K-9XHD@a:x",
            "7Q2K-9XHD@[a]",
            "7Q2K-9XHD@a b",
            "7Q2K-9XHD@[::1]x",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
