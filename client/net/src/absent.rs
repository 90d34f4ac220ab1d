//! Replaces peer links if the feature `peer` is off: types without values, so no link can be a QUIC link.
//!
//! Each type has the interface that the rest of the crate uses, and no value of it can exist.

/// The parts of quinn that a link holds.
pub(super) mod quinn {
    #[derive(Clone)]
    pub(crate) enum Connection {}
    pub(crate) enum ConnectionError {}
    pub(crate) enum Endpoint {}
    pub(crate) enum SendStream {}
    pub(crate) enum RecvStream {}
}

pub(super) mod quic {
    use super::quinn::Connection;

    pub(crate) enum ResetKey {}
    pub(crate) enum Window {}

    impl Window {
        pub(crate) const fn new(connection: Connection, _bytes_max: u32) -> Self {
            match connection {}
        }

        pub(crate) const fn fit(&self) {
            match *self {}
        }

        pub(crate) const fn open(&self) {
            match *self {}
        }
    }
}

pub(super) mod connection {
    use std::io;

    use bytes::Bytes;

    use super::quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
    use crate::close::CloseReason;

    pub(crate) async fn accept(connection: &Connection) -> Result<(SendStream, RecvStream), ConnectionError> {
        match *connection {}
    }

    pub(crate) const fn close_reason(connection: &Connection) -> Option<CloseReason> {
        match *connection {}
    }

    pub(crate) const fn lost(error: &ConnectionError) -> CloseReason {
        match *error {}
    }

    pub(crate) const fn close(connection: &Connection, _code: u32) {
        match *connection {}
    }

    pub(crate) async fn end(endpoint: Endpoint) {
        match endpoint {}
    }

    pub(crate) async fn write(stream: &mut SendStream, _chunks: &mut [Bytes]) -> io::Result<()> {
        match *stream {}
    }

    pub(crate) async fn finish(stream: &mut SendStream) -> io::Result<()> {
        match *stream {}
    }
}

pub(super) mod exchange {
    use std::sync::Arc;

    use capd_proto::envelope::Encoded;

    use super::quinn::{Connection, RecvStream, SendStream};
    use crate::link::{Link, Route};
    use crate::outbox::{Precedence, SendError};
    use crate::{Service, Settings};

    pub(crate) enum Exchanges {}

    impl Exchanges {
        pub(crate) fn new(connection: Connection, _: &Arc<dyn Service>, _: &Settings) -> Self {
            match connection {}
        }

        pub(crate) fn request(&self, _: &Arc<Link>, _: &Encoded, _: Precedence) -> Result<Route, SendError> {
            match *self {}
        }

        pub(crate) fn accept(_: &Arc<Link>, _: &Arc<dyn Service>, send: SendStream, _: RecvStream) {
            match send {}
        }
    }
}

pub(super) mod early {
    use std::sync::Arc;

    use super::quinn::{RecvStream, SendStream};
    use crate::stream::Flow;

    pub(crate) fn judge(_: &Arc<Flow>, send: SendStream, _: RecvStream) {
        match send {}
    }
}

pub(super) mod tls {
    pub(crate) enum Credentials {}
}
