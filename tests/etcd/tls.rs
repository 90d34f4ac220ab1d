//! TLS with client certificates, and the rights that `capctl fleet admit` prints: they are enough, and no more.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use capd::fleet::disk::Disk;
use capd::fleet::engine::Engine as _;
use capd::fleet::etcd::{ClientFiles, Etcd, Settings, TlsFiles};
use capd_proto::fleet::engine::{Ask, EngineError, LeaseId, Told};
use capd_proto::fleet::{Agent, Fence, Key};
use capd_proto::ledger::JournalId;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::contract;
use super::member::{Member, agent, cell, identity, name, offer};
use super::server::{Programs, Server};
use super::world::{TTL_MS, within};

/// The rights of an agent let it do all that an engine does.
pub async fn rights_that_capctl_prints_are_enough(programs: Programs) {
    let world = Guarded::start(&programs).await;
    let engines = [world.engine(agent(1)).await, world.engine(agent(2)).await];
    contract::holds(|of| engines[usize::from(of != agent(1))].clone()).await;
}

pub async fn an_agent_can_touch_no_key_of_another(programs: Programs) {
    let world = Guarded::start(&programs).await;
    let victim = world.engine(agent(1)).await;
    let fence = Fence { incarnation: 1, journal: JournalId([1; 16]) };
    assert_eq!(victim.ask(Ask::Claim { fence, read: None }).await, Ok(Told::Done));
    let key = Key::registration(name(), agent(1));
    let puts = vec![(key.clone(), Bytes::from_static(b"mine"))];
    let registered = victim.ask(Ask::Register { fence, ttl_ms: 600_000, puts }).await;
    let Ok(Told::Held { lease: LeaseId(lease), .. }) = registered else { panic!("{registered:?}") };

    let rogue = world.login(agent(2).to_string());
    let (key, fence) = (key.path(&cell()), Key::Fence(agent(1)).path(&cell()));
    let denied = |arguments: &[&str]| {
        let done = world.server.ctl_as(&rogue, arguments);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains("permission denied"), "{arguments:?}: {said}");
    };
    let granted = world.server.ctl_as(&rogue, &["lease", "grant", "600"]);
    let granted = String::from_utf8(granted.stdout).unwrap();
    let own_lease = granted.split_whitespace().nth(1).unwrap();
    for path in [&key, &fence] {
        denied(&["put", path, "forged"]);
        denied(&["del", path]);
        denied(&["put", "--lease", own_lease, path, "forged"]);
        denied(&["put", "--ignore-value", "--lease", own_lease, path]);
    }
    denied(&["lease", "revoke", &format!("{lease:x}")]);
    denied(&["del", "--prefix", "/capd/1/test/"]);
    // Not even its own key under a name that it may not serve, nor anything of another cell.
    denied(&["put", &key.replace("org.example.a", "org.bank.pay"), "forged"]);
    denied(&["get", "--prefix", "/capd/1/other/"]);
    let stands = world.server.ctl(&["get", &key, "--print-value-only"]);
    assert_eq!(stands.trim_end(), "mine");
    assert_eq!(victim.ask(Ask::Renew(LeaseId(lease))).await, Ok(Told::Done));
}

/// A right that is taken away while sidecars run ends nothing that they have.
pub async fn a_role_that_is_revoked_loses_nothing(programs: Programs) {
    let world = Guarded::start(&programs).await;
    let start = async |number: u8| {
        let engine = world.engine(agent(number)).await;
        Member::start_on(number, engine, Disk::Memory(0), |config| config.ttl_ms = TTL_MS)
    };
    let (caller, provider) = (start(1).await, start(2).await);
    caller.fleet.want(&name());
    provider.fleet.offer(offer(2));
    let listed = || {
        let candidates = caller.fleet.candidates(&name()).unwrap_or_default();
        candidates.iter().filter(|candidate| candidate.is_listed()).count()
    };
    within("it is listed", || listed() == 1 && provider.fleet.status().registered.is_some()).await;
    caller.fleet.link_opened(agent(2), None);
    let role = agent(2).to_string();
    world.server.ctl(&["user", "revoke-role", &role, &role]);
    // What it offers changes, and cannot be put.
    let mut changed = offer(2);
    changed.addresses[0].port += 1;
    provider.fleet.offer(changed.clone());
    within("its health says so", || {
        provider.fleet.status().engine.error.as_ref().is_some_and(|error| error.contains("permission denied"))
    })
    .await;
    assert_eq!(caller.fleet.candidates(&name()).unwrap().len(), 1);
    world.server.ctl(&["user", "grant-role", &role, &role]);
    within("the caller knows of the change", || {
        let candidates = caller.fleet.candidates(&name()).unwrap_or_default();
        candidates.iter().any(|candidate| candidate.registration.addresses == changed.addresses)
    })
    .await;
    assert!(!caller.said("LetGo"));
}

pub async fn who_shows_no_certificate_or_anothers_is_not_let_in(programs: Programs) {
    let world = Guarded::start(&programs).await;
    let without = TlsFiles { ca: world.file("ca.pem"), client: None };
    let engine = world.engine_with(agent(1), without).await;
    assert_eq!(engine.ask(Ask::ReadFence).await, Err(EngineError::Lost));
    // With TLS 1.3 a client is told why only after its handshake, if at all.
    assert!(engine.health().error.is_some());
    let stranger = world.engine_with(agent(1), world.files("stranger")).await;
    let asked = stranger.ask(Ask::ReadFence).await;
    assert_eq!(asked, Err(EngineError::Denied), "{:?}", stranger.health());
    // An etcd of another authority is none of ours.
    let other = Authority::new();
    std::fs::write(world.file("other.pem"), &other.pem).unwrap();
    let files = TlsFiles { ca: world.file("other.pem"), ..world.files(&agent(1).to_string()) };
    let engine = world.engine_with(agent(1), files).await;
    assert_eq!(engine.ask(Ask::ReadFence).await, Err(EngineError::Lost));
    assert!(
        engine.health().error.is_some_and(|error| error.contains("invalid peer certificate")),
        "{:?}",
        engine.health()
    );
}

/// An etcd with TLS, client certificates, and a role for each of two agents.
struct Guarded {
    server: Server,
    folder: TempDir,
}

impl Guarded {
    async fn start(programs: &Programs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        std::fs::write(folder.path().join("ca.pem"), &authority.pem).unwrap();
        let names = [agent(1).to_string(), agent(2).to_string()];
        authority.issue(&folder, "server", None);
        for name in names.iter().map(String::as_str).chain(["root", "stranger"]) {
            authority.issue(&folder, name, Some(name));
        }
        let of = |option: &str, file: &str| format!("--{option}={}", folder.path().join(file).display());
        let arguments = [
            of("cert-file", "server.pem"),
            of("key-file", "server.key"),
            of("trusted-ca-file", "ca.pem"),
            "--client-cert-auth".to_owned(),
        ];
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let login = login(&folder, "root");
        let server = Server::start_as(programs, &arguments, login).await;
        for command in [
            &["user", "add", "root", "--no-password"][..],
            &["role", "add", "root"],
            &["user", "grant-role", "root", "root"],
        ] {
            server.ctl(command);
        }
        capctl(&folder, &["init", "--cell", "test"]);
        for number in [1, 2] {
            let did = identity(number).public_key().did().to_string();
            let printed = capctl(&folder, &["admit", &did, "--cell", "test", "--serves", name().as_str()]);
            let commands: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("etcdctl ")).collect();
            assert!(commands.len() >= 7, "{printed}");
            for command in commands {
                server.ctl(&command.split_whitespace().collect::<Vec<_>>());
            }
        }
        server.ctl(&["auth", "enable"]);
        Self { server, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn files(&self, of: &str) -> TlsFiles {
        let client = ClientFiles {
            certificate: self.file(&format!("{of}.pem")),
            key: self.file(&format!("{of}.key")),
        };
        TlsFiles { ca: self.file("ca.pem"), client: Some(client) }
    }

    fn login(&self, of: String) -> Vec<String> {
        login(&self.folder, &of)
    }

    async fn engine(&self, agent: Agent) -> Arc<Etcd> {
        self.engine_with(agent, self.files(&agent.to_string())).await
    }

    async fn engine_with(&self, agent: Agent, tls: TlsFiles) -> Arc<Etcd> {
        let endpoints = vec![format!("https://{}", self.server.address())];
        let settings = Settings { endpoints, tls: Some(tls), cell: cell(), agent };
        Etcd::new(settings, Arc::new(rustls::crypto::ring::default_provider())).await.unwrap()
    }
}

fn login(folder: &TempDir, of: &str) -> Vec<String> {
    let file = |name: String| folder.path().join(name).display().to_string();
    vec![
        format!("--cacert={}", file("ca.pem".into())),
        format!("--cert={}", file(format!("{of}.pem"))),
        format!("--key={}", file(format!("{of}.key"))),
    ]
}

/// Who signs certificates of etcd and of those who come to it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let pem = pem("CERTIFICATE", params.self_signed(&key).unwrap().der());
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate and its key: of a server on loopback, or of a client with this common name.
    fn issue(&self, folder: &TempDir, file: &str, common_name: Option<&str>) {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = match common_name {
            Some(_) => CertificateParams::default(),
            None => CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap(),
        };
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (certificate, key) =
            (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()));
        std::fs::write(folder.path().join(format!("{file}.pem")), certificate).unwrap();
        std::fs::write(folder.path().join(format!("{file}.key")), key).unwrap();
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Runs `capctl fleet` in a folder; what it prints.
fn capctl(folder: &TempDir, arguments: &[&str]) -> String {
    let examples = std::env::current_exe().unwrap();
    let program = examples.parent().and_then(std::path::Path::parent).unwrap().join("capctl");
    let done =
        Command::new(program).arg("fleet").args(arguments).current_dir(folder.path()).output().unwrap();
    assert!(done.status.success(), "capctl fleet {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}
