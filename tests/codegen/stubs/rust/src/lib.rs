//! A stub of the crate capd-client for compiling generated code: sdk/CONTRACT.md, as declarations.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    pub sha256: &'static str,
    pub json: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltAgainst {
    pub input: Option<Schema>,
    pub output: Option<Schema>,
}

#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    pub version: Option<String>,
    pub timeout: Option<Duration>,
    pub key: Option<String>,
    pub thread: Option<String>,
    pub built_against: Option<BuiltAgainst>,
}

#[derive(Debug)]
pub struct ClientError;

pub struct Client;

impl Client {
    pub async fn call_typed<Req, Res>(
        &self,
        _name: &str,
        _params: &Req,
        _options: CallOptions,
    ) -> Result<Res, ClientError>
    where
        Req: serde::Serialize + Sync + ?Sized,
        Res: serde::de::DeserializeOwned,
    {
        Err(ClientError)
    }
}
