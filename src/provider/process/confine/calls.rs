//! Installs a filter of system calls (seccomp): the permitted kinds of sockets in, a filtered process out.
//!
//! A filter sees numbers and no memory, so it cannot see where `connect` leads. It filters sockets by family when they
//! are made. Pairs of connected unix sockets stay allowed: every runtime makes some, and they lead nowhere else.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};
use serde::{Deserialize, Serialize};

/// The sockets that a command may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// TCP and UDP, and netlink, which resolvers need to list interfaces.
    pub internet: bool,
    /// Unix sockets.
    pub unix: bool,
}

/// Installs the filter in this thread and all that it becomes.
///
/// Returns whether the kernel and the processor have such filters. **Errors:** they have, and refuse this one.
pub(super) fn restrict(sockets: Sockets) -> io::Result<bool> {
    let Some(program) = program(sockets)? else { return Ok(false) };
    match apply_filter(&program) {
        Ok(()) => Ok(true),
        Err(seccompiler::Error::Seccomp(error)) if is_missing(&error) => Ok(false),
        Err(seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    [Errno::NOSYS, Errno::INVAL].iter().any(|missing| error.raw_os_error() == Some(missing.raw_os_error()))
}

/// The filter's program; none for a processor that it is not written for.
fn program(sockets: Sockets) -> io::Result<Option<BpfProgram>> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(None) };
    let wrong = |error: seccompiler::BackendError| io::Error::other(error);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let mut families = Vec::new();
    if sockets.internet {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if sockets.unix {
        families.push(libc::AF_UNIX);
    }
    rules.insert(libc::SYS_socket, unless(0, &families).map_err(wrong)?);
    rules.insert(libc::SYS_socketpair, unless(0, &[libc::AF_UNIX]).map_err(wrong)?);
    // They put words into the terminal that the sidecar was started from.
    let typing = [libc::TIOCSTI, TIOCLINUX];
    let typing: Result<Vec<_>, _> =
        typing.into_iter().map(|request| SeccompRule::new(vec![equals(1, request)?])).collect();
    rules.insert(libc::SYS_ioctl, typing.map_err(wrong)?);
    let refuse = SeccompAction::Errno(REFUSAL);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(wrong)?;
    // The filter ends a process that makes calls of another architecture, such as 32-bit ones.
    let filter: BpfProgram = filter.try_into().map_err(wrong)?;
    Ok(Some(if arch == TargetArch::x86_64 { [&X32[..], &filter].concat() } else { filter }))
}

/// A rule that holds unless the argument is one of `values`; an empty list of rules holds always.
fn unless(argument: u8, values: &[i32]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let differs = |value: &i32| compare(argument, SeccompCmpOp::Ne, u64::from(value.cast_unsigned()));
    Ok(vec![SeccompRule::new(values.iter().map(differs).collect::<Result<_, _>>()?)?])
}

fn equals(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    compare(argument, SeccompCmpOp::Eq, value)
}

/// The kernel reads such an argument as 32 bits, whatever stands above them.
fn compare(
    argument: u8,
    op: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

/// What leads around the filter, into other processes of the same user, or into rarely used parts of the kernel.
const REFUSED: [i64; 14] = [
    // A ring makes sockets and connects them without a system call of its own.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];
/// What a refused call ends with.
const REFUSAL: u32 = libc::EPERM.cast_unsigned();
/// `ioctl` of Linux consoles that pastes into them. **Source:** `linux/tiocl.h`, `asm-generic/ioctls.h`.
const TIOCLINUX: u64 = 0x541c;
/// Refuses system calls of x32, which has the architecture of x86-64 and numbers of its own: those with this bit set.
const X32: [sock_filter; 3] = [
    // Load the number, which stands first.
    sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
    // Go on to what follows this, unless it is at least the bit.
    sock_filter { code: 0x35, jt: 0, jf: 1, k: 0x4000_0000 },
    sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | REFUSAL },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_sockets_is_a_program_that_the_kernel_takes() {
        for (internet, unix) in [(false, false), (true, false), (false, true), (true, true)] {
            let restricted = std::thread::spawn(move || restrict(Sockets { internet, unix })).join().unwrap();
            let has = std::path::Path::new("/proc/sys/kernel/seccomp").exists();
            assert_eq!(restricted.unwrap(), has, "{internet} {unix}");
        }
    }

    #[test]
    fn a_restricted_thread_makes_the_sockets_of_its_choice() {
        let tried = std::thread::spawn(|| {
            let restricted = restrict(Sockets { internet: true, unix: false }).unwrap();
            let unix = std::os::unix::net::UnixDatagram::unbound();
            let pair = std::os::unix::net::UnixStream::pair();
            (restricted, unix.map(drop), pair.map(drop), std::net::UdpSocket::bind("127.0.0.1:0").map(drop))
        });
        let (restricted, unix, pair, udp) = tried.join().unwrap();
        if !restricted {
            println!("not run: this machine has no filters of system calls");
            return;
        }
        assert_eq!(unix.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(pair.is_ok() && udp.is_ok(), "{pair:?} {udp:?}");
    }
}
