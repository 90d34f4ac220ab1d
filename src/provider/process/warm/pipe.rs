//! Connects to a process's stdin: what the process never read can be told after its death.
//!
//! The reading end is kept here as well. So a write never meets a broken pipe, and the bytes that are left in the pipe
//! when the process is dead can be taken out and counted: nobody has read them, and nobody will.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::Sender;

/// The writing end of a process's stdin.
pub(super) struct Input {
    writer: Sender,
    reader: PipeReader,
    written: u64,
}

impl Input {
    /// A pipe, and the end that the process reads.
    pub(super) fn new() -> io::Result<(Self, Stdio)> {
        let (reader, writer) = io::pipe()?;
        let stdin = Stdio::from(reader.try_clone()?);
        let writer = Sender::from_owned_fd(OwnedFd::from(writer))?;
        Ok((Self { writer, reader, written: 0 }, stdin))
    }

    /// Writes a part of `bytes`, at least one, and says how many. Dropping the future writes nothing.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes).await?;
        self.written += written as u64;
        Ok(written)
    }

    /// How many of the written bytes were read. Nobody reads more of them after this.
    pub(super) fn read_by_process(self) -> u64 {
        let Self { writer, mut reader, written } = self;
        let flags =
            fcntl_getfl(reader.as_fd()).map(|flags| fcntl_setfl(reader.as_fd(), flags | OFlags::NONBLOCK));
        if !matches!(flags, Ok(Ok(()))) {
            // A read could wait for ever, so everything counts as read.
            return written;
        }
        let (mut left, mut buffer) = (0, [0; READ_BYTES]);
        // The end, or nothing there at this time, are alike: the writing end is ours.
        while let Ok(read @ 1..) = reader.read(&mut buffer) {
            left += read as u64;
        }
        drop(writer);
        written.saturating_sub(left)
    }
}

/// Taken out of the pipe at once.
const READ_BYTES: usize = 16 * 1024;
