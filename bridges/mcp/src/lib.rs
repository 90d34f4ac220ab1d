//! Bridges the Model Context Protocol and capd: the capabilities that an agent may call as tools, and the tools of a server
//! as capabilities.
//!
//! It is an agent on the local link of a sidecar, through `capd-client`; the sidecar knows nothing of it. Read in this
//! order: [`rpc`] and [`lines`] are the messages and their framing, [`era`] tells old and new clients apart, [`sidecar`] is
//! the link, [`serve`] exports, [`import`] imports, [`install`] configures clients. [`content`] is what both directions say alike, and [`text`] escapes foreign text.

pub mod content;
pub mod era;
pub mod import;
pub mod install;
pub mod lines;
pub mod log;
pub mod rpc;
pub mod serve;
pub mod sidecar;
#[path = "../../../src/provider/process/confine/system.rs"]
pub mod system;
#[path = "../../../src/text.rs"]
pub mod text;
