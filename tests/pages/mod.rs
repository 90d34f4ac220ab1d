//! Runs the `$ ` examples of README.md and docs/, page by page, and compares what they print with what the page shows.
//! `docs/contributing.md` (*Examples in pages*) has the conventions.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "real processes are met in real time")]

mod links;
mod page;
mod session;
mod shown;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use page::{Example, Page};
use session::Session;
use shown::{Gaps, Values};

use crate::support::PATIENCE;

/// Programs that examples use and that a machine may lack.
const PROGRAMS: [&str; 3] = ["curl", "python3", PYTHON];
/// What confined commands can run: a Python of the system, and none in somebody's home.
const PYTHON: &str = "/usr/bin/python3";

/// Runs one page in a fresh home. Fails with all its examples that went wrong, not only with the first.
fn run(name: &str) {
    let page = Page::read(name);
    let mut programs =
        PROGRAMS.iter().filter(|program| page.examples.iter().any(|example| example.names(program)));
    if let Some(missing) = programs.find(|program| !session::has_program(program)) {
        let note = format!("{name}: NOT RUN, because there is no {missing}\n");
        return std::io::stderr().write_all(note.as_bytes()).unwrap();
    }
    let begun = Instant::now();
    let mut session = Session::start();
    let mut values = Values::default();
    let mut failures = Vec::new();
    let mut is_starting = false;
    for example in &page.examples {
        let mut outcome = play(example, &mut session, &mut values);
        let deadline = Instant::now() + PATIENCE;
        // A reader takes longer to type than what the command before has begun takes to start.
        while is_starting && !example.shown.is_empty() && outcome.is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            outcome = play(example, &mut session, &mut values);
        }
        is_starting = example.is_in_background();
        if let Some(folder) = example.sidecar().filter(|_| is_starting && outcome.is_ok()) {
            outcome = listening(folder, &mut session);
        }
        if let Err(failure) = outcome {
            failures.push(format!("{name}:{}: $ {}\n{failure}", example.line, example.command));
        }
    }
    failures.extend(session.end().err());
    // Past the harness's capture, so that a passing run says it as well.
    let summary = format!(
        "{name}: {} commands ran in {:.1} s, {} are text and did not\n",
        page.examples.len(),
        begun.elapsed().as_secs_f64(),
        page.left_out
    );
    std::io::stderr().write_all(summary.as_bytes()).unwrap();
    assert!(failures.is_empty(), "{} of {name} failed\n\n{}\n", failures.len(), failures.join("\n\n"));
}

/// Waits for a sidecar that was begun in the background, as whoever types does. **Errors:** it does not listen.
fn listening(folder: &str, session: &mut Session) -> Result<(), String> {
    let tries = PATIENCE.as_millis() / 50;
    let socket = format!("{folder}/state/capd.sock");
    let wait =
        format!("for _ in $(seq {tries}); do [ -S {socket} ] && break; sleep 0.05; done; [ -S {socket} ]");
    let (_, status) = session.run_with(&wait, "")?;
    if status == 0 { Ok(()) } else { Err(format!("{socket} is not there")) }
}

/// Runs one example. **Errors:** how it differs from the page.
fn play(example: &Example, session: &mut Session, values: &mut Values) -> Result<(), String> {
    values.keep(&example.command);
    let command = values.real(&example.command);
    if example.runs_until_ended() {
        if example.shown.is_empty() {
            return Err("the page must show the line that says it is ready, to be waited for".to_owned());
        }
        return session.begin((&command, example.answer()), example.interrupted, |printed| {
            values.compare(&example.printed(), printed, Gaps::AnyLine)
        });
    }
    let (printed, status) = session.run_with(&command, example.answer())?;
    match (example.shown.is_empty(), status) {
        (true, 0) => Ok(()),
        (true, status) => {
            Err(format!("exit code {status}, but the page shows no error; it printed\n{printed}"))
        }
        (false, _) => values.compare(&example.printed(), &printed, Gaps::Marked),
    }
}

/// The promise of the tutorial: from nothing to a call of one's own, between two sidecars that never met.
#[test]
fn a_newcomer_s_first_call_takes_eight_commands_and_no_did() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/getting-started.md");
    let text = std::fs::read_to_string(path).unwrap();
    let from = text.split("\n## Make your first call\n").nth(1).unwrap();
    let examples = Page::parse("docs/getting-started.md", from).examples;
    let call = examples.iter().position(|example| example.command.contains(" call ")).unwrap();
    let commands: Vec<_> = examples[..=call].iter().map(|example| example.command.as_str()).collect();
    assert!(commands.len() <= 8, "{commands:?}");
    assert!(
        commands.iter().all(|command| !command.contains("did:") && command.lines().count() == 1),
        "{commands:?}"
    );
    assert!(examples[call].shown.contains("words"), "the call shows its result");
}

/// One test for each page, and one that no page is forgotten.
macro_rules! pages {
    ($($test:ident $page:literal)*) => {
        $(
            #[test]
            fn $test() {
                run($page);
            }
        )*

        #[test]
        fn every_page_is_run() {
            let docs = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")).unwrap();
            let names = docs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut there: Vec<_> =
                names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
            there.push("README.md".to_owned());
            there.sort();
            let mut run = vec![$($page),*];
            run.sort();
            assert_eq!(run, there);
        }

        #[test]
        fn links_lead_somewhere() {
            for page in [$($page),*] {
                assert_eq!(links::broken(page), Vec::<String>::new(), "{page}");
            }
        }
    };
}

pages! {
    a2a "docs/a2a.md"
    agents "docs/agents.md"
    capabilities "docs/capabilities.md"
    capctl "docs/capctl.md"
    codegen "docs/codegen.md"
    concepts "docs/concepts.md"
    configuration "docs/configuration.md"
    contracts "docs/contracts.md"
    contributing "docs/contributing.md"
    errors "docs/errors.md"
    fleet "docs/fleet.md"
    getting_started "docs/getting-started.md"
    http "docs/http.md"
    mcp "docs/mcp.md"
    operations "docs/operations.md"
    pairing "docs/pairing.md"
    page_of_a_sidecar "docs/page.md"
    performance "docs/performance.md"
    proof "docs/proof.md"
    protocol "docs/protocol.md"
    readme "README.md"
    sdk_matrix "docs/sdk-matrix.md"
    subtype "docs/subtype.md"
}
