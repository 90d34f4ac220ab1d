//! Bridges the Agent2Agent protocol (A2A 1.0) and capd: the capabilities that an agent may call as skills, and the skills of
//! an agent as capabilities.
//!
//! It is an agent on the local link of a sidecar, through `capd-client`; the sidecar knows nothing of it. Read in this
//! order: [`extension`] is what capd adds to the protocol, [`signing`] signs cards and verifies them, [`serve`] exports, and
//! [`import`] imports. What it has in common with other bridges is `capd-bridge`.

pub mod extension;
pub mod import;
pub mod serve;
pub mod signing;
