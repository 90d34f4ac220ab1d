//! The environment of an agent in; the place where its sidecar takes links out.

use std::env;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::ClientError;

/// Where a sidecar takes local links.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Its unix socket.
    Unix(PathBuf),
    /// Its loopback TCP address.
    Tcp {
        /// The address.
        addr: SocketAddr,
        /// The secret that opens it.
        token: Vec<u8>,
    },
}

impl Endpoint {
    /// The sidecar that the environment names: the socket of `CAPD_SOCKET`, the address of `CAPD_HTTP` with the token of
    /// `CAPD_TOKEN` or `CAPD_TOKEN_FILE`, or the socket where `capd` puts it by itself. These are the variables of all SDKs.
    ///
    /// **Errors:** [`ClientError::Invalid`] for an address that is not on this machine, and a token file that cannot be read.
    pub fn from_env() -> Result<Self, ClientError> {
        Self::named_by(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn named_by(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ClientError> {
        let Some(given) = variable("CAPD_SOCKET").or_else(|| variable("CAPD_HTTP")) else {
            let state = variable("XDG_STATE_HOME").map(PathBuf::from);
            let state = state.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")));
            let state = state.ok_or_else(|| {
                ClientError::Invalid(
                    "no sidecar is named: set CAPD_SOCKET to the path of its socket".to_owned(),
                )
            })?;
            return Ok(Self::Unix(state.join("capd/capd.sock")));
        };
        let Some((scheme, rest)) = given.split_once("://") else { return Ok(Self::Unix(given.into())) };
        let accepted = || {
            let accepted = "the path of a socket, or http://127.0.0.1:PORT";
            ClientError::Invalid(format!("sidecar {given:?}; accepted: {accepted}"))
        };
        match scheme {
            "unix" => Ok(Self::Unix(rest.into())),
            "http" => {
                let host = rest.trim_end_matches('/').replace("localhost:", "127.0.0.1:");
                let addr: SocketAddr = host.parse().map_err(|_| accepted())?;
                if !addr.ip().is_loopback() {
                    return Err(accepted());
                }
                Ok(Self::Tcp { addr, token: token(&variable)? })
            }
            _ => Err(accepted()),
        }
    }
}

fn token(variable: &impl Fn(&str) -> Option<String>) -> Result<Vec<u8>, ClientError> {
    if let Some(token) = variable("CAPD_TOKEN") {
        return Ok(token.into_bytes());
    }
    let Some(file) = variable("CAPD_TOKEN_FILE") else { return Ok(Vec::new()) };
    match std::fs::read(&file) {
        Ok(text) => Ok(text.trim_ascii().to_vec()),
        Err(error) => Err(ClientError::Invalid(format!("CAPD_TOKEN_FILE {file}: {error}"))),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp { addr, .. } => addr.fmt(f),
        }
    }
}

impl fmt::Debug for Endpoint {
    /// Everything but the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(variables: &[(&str, &str)]) -> Result<Endpoint, ClientError> {
        Endpoint::named_by(|name| {
            let found = variables.iter().find(|(found, _)| *found == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_names_the_sidecar() {
        let unix = |path: &str| Ok(Endpoint::Unix(path.into()));
        assert_eq!(named(&[("CAPD_SOCKET", "/run/a.sock"), ("CAPD_HTTP", "x")]), unix("/run/a.sock"));
        assert_eq!(named(&[("CAPD_HTTP", "unix:///run/a.sock")]), unix("/run/a.sock"));
        assert_eq!(named(&[("HOME", "/home/a")]), unix("/home/a/.local/state/capd/capd.sock"));
        assert_eq!(named(&[("XDG_STATE_HOME", "/s"), ("HOME", "/home/a")]), unix("/s/capd/capd.sock"));
        let tcp = Endpoint::Tcp { addr: ([127, 0, 0, 1], 7).into(), token: b"t".to_vec() };
        assert_eq!(named(&[("CAPD_HTTP", "http://localhost:7/"), ("CAPD_TOKEN", "t")]), Ok(tcp));
        for wrong in ["http://192.0.2.1:7", "https://127.0.0.1:7", "http://127.0.0.1"] {
            assert!(matches!(named(&[("CAPD_HTTP", wrong)]), Err(ClientError::Invalid(_))), "{wrong}");
        }
        assert!(matches!(named(&[]), Err(ClientError::Invalid(_))));
    }
}
