//! Implements `subtype`: two schema files, or lines of two schemas each, in; verdicts of the proof out.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use capd::schema::CompileError;
use capd::schema::subtype::{Compiled, Verdict, is_subtype};
use capd::schema::validator::SCHEMA_BYTES_MAX;
use serde_json::{Value, json};

use crate::args::SubtypeArgs;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::terminal::Progress;

/// Longest line of `--pairs`: two schemas, and room for their names.
const LINE_BYTES_MAX: usize = 2 * SCHEMA_BYTES_MAX + 1024;

/// Proves, or shows a value that refutes.
///
/// **Errors:** usage, when a schema is none; for two files also a verdict other than proven, by its exit code.
pub(crate) fn run(args: &SubtypeArgs, json: bool) -> Result<(), Failure> {
    match (&args.pairs, &args.sub, &args.sup) {
        (Some(pairs), _, _) => each_line(pairs),
        (None, Some(sub), Some(sup)) => two_files(sub, sup, json),
        _ => Err(Failure::usage("accepted: SUB and SUP, or --pairs FILE")),
    }
}

fn two_files(sub: &Path, sup: &Path, json: bool) -> Result<(), Failure> {
    if [sub, sup].iter().all(|file| *file == Path::new("-")) {
        return Err(Failure::usage("only one schema can come from stdin; use a file for the other"));
    }
    let (a, b) = (compiled(sub)?, compiled(sup)?);
    let verdict = proven(&a, &b);
    if json {
        output::print_json(&document(&verdict))?;
    } else {
        output::print(&text(&verdict, &name(sub), &name(sup)))?;
    }
    match verdict {
        Verdict::Proven => Ok(()),
        Verdict::Refuted { .. } => Err(Failure::told(Exit::SchemaViolation)),
        Verdict::Unknown { .. } => Err(Failure::told(Exit::Undecided)),
    }
}

fn proven(a: &Compiled, b: &Compiled) -> Verdict {
    let _progress = Progress::begin(|seconds| format!("proving for {seconds} s"));
    is_subtype(a, b)
}

fn name(file: &Path) -> String {
    if file == Path::new("-") { "stdin".to_owned() } else { file.display().to_string() }
}

fn compiled(file: &Path) -> Result<Compiled, Failure> {
    let wrong = |problem: String| Failure::usage(format!("{}: {problem}", name(file)));
    let mut document = Vec::new();
    // One byte more than a schema may have, so that one that is too large is told from one that is not.
    let most = SCHEMA_BYTES_MAX as u64 + 1;
    open(file)?.take(most).read_to_end(&mut document).map_err(|error| wrong(error.to_string()))?;
    Compiled::compile(&document).map_err(|error| wrong(error.to_string()))
}

fn open(file: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = std::fs::File::open(file);
    let opened = opened.map_err(|error| Failure::usage(format!("{}: {error}", name(file))))?;
    Ok(Box::new(BufReader::new(opened)))
}

/// A line for each line. One that holds no pair of schemas is answered too, and the exit code is 2 then.
fn each_line(file: &Path) -> Result<(), Failure> {
    let unread = |error: io::Error| Failure::usage(format!("{}: {error}", name(file)));
    let mut lines = open(file)?;
    let mut line = Vec::new();
    let mut first_wrong = None;
    let (mut number, mut wrong) = (0_u64, 0_u64);
    while read_line(&mut *lines, &mut line).map_err(unread)? {
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match pair(&line) {
            Ok((a, b)) => output::print_json(&document(&proven(&a, &b)))?,
            Err(Wrong { pointer, problem }) => {
                let error = format!("line {number}, at {pointer}: {problem}");
                output::print_json(&json!({"verdict": "unknown", "path": pointer, "error": error}))?;
                first_wrong.get_or_insert(error);
                wrong += 1;
            }
        }
    }
    let Some(first) = first_wrong else { return Ok(()) };
    let more = if wrong > 1 { format!(" (and {} more lines)", wrong - 1) } else { String::new() };
    Err(Failure::usage(format!("{}: {first}{more}", name(file)))
        .hint(r#"a line is {"sub": SCHEMA, "sup": SCHEMA}, each of draft-07 or 2020-12"#))
}

/// Reads up to the next line end; `false` at the end of the input. Of a line that is too long, the beginning and one
/// byte too many are kept.
fn read_line(lines: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let most = LINE_BYTES_MAX as u64 + 1;
    let read = lines.take(most).read_until(b'\n', line)?;
    if read as u64 == most && !line.ends_with(b"\n") {
        lines.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

/// Why a line holds no pair of schemas, and where in it.
struct Wrong {
    /// JSON pointer into the line, `/` for all of it.
    pointer: String,
    problem: String,
}

fn pair(line: &[u8]) -> Result<(Compiled, Compiled), Wrong> {
    let of_line = |problem: String| Wrong { pointer: "/".to_owned(), problem };
    if line.len() > LINE_BYTES_MAX {
        return Err(of_line(format!("longer than {LINE_BYTES_MAX} bytes")));
    }
    let pair: Value = serde_json::from_slice(line.trim_ascii_end()).map_err(|error| {
        // Its own place is of a text of one line.
        let problem = error.to_string();
        let problem = problem.split(" at line ").next().unwrap_or_default();
        of_line(format!("not JSON, column {}: {problem}", error.column()))
    })?;
    let side = |side: &str| {
        let schema = pair.get(side).ok_or_else(|| of_line(format!("no {side:?}")))?;
        Compiled::compile(schema.to_string().as_bytes()).map_err(|error| match error {
            CompileError::Invalid { pointer, problem } => {
                Wrong { pointer: format!("/{side}{}", pointer.trim_end_matches('/')), problem }
            }
            error => Wrong { pointer: format!("/{side}"), problem: error.to_string() },
        })
    };
    Ok((side("sub")?, side("sup")?))
}

/// A verdict for people; the two schemas go by their names.
fn text(verdict: &Verdict, sub: &str, sup: &str) -> String {
    match verdict {
        Verdict::Proven => format!("proven: every value of {sub} is one of {sup}"),
        Verdict::Refuted { witness, path, rule } => {
            let mut text = format!("refuted: not every value of {sub} is one of {sup}\n");
            let _ = writeln!(text, "  witness  {}", output::escaped(&witness.to_string()));
            let _ = write!(text, "  path     {}\n  rule     {rule}", output::one_line(path));
            text
        }
        Verdict::Unknown { path, construct } => {
            let mut text = format!("unknown: whether every value of {sub} is one of {sup} is not decided\n");
            let _ = write!(text, "  path     {}\n  rule     {construct}", output::one_line(path));
            text
        }
    }
}

/// A verdict for programs: `{"verdict", ? "witness", ? "path", ? "rule"}`.
fn document(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Proven => json!({"verdict": "proven"}),
        Verdict::Refuted { witness, path, rule } => {
            json!({"verdict": "refuted", "witness": witness, "path": path, "rule": rule})
        }
        Verdict::Unknown { path, construct } => {
            json!({"verdict": "unknown", "path": path, "rule": construct})
        }
    }
}
