//! Reads and writes JSON-RPC: one JSON text in; a request, a notification or a response, out.

use capd_client::value_of_json;
use serde_json::{Map, Value, json};

/// A message of the other side.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// It wants an answer.
    Request(Request),
    /// It wants none.
    Notification(Notification),
    /// It answers a request of ours.
    Response {
        /// The request's id.
        id: Id,
        /// The result, or why there is none.
        outcome: Result<Value, RpcError>,
    },
}

/// A message that wants an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What the answer names.
    pub id: Id,
    /// What is asked for.
    pub method: String,
    /// With what; an empty object when the message has none.
    pub params: Map<String, Value>,
}

/// A message that wants no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// What happened.
    pub method: String,
    /// With what; an empty object when the message has none.
    pub params: Map<String, Value>,
}

/// A request's id: a text or an integer, as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Value);

/// Why a request has no result.
///
/// **Shape:** `{"code": int, "message": text, ? "data": any}`. **Source:** JSON-RPC 2.0, 5.1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// Words for people.
    pub message: String,
    /// What a program may use.
    pub data: Option<Value>,
}

/// A text that is no message, and the id to refuse it under where it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Malformed {
    /// The request's id, if it can be read.
    pub id: Option<Id>,
    /// What is wrong.
    pub error: RpcError,
}

impl Id {
    /// The id of a JSON value; none for one that is neither a text nor an integer.
    pub fn of(value: &Value) -> Option<Self> {
        let is_id = value.is_string() || value.is_i64() || value.is_u64();
        is_id.then(|| Self(value.clone()))
    }

    /// The id as it came.
    pub const fn json(&self) -> &Value {
        &self.0
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Self(number.into())
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// -32602: the params are not what the method takes.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    fn of(value: &Value) -> Self {
        Self {
            code: value["code"].as_i64().unwrap_or(INTERNAL_ERROR),
            message: value["message"].as_str().unwrap_or("the error has no message").to_owned(),
            data: value.get("data").cloned(),
        }
    }

    fn json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

impl Message {
    /// Reads one message.
    ///
    /// **Errors:** -32700 for what is not JSON, -32600 for what is no message.
    pub fn read(text: &[u8]) -> Result<Self, Box<Malformed>> {
        let refused = |id: Option<Id>, code, message: String| {
            Box::new(Malformed { id, error: RpcError::new(code, message) })
        };
        let value = value_of_json(text).map_err(|error| refused(None, PARSE_ERROR, error.to_string()))?;
        let id = value.get("id").and_then(Id::of);
        let invalid = |message: &str| refused(id.clone(), INVALID_REQUEST, message.to_owned());
        if value["jsonrpc"] != "2.0" {
            return Err(invalid("not a JSON-RPC 2.0 message: \"jsonrpc\" is not \"2.0\""));
        }
        let Some(method) = value.get("method") else {
            let Some(id) = id.clone() else {
                return Err(invalid("neither a method nor the id of a response"));
            };
            let outcome = match (value.get("result"), value.get("error")) {
                (Some(result), None) => Ok(result.clone()),
                (None, Some(error)) => Err(RpcError::of(error)),
                (Some(_), Some(_)) | (None, None) => {
                    return Err(invalid("a response has either a result or an error"));
                }
            };
            return Ok(Self::Response { id, outcome });
        };
        let method = method.as_str().ok_or_else(|| invalid("the method is no text"))?.to_owned();
        let params = match value.get("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params.clone(),
            Some(_) => return Err(invalid("params is no object")),
        };
        match (value.get("id"), id.clone()) {
            (None, _) => Ok(Self::Notification(Notification { method, params })),
            (Some(_), Some(id)) => Ok(Self::Request(Request { id, method, params })),
            (Some(_), None) => Err(invalid("the id is neither a text nor an integer")),
        }
    }
}

/// A request as it is sent.
pub fn request(id: &Id, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.json(), "method": method, "params": params})
}

/// A notification as it is sent.
pub fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A response as it is sent; to a message whose id cannot be read it names none.
pub fn response(id: Option<&Id>, outcome: &Result<Value, RpcError>) -> Value {
    let id = id.map_or(Value::Null, |id| id.json().clone());
    match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.json()}),
    }
}

/// Not JSON. **Source:** JSON-RPC 2.0, 5.1, as the others.
pub const PARSE_ERROR: i64 = -32_700;
/// JSON, and no message.
pub const INVALID_REQUEST: i64 = -32_600;
/// A method that this side does not know.
pub const METHOD_NOT_FOUND: i64 = -32_601;
/// Params that the method does not take.
pub const INVALID_PARAMS: i64 = -32_602;
/// A fault of the side that answers.
pub const INTERNAL_ERROR: i64 = -32_603;
/// Headers that say otherwise than the body. **Source:** MCP 2026-07-28, basic, as the next two.
pub const HEADER_MISMATCH: i64 = -32_020;
/// A capability that the client did not declare.
pub const MISSING_CLIENT_CAPABILITY: i64 = -32_021;
/// A protocol version that the server does not speak.
pub const UNSUPPORTED_VERSION: i64 = -32_022;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_message_is_read() {
        let read = |text: &str| Message::read(text.as_bytes());
        let Ok(Message::Request(asked)) = read(r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#) else {
            panic!()
        };
        assert_eq!((asked.id.json(), asked.method.as_str(), asked.params.len()), (&json!("a"), "m", 0));
        let Ok(Message::Notification(told)) = read(r#"{"jsonrpc":"2.0","method":"n","params":{"x":1}}"#)
        else {
            panic!()
        };
        assert_eq!(told.params["x"], 1);
        let answer = read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#).unwrap();
        assert_eq!(answer, Message::Response { id: 7.into(), outcome: Err(RpcError::new(-1, "no")) });
    }

    #[test]
    fn what_is_no_message_is_refused_under_its_id_where_it_has_one() {
        for (text, code, id) in [
            ("{", PARSE_ERROR, None),
            ("[]", INVALID_REQUEST, None),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":2}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, INVALID_REQUEST, None),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, INVALID_REQUEST, None),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST, Some(1)),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":99999999999999999999}}"#,
                PARSE_ERROR,
                None,
            ),
        ] {
            let refused = Message::read(text.as_bytes()).unwrap_err();
            assert_eq!((refused.error.code, refused.id), (code, id.map(Id::from)), "{text}");
        }
    }
}
