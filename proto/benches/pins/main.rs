//! Instructions that each stage of one message takes, counted by callgrind and held against `pins.txt`.
//!
//! ```text
//! cargo pins             # fails when a stage moved by more than 5 %
//! cargo pins --accept    # writes pins.txt anew
//! ```
//!
//! Counts do not move with the machine's load, as times do; they do with the compiler, and with what the processor
//! offers. A stage runs in a process of its own, twice with different numbers of messages: the difference is what one
//! more message costs, free of all that happens once. What a stage starts with is not counted.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]

#[path = "../sample/mod.rs"]
mod sample;
mod stages;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use stages::STAGES;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|found| found == word);
    if let [stage, name, times] = &words[..]
        && stage == "--stage"
    {
        let stage = STAGES.iter().find(|(known, _)| known == name).expect("the parent names a stage");
        stage.1(times.parse().expect("the parent names a number"));
        return ExitCode::SUCCESS;
    }
    if !has("--bench") {
        // As other benchmarks do: `cargo test` only tries it out.
        STAGES.iter().for_each(|(_, run)| run(1));
        return ExitCode::SUCCESS;
    }
    let counted: Vec<(&str, f64)> = STAGES.iter().map(|(name, _)| (*name, per_message(name))).collect();
    if has("--accept") {
        let lines: String = counted.iter().map(|(name, count)| format!("{count:.0}\t{name}\n")).collect();
        std::fs::write(PINS, lines).unwrap();
        println!("written to {PINS}");
        return ExitCode::SUCCESS;
    }
    compare(&counted)
}

/// Prints what was counted beside what is pinned.
fn compare(counted: &[(&str, f64)]) -> ExitCode {
    let text = std::fs::read_to_string(PINS).unwrap();
    let mut pinned: BTreeMap<&str, f64> = text
        .lines()
        .map(|line| line.split_once('\t').expect("a line is a count, a tab and a stage"))
        .map(|(count, name)| (name, count.parse().expect("a count is a number")))
        .collect();
    let mut moved = 0;
    println!("{:>14} {:>10} {:>8}  stage", "instructions", "pinned", "change");
    for (name, count) in counted {
        let Some(pin) = pinned.remove(name) else {
            moved += 1;
            println!("{count:>14.0} {:>10} {:>8}  {name}", "none", "new");
            continue;
        };
        let change = count / pin - 1.0;
        let is_moved = change.abs() > CHANGE_MAX;
        moved += usize::from(is_moved);
        let mark = if is_moved { "  <- moved" } else { "" };
        println!("{count:>14.0} {pin:>10.0} {:>+7.1}%  {name}{mark}", change * 100.0);
    }
    for name in pinned.keys() {
        moved += 1;
        println!("{:>14} {:>10} {:>8}  {name}", "", "", "gone");
    }
    if moved == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "{moved} stages stand otherwise than pinned by more than {:.0} %. When that is meant, run\n    cargo pins \
         --accept\nand commit proto/benches/pins/pins.txt, saying why.",
        CHANGE_MAX * 100.0
    );
    ExitCode::FAILURE
}

/// What one more message costs.
fn per_message(name: &str) -> f64 {
    let [few, many] = [FEW, MANY].map(|times| instructions(name, times));
    (many - few) / f64::from(MANY - FEW)
}

/// Instructions of a process that takes so many messages through a stage.
fn instructions(name: &str, times: u32) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*stages::counted*"])
        .arg(std::env::current_exe().unwrap())
        .args(["--stage", name, &times.to_string()])
        .output()
        .expect("valgrind must be installed: it counts the instructions");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} fails under valgrind: {told}");
    let collected = told.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count);
    collected.and_then(|count| count.trim().parse().ok()).expect("callgrind says what it collected")
}

/// Messages of the two runs: enough for what happens once in a while, a table that grows, to spread.
const FEW: u32 = 100;
const MANY: u32 = 356;
/// A larger part of a pinned count is a change.
const CHANGE_MAX: f64 = 0.05;
const PINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/pins/pins.txt");
