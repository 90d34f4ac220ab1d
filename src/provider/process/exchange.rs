//! Exchanges data with a process: its input in; everything it wrote, within bounds, out.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

use super::{Group, ProcessError};

/// Feeds `input` and takes in both outputs at the same time, so that no full pipe can stop either side; ends when
/// the leader has exited. What it left running is killed first, so that nobody holds the pipes open. Returns stdout; the
/// end of stderr is in `tail`, also when this is dropped.
///
/// **Errors:** [`ProcessError::OutputTooLarge`] as soon as stdout goes past `output_bytes_max`.
pub(super) async fn exchange(
    group: &mut Group,
    input: Vec<u8>,
    output_bytes_max: usize,
    tail: &mut Vec<u8>,
) -> Result<Vec<u8>, ProcessError> {
    let stdin = group.child.stdin.take().expect("stdin is piped and taken once");
    let stdout = group.child.stdout.take().expect("stdout is piped and taken once");
    let stderr = group.child.stderr.take().expect("stderr is piped and taken once");
    let mut output = Vec::new();
    {
        let pumps = async {
            tokio::try_join!(
                feed(stdin, &input),
                fill(stdout, &mut output, output_bytes_max),
                keep_tail(stderr, tail)
            )
        };
        tokio::pin!(pumps);
        let exited = Group::exited(group.leader);
        tokio::pin!(exited);
        let observed = tokio::select! {
            biased;
            pumped = &mut pumps => {
                pumped?;
                exited.await
            }
            observed = &mut exited => {
                group.kill();
                // Every writer left in the group is dead, so what stands in the pipes is all there is. Only a
                // process that left the group can keep them open, and it is not waited for.
                if let Ok(pumped) = timeout(DRAIN_WAIT_MAX, &mut pumps).await {
                    pumped?;
                }
                observed
            }
        };
        observed.map_err(|error| ProcessError::Unobservable(error.kind()))?;
    }
    Ok(output)
}

/// Writes all of `input` and closes the pipe. A process that stops reading early (EPIPE) is within its rights.
async fn feed(mut stdin: ChildStdin, input: &[u8]) -> Result<(), ProcessError> {
    let _ = stdin.write_all(input).await;
    Ok(())
}

async fn fill(
    mut stdout: impl AsyncRead + Unpin,
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), ProcessError> {
    loop {
        output.reserve(READ_BYTES);
        let read = stdout.read_buf(output).await;
        let read = read.map_err(|error| ProcessError::Unobservable(error.kind()))?;
        if output.len() > bytes_max {
            return Err(ProcessError::OutputTooLarge(bytes_max));
        }
        if read == 0 {
            return Ok(());
        }
    }
}

async fn keep_tail(mut stderr: impl AsyncRead + Unpin, tail: &mut Vec<u8>) -> Result<(), ProcessError> {
    loop {
        tail.reserve(READ_BYTES);
        let read = stderr.read_buf(tail).await;
        if read.map_err(|error| ProcessError::Unobservable(error.kind()))? == 0 {
            return Ok(());
        }
        if tail.len() > 2 * STDERR_TAIL_BYTES {
            tail.drain(..tail.len() - STDERR_TAIL_BYTES);
        }
    }
}

/// Room made for one read.
const READ_BYTES: usize = 16 * 1024;
/// Bytes of stderr that are kept at least; up to twice as many are held.
const STDERR_TAIL_BYTES: usize = 64 * 1024;
/// Longest wait for the pipes to run empty after the leader has exited and its group was killed.
const DRAIN_WAIT_MAX: Duration = Duration::from_millis(500);
