//! Tells the two eras of the protocol apart: versions and the fields of a request in; how to speak, out.
//!
//! Up to 2025-11-25 a session begins with `initialize`. From 2026-07-28 on every request says its version in `_meta`.

use serde_json::{Map, Value, json};

use crate::rpc::{Request, RpcError, UNSUPPORTED_VERSION};

/// How a request was asked, and so how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Within a session that began with `initialize`, of this version.
    Legacy(&'static str),
    /// By itself, with version and capabilities in its `_meta`.
    Modern,
}

impl Era {
    /// The era of a request that says its version in `_meta`; none for one that does not.
    ///
    /// **Errors:** -32022 for a version that is not spoken, -32602 for one without the client's capabilities.
    pub fn of(request: &Request) -> Result<Option<Self>, RpcError> {
        let Some(meta) = request.params.get("_meta").and_then(Value::as_object) else { return Ok(None) };
        let Some(version) = meta.get(PROTOCOL_VERSION) else { return Ok(None) };
        if version != MODERN {
            return Err(unsupported(version));
        }
        if !meta.get(CLIENT_CAPABILITIES).is_some_and(Value::is_object) {
            let message = format!("_meta[\"{CLIENT_CAPABILITIES}\"] is missing or no object");
            return Err(RpcError::invalid_params(message));
        }
        Ok(Some(Self::Modern))
    }

    /// A result with what every result of the era has.
    pub fn finish(self, result: Value) -> Value {
        let (Self::Modern, Value::Object(mut fields)) = (self, result.clone()) else { return result };
        fields.entry("resultType").or_insert_with(|| "complete".into());
        let meta = fields.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(meta) = meta {
            meta.insert(SERVER_INFO.to_owned(), implementation());
        }
        Value::Object(fields)
    }
}

/// -32022, with what is spoken here.
pub fn unsupported(requested: &Value) -> RpcError {
    let supported: Vec<_> = std::iter::once(MODERN).chain(LEGACY.into_iter().rev()).collect();
    RpcError {
        code: UNSUPPORTED_VERSION,
        message: "Unsupported protocol version".to_owned(),
        data: Some(json!({"supported": supported, "requested": requested})),
    }
}

/// The legacy version to speak with a client that asks for one: its own where it is known, else the newest.
pub fn negotiated(asked: &Value) -> &'static str {
    LEGACY.into_iter().find(|version| asked == version).unwrap_or(LEGACY[LEGACY.len() - 1])
}

/// Who we are, as the protocol has it.
pub fn implementation() -> Value {
    json!({"name": "capd-mcp", "version": env!("CARGO_PKG_VERSION")})
}

/// The `_meta` that every modern request of ours has.
pub fn request_meta() -> Map<String, Value> {
    let fields = [
        (PROTOCOL_VERSION, json!(MODERN)),
        (CLIENT_INFO, implementation()),
        (CLIENT_CAPABILITIES, json!({})),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The revision whose requests stand by themselves.
pub const MODERN: &str = "2026-07-28";
/// The revisions that begin with `initialize`, oldest first.
pub const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// What a client over HTTP speaks that names no version. **Source:** MCP 2025-11-25, transports.
pub const LEGACY_UNNAMED: &str = LEGACY[1];
/// The fields of `_meta`. **Source:** MCP 2026-07-28, basic.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Which program the client is.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Which program the server is.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Which subscription a notification belongs to.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

#[cfg(test)]
mod tests {
    use super::*;

    fn request(meta: Value) -> Request {
        let params = json!({"_meta": meta});
        Request { id: 1.into(), method: "tools/list".to_owned(), params: params.as_object().unwrap().clone() }
    }

    #[test]
    fn a_request_with_its_version_is_modern_and_one_without_is_not() {
        let modern = request(json!({PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}));
        assert_eq!(Era::of(&modern), Ok(Some(Era::Modern)));
        assert_eq!(Era::of(&request(json!({"progressToken": 1}))), Ok(None));
        let bare = request(json!({PROTOCOL_VERSION: MODERN}));
        assert_eq!(Era::of(&bare).unwrap_err().code, crate::rpc::INVALID_PARAMS);
        let other = request(json!({PROTOCOL_VERSION: "1900-01-01", CLIENT_CAPABILITIES: {}}));
        let refused = Era::of(&other).unwrap_err();
        assert_eq!(refused.code, UNSUPPORTED_VERSION);
        assert_eq!(refused.data.unwrap()["supported"][0], MODERN);
    }

    #[test]
    fn an_unknown_legacy_version_becomes_the_newest() {
        assert_eq!(negotiated(&json!("2025-06-18")), "2025-06-18");
        assert_eq!(negotiated(&json!("2099-01-01")), "2025-11-25");
        assert_eq!(negotiated(&json!(null)), "2025-11-25");
    }
}
