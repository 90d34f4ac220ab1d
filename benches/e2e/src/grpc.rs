//! Calls over gRPC in; the provider, the proxies and the caller of tonic, set up as its documentation advises, out.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use self::echo::echo_client::EchoClient;
use self::echo::echo_server::{Echo, EchoServer};
use crate::load::Callee;
use crate::payload::{Results, request, response_bytes};
use crate::quic::{CLIENT, NAME, SERVER};
use crate::role::{done, ready, rounds};

#[allow(missing_docs, unreachable_pub, reason = "tonic writes it")]
#[allow(clippy::all, clippy::unwrap_used, reason = "tonic writes it")]
mod echo {
    include!(concat!(env!("OUT_DIR"), "/capd.e2e.Echo.rs"));
}

/// The message of the service, both ways.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Payload {
    /// Opaque here.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) data: Bytes,
}

/// What a hop goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// HTTP/2 in the clear, as on one machine.
    Plain,
    /// TLS with certificates on both sides.
    Tls,
}

/// Answers calls.
pub(crate) async fn provider(files: &Path, wire: Wire) {
    serve(files, wire, Provider(Arc::default())).await;
}

/// Calls `to` for each call that it gets.
pub(crate) async fn proxy(files: &Path, server: Wire, client: Wire, to: &str) {
    serve(files, server, Proxy(connect(files, client, to).await)).await;
}

/// Calls there.
pub(crate) async fn caller(files: &Path, wire: Wire, to: &str) {
    let client = connect(files, wire, to).await;
    rounds(&Caller { client, params: Bytes::new() }).await;
}

struct Provider(Arc<Results>);

#[tonic::async_trait]
impl Echo for Provider {
    async fn call(&self, call: Request<Payload>) -> Result<Response<Payload>, Status> {
        let data = self.0.of(call.get_ref().data.len());
        Ok(Response::new(Payload { data }))
    }
}

struct Proxy(EchoClient<Channel>);

#[tonic::async_trait]
impl Echo for Proxy {
    async fn call(&self, call: Request<Payload>) -> Result<Response<Payload>, Status> {
        self.0.clone().call(call.into_inner()).await
    }
}

#[derive(Clone)]
struct Caller {
    client: EchoClient<Channel>,
    params: Bytes,
}

impl Callee for Caller {
    fn sized(&self, bytes: usize) -> Self {
        Self { params: request(bytes), ..self.clone() }
    }

    async fn call(&mut self) {
        let answer = self.client.call(Payload { data: self.params.clone() }).await.unwrap();
        assert_eq!(answer.get_ref().data.len(), response_bytes(self.params.len()));
    }
}

async fn serve(files: &Path, wire: Wire, service: impl Echo) {
    let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap().with_nodelay(Some(true));
    let address = incoming.local_addr().unwrap();
    let router = router(files, wire, service);
    tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() });
    ready(address);
    done().await;
}

fn router(files: &Path, wire: Wire, service: impl Echo) -> Router {
    let mut server = Server::builder().max_concurrent_streams(STREAMS_MAX);
    if wire == Wire::Tls {
        let tls = ServerTlsConfig::new()
            .identity(identity(files, SERVER))
            .client_ca_root(Certificate::from_pem(pem(files, CLIENT)));
        server = server.tls_config(tls).unwrap();
    }
    server.add_service(EchoServer::new(service))
}

async fn connect(files: &Path, wire: Wire, to: &str) -> EchoClient<Channel> {
    let scheme = if wire == Wire::Tls { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{to}")).unwrap().tcp_nodelay(true);
    if wire == Wire::Tls {
        let tls = ClientTlsConfig::new()
            .identity(identity(files, CLIENT))
            .ca_certificate(Certificate::from_pem(pem(files, SERVER)))
            .domain_name(NAME);
        endpoint = endpoint.tls_config(tls).unwrap();
    }
    EchoClient::new(endpoint.connect().await.unwrap())
}

fn identity(files: &Path, side: &str) -> Identity {
    Identity::from_pem(pem(files, side), pem(files, &format!("{side}.key")))
}

fn pem(files: &Path, name: &str) -> Vec<u8> {
    std::fs::read(files.join(format!("{name}.pem"))).unwrap()
}

const STREAMS_MAX: u32 = 4_096;
