//! Parses the URL of a collector.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// Where a collector takes OTLP over HTTP. **Shape:** `http://HOST[:PORT][/PATH]`; spans go to `/v1/traces` beneath it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an IP address; IPv6 without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// What `Host` says.
    pub(super) authority: String,
    /// Without a slash at its end.
    base: String,
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It does not have the accepted shape.
    #[error("it is not http://HOST:PORT")]
    Shape,
    /// It needs TLS, which is not supported here.
    #[error(
        "https is not supported; run a collector on this machine or in this pod, and let it forward with TLS"
    )]
    Tls,
}

impl Endpoint {
    /// What to request there.
    pub(super) fn path(&self) -> String {
        format!("{}/v1/traces", self.base)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.starts_with("https:") {
            return Err(EndpointError::Tls);
        }
        let uri: Uri = text.parse().map_err(|_| EndpointError::Shape)?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
        let authority = authority.ok_or(EndpointError::Shape)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
            return Err(EndpointError::Shape);
        }
        Ok(Self {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(PORT),
            authority: authority.to_string(),
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.base)
    }
}

/// The port of a URL that names none.
const PORT: u16 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_tls() {
        let endpoint = |text: &str| text.parse::<Endpoint>();
        let usual = endpoint("http://127.0.0.1:4318").unwrap();
        assert_eq!(
            (usual.host.as_str(), usual.port, usual.path().as_str()),
            ("127.0.0.1", 4318, "/v1/traces")
        );
        assert_eq!(usual.to_string(), "http://127.0.0.1:4318");
        let other = endpoint("http://[::1]/otlp/").unwrap();
        assert_eq!((other.host.as_str(), other.port, other.path().as_str()), ("::1", 80, "/otlp/v1/traces"));
        assert_eq!(endpoint("https://example.org"), Err(EndpointError::Tls));
        for wrong in
            ["", "off", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://", "http://u:p@h", "http://h/?a=b"]
        {
            assert_eq!(endpoint(wrong), Err(EndpointError::Shape), "{wrong}");
        }
    }
}
