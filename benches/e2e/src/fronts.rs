//! The ways into a sidecar and out of it in; calls per second, times and memory of each, beside two bare proxies and Dapr,
//! out.
//!
//! All carry [`HTTP_BYTES`] of JSON both ways, but the binary link, which has as many of CBOR. capd checks them against two
//! schemas on both sides, and remembers calls as it does unless it is configured: nothing is set but where it listens.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::agents::UNJOURNALED;
use crate::dapr;
use crate::http::APP_PATH;
use crate::load::Load;
use crate::measure::{ROOT, Series};
use crate::payload::{HTTP_BYTES, INPUT_SCHEMA, OUTPUT_SCHEMA, request_json, response_json};
use crate::sidecar::{Http, Setup, Sidecar};
use crate::subject::{
    self, A_FOLDER, B_FOLDER, CALLER, PROVIDER, PROXY_A, PROXY_B, SIDECAR_A, SIDECAR_B, Subject,
};
use crate::world::{Machine, Process, World, installed};

/// Everything that is measured here.
#[derive(Debug)]
pub(crate) struct Fronts {
    pub(crate) rows: Vec<Row>,
    /// What was not measured, and why.
    pub(crate) absent: Vec<(Subject, String)>,
    /// The part of all cores' time that went to anything but the subjects, while they were measured.
    pub(crate) others: f64,
}

/// One subject's figures.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) subject: Subject,
    pub(crate) series: Series,
    /// Memory of the two processes between the ends, both together: before any round, and after all of them. **Units:** bytes.
    pub(crate) memory: [f64; 2],
    /// Calls that were made in between.
    pub(crate) calls: u64,
}

impl Fronts {
    /// The row of a subject, if it was measured.
    pub(crate) fn of(&self, subject: Subject) -> Option<&Row> {
        self.rows.iter().find(|row| row.subject == subject)
    }
}

/// Measures `rounds` of each with many and with one call in flight, in alternation.
pub(crate) fn measure(
    programs: &subject::Programs,
    subjects: &[Subject],
    rounds: usize,
    many: &Load,
    one: &Load,
) -> Fronts {
    let [many, one] = [many, one].map(|load| Load { bytes: HTTP_BYTES, ..*load });
    let mut fronts = Fronts { rows: Vec::new(), absent: Vec::new(), others: 0.0 };
    let mut worlds = Vec::new();
    for &subject in subjects {
        if let Err(why) = programs.fronts.needed(subject) {
            fronts.absent.push((subject, why));
            continue;
        }
        let mut world = subject.start(programs);
        let before = between_bytes(&world);
        let calls = world.round(&many).all;
        worlds.push(world);
        fronts.rows.push(Row { subject, series: Series::default(), memory: [before, 0.0], calls });
    }
    let ours_us = |worlds: &[World]| worlds.iter().flat_map(World::cpu_us).sum::<f64>();
    let (machine, before_us) = (Machine::watch(), ours_us(&worlds));
    for number in 1..=rounds {
        for (world, row) in worlds.iter_mut().zip(&mut fronts.rows) {
            row.series.add_many(world, &many);
            let last = &row.series.many[number - 1];
            println!("round {number}, {}: {:.0} calls/s", row.subject.name(), last.calls_per_s());
        }
        for (world, row) in worlds.iter_mut().zip(&mut fronts.rows) {
            row.series.one.push(world.round(&one));
        }
    }
    fronts.others = machine.others(ours_us(&worlds) - before_us);
    for (world, row) in worlds.iter().zip(&mut fronts.rows) {
        row.memory[1] = between_bytes(world);
        let Series { many, one, .. } = &row.series;
        row.calls += many.iter().chain(one).map(|round| round.all).sum::<u64>();
        row.series.per_call();
    }
    fronts
}

/// Memory of the two processes that stand between the caller and the provider.
fn between_bytes(world: &World) -> f64 {
    world.pss_bytes()[1..3].iter().sum()
}

/// What is run besides the sidecars of capd; or why it is not.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    dapr: Result<PathBuf, String>,
    python: Result<PathBuf, String>,
    go_agent: Result<PathBuf, String>,
}

impl Programs {
    /// Those that are there. The agent in Go is built.
    pub(crate) fn find(dapr: Option<PathBuf>) -> Self {
        let folder = dapr.unwrap_or_else(|| Path::new(HERE).join("target/dapr"));
        let is_there = ["daprd", "sentry"].iter().all(|name| folder.join(name).is_file());
        let dapr = if is_there { Ok(folder) } else { Err("benches/e2e/dapr.sh was not run".to_owned()) };
        let python = installed("python3").ok_or_else(|| "there is no python3".to_owned());
        Self { dapr, python, go_agent: go_agent() }
    }

    fn needed(&self, subject: Subject) -> Result<(), String> {
        let program = match subject {
            Subject::Dapr => &self.dapr,
            Subject::PythonCaller | Subject::PythonProvider => &self.python,
            Subject::GoCaller | Subject::GoProvider => &self.go_agent,
            _ => return Ok(()),
        };
        program.clone().map(|_there| ())
    }
}

fn go_agent() -> Result<PathBuf, String> {
    let go = installed("go").ok_or("there is no go")?;
    let program = Path::new(HERE).join("target/sdk-agent");
    let mut build = Command::new(go);
    build
        .current_dir(Path::new(HERE).join("sdk"))
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(".");
    match build.status() {
        Ok(status) if status.success() => Ok(program),
        _ => Err("go build failed".to_owned()),
    }
}

/// Two bare proxies between a caller and an application.
pub(crate) fn axum() -> Vec<Process> {
    let (provider, there) = Process::role(PROVIDER, &[&"http-app"]);
    let (b, at_b) = Process::role(PROXY_B, &[&"http-proxy", &there]);
    let (a, at_a) = Process::role(PROXY_A, &[&"http-proxy", &at_b]);
    let (caller, _) = Process::role(CALLER, &[&"http-caller", &at_a, &APP_PATH]);
    vec![caller, a, b, provider]
}

/// Two sidecars of Dapr between a caller and an application.
pub(crate) fn dapr(dir: &Path, programs: &subject::Programs) -> Vec<Process> {
    let folder = programs.fronts.dapr.as_ref().expect("asked for where they are");
    let (provider, app) = Process::role(PROVIDER, &[&"http-app"]);
    let (authority, at_authority) = Process::role("authority", &[&"dapr-authority", &dir, folder]);
    let sidecar = |name, more: [&str; 2]| {
        Process::role(name, &[&"dapr-sidecar", &dir, folder, &at_authority, &more[0], &more[1]])
    };
    let (b, at_b) = sidecar(SIDECAR_B, ["--app", &app]);
    let (a, at_a) = sidecar(SIDECAR_A, ["--peer", &at_b]);
    let path = format!("{}{APP_PATH}", dapr::INVOKE);
    let (caller, _) = Process::role(CALLER, &[&"http-caller", &at_a, &path]);
    vec![caller, a, b, provider, authority]
}

/// What two sidecars of capd are started from.
pub(crate) struct Middle<'a> {
    pub(crate) programs: &'a subject::Programs,
    pub(crate) dir: &'a Path,
    pub(crate) setup: Setup,
}

/// Two sidecars of capd between a caller and a provider that speak HTTP; and where sidecar A takes agents.
pub(crate) fn agents(subject: Subject, middle: Middle<'_>) -> (Vec<Process>, Option<PathBuf>) {
    let Middle { programs, dir, setup } = middle;
    let start = |name, folder: &str, http, peer: Option<&Sidecar>| {
        Sidecar::start(&programs.capd, &dir.join(folder), name, Setup { http, ..setup }, peer)
    };
    let (provider, b) = if subject == Subject::HttpPush {
        let (provider, app) = Process::role(PROVIDER, &[&"http-app"]);
        let port = app.rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address has a port");
        (provider, start(SIDECAR_B, B_FOLDER, Http::Push { port }, None))
    } else {
        let b = start(SIDECAR_B, B_FOLDER, Http::Yes, None);
        (provider(subject, programs, &b, dir), b)
    };
    let a = start(SIDECAR_A, A_FOLDER, Http::Yes, Some(&b));
    let caller = caller(subject, programs, &a, dir);
    (vec![caller, a.process, b.process, provider], Some(a.socket))
}

fn provider(subject: Subject, programs: &subject::Programs, b: &Sidecar, dir: &Path) -> Process {
    let Some(command) = sdk(subject, [Subject::PythonProvider, Subject::GoProvider], programs) else {
        let token = dir.join(B_FOLDER).join(TOKEN);
        return Process::role(PROVIDER, &[&"http-provider", &b.local_tcp, &token]).0;
    };
    let schemas = format!("[{INPUT_SCHEMA},{OUTPUT_SCHEMA}]");
    let result = text(&response_json(HTTP_BYTES));
    Process::program(PROVIDER, command, &[&"provider", &b.socket, &UNJOURNALED, &schemas, &result]).0
}

fn caller(subject: Subject, programs: &subject::Programs, a: &Sidecar, dir: &Path) -> Process {
    let Some(command) = sdk(subject, [Subject::PythonCaller, Subject::GoCaller], programs) else {
        let path = format!("/v1/call/{UNJOURNALED}");
        let token = dir.join(A_FOLDER).join(TOKEN);
        let mut args: Vec<&dyn AsRef<_>> = vec![&"http-caller", &a.local_tcp, &path, &"--token", &token];
        if subject == Subject::HttpKeyed {
            args.push(&"--keyed");
        }
        return Process::role(CALLER, &args).0;
    };
    let params = text(&request_json(HTTP_BYTES));
    Process::program(CALLER, command, &[&"caller", &a.socket, &UNJOURNALED, &params]).0
}

/// An agent of an SDK, if this subject has one at this end.
fn sdk(subject: Subject, [python, go]: [Subject; 2], programs: &subject::Programs) -> Option<Command> {
    let Programs { python: interpreter, go_agent, .. } = &programs.fronts;
    if subject == go {
        return Some(Command::new(go_agent.as_ref().expect("asked for where it is")));
    }
    (subject == python).then(|| {
        let mut command = Command::new(interpreter.as_ref().expect("asked for where it is"));
        command.env("PYTHONPATH", format!("{ROOT}/sdk/python/src")).arg(format!("{HERE}/sdk/agent.py"));
        command
    })
}

fn text(json: &[u8]) -> String {
    String::from_utf8(json.to_vec()).expect("JSON is UTF-8")
}

/// The folder of this program.
const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// The file with a sidecar's token, in its folder.
const TOKEN: &str = "token";
