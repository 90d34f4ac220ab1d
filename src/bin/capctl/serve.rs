//! Implements `serve`: a capability's declaration and a command in; each call's params through the command, its result
//! out.

use std::ffi::OsString;
use std::path::Path;

use bytes::Bytes;
use capd::client::{Invocation, WireError};
use capd::provider::process::{Process, ProcessCall, ProcessSpec};
use capd_proto::cbor::json::{from_json, to_json};
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ServeArgs;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, duration, names, output};

/// Registers the capability and serves it until SIGINT or SIGTERM, or until the sidecar goes away.
pub(crate) async fn run(sidecar: &Sidecar, args: ServeArgs, json: bool) -> Result<(), Failure> {
    let descriptor = descriptor(&args)?;
    let process = std::sync::Arc::new(Process::new(spec(&args.command, args.concurrency)?));
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let client = sidecar.connect_for_people().await?;
    let is_quiet = json;
    // As many calls may wait as run; the command's own queue says 5004 to the next one.
    let calls_max = usize::from(args.concurrency) * 2;
    client.serve(calls_max, move |invocation: Invocation| {
        let process = std::sync::Arc::clone(&process);
        async move { answer(&process, &invocation, is_quiet).await }
    })?;
    client.declare(&[descriptor]).await?;
    if json {
        output::print_json(&json!({"serving": args.id.to_string(), "did": client.did().as_str()}))?;
    } else {
        output::print(&format!("serving {} as {}; Ctrl-C ends", args.id, client.did()))?;
    }
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminations.recv() => {}
        reason = client.closed() => {
            return Err(Failure::unexpected(format!("the sidecar stopped: {reason}")).exit(Exit::Unavailable));
        }
    }
    client.close().await;
    Ok(())
}

fn descriptor(args: &ServeArgs) -> Result<Descriptor, Failure> {
    let draft = DescriptorDraft {
        input_schema: args.input_schema.as_deref().map(schema).transpose()?,
        output_schema: args.output_schema.as_deref().map(schema).transpose()?,
        idempotent: Some(args.idempotent),
        timeout_ms: args.timeout.map(duration::ms),
        description: args.description.clone(),
        ..DescriptorDraft::new(args.id.clone())
    };
    draft.finish().map_err(|error| Failure::usage(error.to_string()))
}

/// A schema's exact bytes, which are JSON, on their way in the descriptor.
fn schema(file: &Path) -> Result<SchemaSource, Failure> {
    let wrong = |what: String| Failure::usage(format!("{}: {what}", file.display()));
    let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice::<Value>(&bytes).map_err(|error| wrong(format!("not JSON: {error}")))?;
    Ok(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, &bytes))))
}

fn spec(command: &[OsString], concurrency: u16) -> Result<ProcessSpec, Failure> {
    let texts = command.iter().map(|word| word.clone().into_string());
    let words: Result<Vec<_>, _> = texts.collect();
    let words = words.map_err(|word| Failure::usage(format!("{word:?} is not UTF-8")))?;
    let Some((program, args)) = words.split_first() else {
        return Err(Failure::usage("no command"));
    };
    Ok(ProcessSpec {
        program: program.clone(),
        args: args.to_vec(),
        dir: std::env::current_dir()?,
        concurrency: concurrency.into(),
        queue_max: concurrency.into(),
        output_bytes_max: capd_proto::limits::MSG_SIZE_BYTES_DEFAULT as usize,
        tell_stderr: false,
        // Whoever types the command has its rights already.
        confined: None,
    })
}

async fn answer(process: &Process, invocation: &Invocation, is_quiet: bool) -> Result<Bytes, WireError> {
    let error = |code, message: String| WireError { code, message, details: None };
    let input = to_json(&invocation.params)
        .map_err(|wrong| error(Code::SCHEMA_VIOLATION, format!("params do not fit JSON: {wrong}")))?;
    let call = ProcessCall {
        id: &invocation.id.to_string(),
        capability: &invocation.capability.to_string(),
        caller: &invocation.from,
        input: input.to_string().into_bytes(),
        deadline: invocation.deadline,
    };
    let mut stderr = Vec::new();
    let outcome = process.run_with(call, &invocation.cancelled, &mut stderr).await;
    if !is_quiet {
        let words =
            outcome.as_ref().map_or_else(|wrong| output::one_line(&wrong.to_string()), |_| "done".to_owned());
        output::note(&format!(
            "{} from {}: {words}",
            invocation.id,
            output::one_line(&names::shown(&invocation.from))
        ));
        if outcome.is_err() && !stderr.is_empty() {
            // It is for whoever serves, not for the caller.
            output::note(String::from_utf8_lossy(&stderr).trim_end());
        }
    }
    let document = outcome.map_err(|wrong| error(wrong.code(), wrong.to_string()))?;
    let value: Value = serde_json::from_slice(&document).map_err(|wrong| {
        error(Code::INTERNAL_ERROR, format!("the provider's output is not one JSON document: {wrong}"))
    })?;
    let mut result = Vec::new();
    from_json(&value, &mut result);
    Ok(result.into())
}
