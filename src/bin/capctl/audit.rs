//! Implements `audit`: a sidecar or a file in; its records, the state of their chain, and what was pruned, out.

mod source;
mod text;

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use capd::store::audit::chain::{Break, Summary, Verifier, hex};
use capd::store::audit::{AuditCounters, Filter};
use serde_json::json;

use crate::args::{AuditCommand, AuditQueryArgs};
use crate::failure::{Exit, Failure};
use crate::hash::named;
use crate::{Sidecar, output};
use source::Source;
pub(crate) use source::now_ms;

/// Runs one of the subcommands.
pub(crate) async fn run(sidecar: &Sidecar, command: AuditCommand, json: bool) -> Result<(), Failure> {
    match command {
        AuditCommand::Query(args) => query(sidecar, args, json).await,
        AuditCommand::Verify { anchor, file } => {
            verify(&mut Source::of(sidecar, file.as_deref(), false).await?, anchor, json).await
        }
        AuditCommand::Export { output, file } => {
            export(&mut Source::of(sidecar, file.as_deref(), false).await?, output.as_deref()).await
        }
        AuditCommand::Prune { older_than, file } => {
            let before_ms = older_than.ms(now_ms());
            prune(&mut Source::of(sidecar, file.as_deref(), true).await?, before_ms, json).await
        }
    }
}

async fn query(sidecar: &Sidecar, args: AuditQueryArgs, json: bool) -> Result<(), Failure> {
    let AuditQueryArgs { kind, since, capability, peer, file } = args;
    let mut source = Source::of(sidecar, file.as_deref(), false).await?;
    let since_ms = since.map(|since| since.ms(now_ms()));
    let peer = match peer {
        Some(peer) => Some(source.peer(peer).await?),
        None => None,
    };
    let capability = match capability {
        Some(capability) => Some(source.capability(capability).await?),
        None => None,
    };
    let filter = Filter { kind, since_ms, capability, peer };
    let (mut after, mut is_first) = (0, true);
    loop {
        let (page, counters) = source.page(after, Some(&filter)).await?;
        let records: Vec<_> = page.entries.iter().filter(|entry| entry.record.is_some()).collect();
        if json {
            for entry in records {
                output::print_json(&entry.to_json())?;
            }
        } else if !records.is_empty() {
            output::print(&text::table(&records, is_first))?;
            is_first = false;
        }
        match page.next {
            Some(next) => after = next,
            None => {
                if is_first && !json {
                    output::note("no records");
                }
                tell(counters);
                return Ok(());
            }
        }
    }
}

async fn verify(source: &mut Source, anchor: Option<Anchor>, json: bool) -> Result<(), Failure> {
    let (mut verifier, mut after, mut is_anchored) = (Verifier::default(), 0, anchor.is_none());
    let (outcome, counters) = loop {
        let (page, counters) = match source.page(after, None).await {
            Ok(read) => read,
            // The rows before it were read, so this one is what cannot be.
            Err(failure) if failure.exit == Exit::SchemaViolation => {
                break (Err(Break::at(after + 1, failure)), AuditCounters::default());
            }
            Err(failure) => {
                return Err(
                    failure.hint("capctl audit verify --file reads the file itself, and names the row")
                );
            }
        };
        let mut taken = page.entries.iter().map(|entry| {
            if let Some(anchor) = anchor.filter(|anchor| anchor.seq == entry.seq) {
                if anchor.hash != entry.record_hash {
                    return Err(Break::at(
                        entry.seq,
                        "its hash differs from the anchor's: the chain was rewritten",
                    ));
                }
                is_anchored = true;
            }
            verifier.take(entry)
        });
        if let Some(broken) = taken.find_map(Result::err) {
            break (Err(broken), counters);
        }
        match page.next {
            Some(next) => after = next,
            None => break (verifier.finish(&page.head), counters),
        }
    };
    let outcome = match (outcome, anchor) {
        (Ok(_), Some(anchor)) if !is_anchored => {
            Err(Break::at(anchor.seq, "the chain ends before the anchor: it was truncated or restarted"))
        }
        (outcome, _) => outcome,
    };
    tell(counters);
    conclude(outcome, json)
}

/// Says whether the chain holds.
fn conclude(outcome: Result<Summary, Break>, json: bool) -> Result<(), Failure> {
    match outcome {
        Ok(Summary { records, pruned, lost, head }) => {
            let hash = head.hash.map(|hash| hex(&hash)).unwrap_or_default();
            if json {
                let head = json!({"seq": head.seq, "hash": hash});
                let summary =
                    json!({"ok": true, "records": records, "pruned": pruned, "lost": lost, "head": head});
                return output::print_json(&summary);
            }
            let mut text = format!("the chain is intact: {records} records");
            for (count, what) in [(pruned, "pruned"), (lost, "lost")] {
                if count > 0 {
                    text += &format!(", {count} {what}");
                }
            }
            if head.seq > 0 {
                text += &format!("\nits end is {}:{}", head.seq, named(&hash));
            }
            output::print(&text)
        }
        Err(broken) => {
            if json {
                output::print_json(&json!({"ok": false, "seq": broken.seq, "what": broken.what}))?;
            }
            let failure =
                Failure::usage(format!("the chain is broken at {broken}")).exit(Exit::SchemaViolation);
            Err(failure.hint("keep a copy of the file; every row before that one is intact"))
        }
    }
}

async fn export(source: &mut Source, to: Option<&Path>) -> Result<(), Failure> {
    let mut file = to.map(create).transpose()?;
    let (mut after, mut count) = (0, 0_u64);
    loop {
        let (page, counters) = source.page(after, None).await?;
        count += page.entries.len() as u64;
        for entry in &page.entries {
            match &mut file {
                Some(file) => writeln!(file, "{}", entry.to_json())?,
                None => output::print_json(&entry.to_json())?,
            }
        }
        match page.next {
            Some(next) => after = next,
            None => {
                if let Some(file) = &mut file {
                    file.flush()?;
                    output::note(&format!("{count} entries"));
                }
                tell(counters);
                return Ok(());
            }
        }
    }
}

/// A file that its owner alone may read, as the log itself.
fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.map(BufWriter::new).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

async fn prune(source: &mut Source, before_ms: u64, json: bool) -> Result<(), Failure> {
    let (mut after, mut records) = (0, 0);
    loop {
        let pruned = source.prune(after, before_ms).await?;
        records += pruned.records;
        match pruned.next {
            Some(next) => after = next,
            None if json => {
                return output::print_json(&json!({"pruned": records, "older_than_ms": before_ms}));
            }
            None => {
                let before = crate::time::utc(before_ms);
                return output::print(&format!("{records} records from before {before} were removed"));
            }
        }
    }
}

/// What is missing from the log, if anything is.
fn tell(counters: AuditCounters) {
    if counters.lost > 0 {
        output::note(&format!(
            "records that could not be written since the sidecar started: {}",
            counters.lost
        ));
    }
}

/// A place of the chain and its hash, as they were once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    seq: u64,
    hash: [u8; 32],
}

impl std::str::FromStr for Anchor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected ROW:HASH, as verify prints the chain's end".to_owned();
        let (seq, hash) = text.split_once(':').ok_or_else(wrong)?;
        // As it is shown to people, or as JSON and exports have it.
        let hash = crate::hex::decode(hash.strip_prefix("sha-256:").unwrap_or(hash))?;
        Ok(Self { seq: seq.parse().map_err(|_| wrong())?, hash: hash.try_into().map_err(|_| wrong())? })
    }
}
