//! HTTP of the bridges: [`server`] lets requests of this machine in, [`body`] is what is answered, [`client`] asks servers of
//! others.

pub mod body;
pub mod client;
pub mod server;
