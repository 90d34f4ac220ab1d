//! Parses a URL: where a program listens, and the path to request there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use axum::http::Uri;

/// Where a program listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) reach: Reach,
    /// The path and the query.
    pub(super) path: String,
    /// What `Host` says.
    pub(super) host: String,
}

/// How it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// One of these addresses, tried in order.
    Addresses(Vec<SocketAddr>),
    /// A host that is looked up for each call.
    Name(String, u16),
    Unix(PathBuf),
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It does not have an accepted shape.
    #[error("{0:?} is no place to post to")]
    Shape(String),
    /// It needs TLS, which is not supported here.
    #[error("{0:?}: https is not spoken to a provider; put a proxy on loopback before it")]
    Tls(String),
    /// It is on another machine, which is not allowed.
    #[error(
        "{0:?} is on another machine, which is sent params and secrets in clear; allowRemote: true permits it"
    )]
    Remote(String),
}

impl Place {
    /// Reads `http://HOST[:PORT]/PATH`, HOST on loopback unless `allow_remote`, or `unix:/SOCKET[:/PATH]`.
    ///
    /// **Errors:** [`PlaceError`].
    pub fn parse(url: &str, allow_remote: bool) -> Result<Self, PlaceError> {
        let shape = || PlaceError::Shape(url.to_owned());
        if let Some(rest) = url.strip_prefix("unix:") {
            let (socket, path) = rest
                .split_once(":/")
                .map_or((rest, "/".to_owned()), |(socket, path)| (socket, format!("/{path}")));
            if !socket.starts_with('/') || path.parse::<Uri>().is_err() {
                return Err(shape());
            }
            let host = "localhost".to_owned();
            return Ok(Self { reach: Reach::Unix(PathBuf::from(socket)), path, host });
        }
        if url.starts_with("https:") {
            return Err(PlaceError::Tls(url.to_owned()));
        }
        let uri: Uri = url.parse().map_err(|_| shape())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(shape)?;
        if authority.as_str().contains('@') {
            return Err(shape());
        }
        let port = authority.port_u16().unwrap_or(80);
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let reach = match name.parse::<IpAddr>() {
            Ok(address) => Reach::Addresses(vec![SocketAddr::new(address, port)]),
            // Whatever a resolver says of it.
            Err(_) if name.eq_ignore_ascii_case("localhost") => Reach::Addresses(vec![
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
            ]),
            Err(_) => Reach::Name(name.to_owned(), port),
        };
        let is_here =
            matches!(&reach, Reach::Addresses(all) if all.iter().all(|address| address.ip().is_loopback()));
        if !is_here && !allow_remote {
            return Err(PlaceError::Remote(url.to_owned()));
        }
        let path = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        Ok(Self { reach, path, host: authority.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_on_this_machine_unless_it_may_be_elsewhere() {
        let place = |url: &str| Place::parse(url, false);
        let tcp = place("http://127.0.0.1:5000/translate?x=1").unwrap();
        assert_eq!((tcp.path.as_str(), tcp.host.as_str()), ("/translate?x=1", "127.0.0.1:5000"));
        assert_eq!(tcp.reach, Reach::Addresses(vec!["127.0.0.1:5000".parse().unwrap()]));
        assert_eq!(
            place("http://[::1]:7").unwrap().reach,
            Reach::Addresses(vec!["[::1]:7".parse().unwrap()])
        );
        assert!(matches!(place("http://localhost/").unwrap().reach, Reach::Addresses(all) if all.len() == 2));
        let unix = place("unix:/run/app.sock:/translate").unwrap();
        assert_eq!((unix.reach, unix.path.as_str()), (Reach::Unix("/run/app.sock".into()), "/translate"));
        assert_eq!(place("unix:/run/app.sock").unwrap().path, "/");
        for url in [
            "http://example.com/",
            "http://10.0.0.1/",
            "http://localhost.example.com/",
            "http://169.254.169.254/",
        ] {
            assert_eq!(place(url), Err(PlaceError::Remote(url.to_owned())));
            assert!(Place::parse(url, true).is_ok());
        }
        for url in
            ["", "ftp://127.0.0.1/", "unix:app.sock", "http:///x", "127.0.0.1:80", "http://u:p@127.0.0.1/"]
        {
            assert_eq!(place(url), Err(PlaceError::Shape(url.to_owned())), "{url}");
        }
        assert!(matches!(place("https://127.0.0.1/"), Err(PlaceError::Tls(_))));
    }
}
