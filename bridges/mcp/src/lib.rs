//! Bridges the Model Context Protocol and capd: the capabilities that an agent may call as tools, and the tools of a server
//! as capabilities.
//!
//! It is an agent on the local link of a sidecar, through `capd-client`; the sidecar knows nothing of it. Read in this
//! order: [`rpc`] and [`lines`] are the messages and their framing, [`era`] tells old and new clients apart, [`serve`]
//! exports, [`import`] imports, [`install`] configures clients. [`content`] is what both directions say alike. What it has in
//! common with other bridges, the link and the lock file among it, is `capd-bridge`.

pub mod content;
pub mod era;
pub mod import;
pub mod install;
pub mod lines;
pub mod rpc;
pub mod serve;
#[path = "../../../src/provider/process/confine/system.rs"]
pub mod system;
