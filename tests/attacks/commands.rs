//! Commands of process providers that want to be the agent, root, or on the network in; what they reach out.

use ciborium::Value;

use crate::agents::{Caller, SOON_MS, by_id, failure, of_error, success, within};
use crate::support::{Setup, Sidecar};

/// A declaration of commands, each with its name, its words and its permissions.
fn declaring(capabilities: &[(&str, &str, &[&str])]) -> Setup {
    let mut yaml = "version: 1\nnamespace: org.example\ncapabilities:\n".to_owned();
    for (name, script, permissions) in capabilities {
        yaml += &format!("  - name: {name}\n    command: [sh, -c, {script:?}]\n");
        yaml += &format!("    permissions: {permissions:?}\n");
    }
    Setup::new().capabilities(&yaml).file("attack.pl", include_str!("attack.pl"))
}

/// What the command of this name says.
#[track_caller]
fn said(sidecar: &Sidecar, name: &str) -> Value {
    let mut caller = Caller::of(sidecar);
    let id = caller.invoke(by_id(&format!("org.example.{name}:1.0.0"), Value::Null));
    success(&caller.result(&id)).clone()
}

/// The first line of its log that is meant, once it is there.
#[track_caller]
fn logged(sidecar: &Sidecar, is_meant: impl Fn(&str) -> bool) -> String {
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    loop {
        let log = sidecar.log();
        if let Some(line) = log.lines().find(|line| is_meant(line)) {
            return line.to_owned();
        }
        assert!(std::time::Instant::now() < deadline, "no such line: {log}");
        std::thread::yield_now();
    }
}

/// A script that says whether it can do this.
fn attempt(command: &str) -> String {
    format!("({command}) >/dev/null 2>&1 && echo true || echo false")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_command_without_permissions_cannot_speak_as_the_agent() {
    let b = declaring(&[
        ("direct", "perl attack.pl agent state/capd.sock", &[]),
        ("child", "perl attack.pl agent_as_child state/capd.sock", &[]),
        ("daemon", "perl attack.pl agent_as_daemon state/capd.sock", &[]),
        ("all", "perl attack.pl agent state/capd.sock", &["filesystem:write", "network:write"]),
    ])
    .start();
    for name in ["direct", "child", "daemon", "all"] {
        assert_eq!(said(&b, name), Value::Bool(false), "{name}");
    }
}

#[test]
fn a_command_that_may_use_unix_sockets_cannot_speak_as_the_agent_either() {
    let unix: &[&str] = &["network:unix"];
    let b = declaring(&[
        ("socket", "perl attack.pl socket 1 1", unix),
        ("direct", "perl attack.pl agent state/capd.sock", unix),
        ("child", "perl attack.pl agent_as_child state/capd.sock", unix),
        ("daemon", "perl attack.pl agent_as_daemon state/capd.sock", unix),
        ("orphan", "perl attack.pl agent_as_orphan state/capd.sock", unix),
    ])
    .start();
    assert_eq!(said(&b, "socket"), Value::Bool(true));
    for name in ["direct", "child", "daemon", "orphan"] {
        assert_eq!(said(&b, name), Value::Bool(false), "{name}");
    }
}

#[test]
fn a_command_opens_only_the_sockets_that_its_capability_declares() {
    // Families: 1 unix, 2 and 10 the internet's, 16 netlink, 17 packets, 40 virtual machines. Types: 1 stream, 2 datagrams.
    let families = [(1, 1), (1, 2), (2, 1), (2, 2), (10, 2), (16, 2), (17, 2), (40, 1)];
    let permissions: [(&str, &[&str], &[i32]); 4] = [
        ("none", &["filesystem:write", "database:write"], &[]),
        ("read", &["network:read"], &[2, 10, 16]),
        ("write", &["network:write"], &[2, 10, 16]),
        ("unix", &["network:unix"], &[1]),
    ];
    let mut declared = Vec::new();
    for (name, permissions, _) in permissions {
        for (family, typ) in families {
            let script = format!("perl attack.pl socket {family} {typ}");
            declared.push((format!("{name}-{family}-{typ}"), script, permissions));
        }
        declared.push((format!("{name}-pair"), "perl attack.pl socketpair".to_owned(), permissions));
    }
    let declared: Vec<_> = declared.iter().map(|(name, script, may)| (&**name, &**script, *may)).collect();
    let b = declaring(&declared).start();
    for (name, _, allowed) in permissions {
        for (family, typ) in families {
            let name = format!("{name}-{family}-{typ}");
            let may = said(&b, &name) == Value::Bool(true);
            // A machine may be without IPv6.
            let is_missing = family == 10 && std::net::UdpSocket::bind("[::1]:0").is_err();
            assert!(may == allowed.contains(&family) || is_missing, "{name}: {may}");
        }
        assert_eq!(said(&b, &format!("{name}-pair")), Value::Bool(true), "{name}");
    }
}

#[test]
fn a_command_cannot_make_the_calls_that_lead_around_the_filter() {
    let x32 = 0x4000_0000u32;
    let calls: &[(&str, u32)] = if cfg!(target_arch = "x86_64") {
        &[("uring", 425), ("ptrace", 101), ("vm", 310), ("fds", 438), ("keys", 250), ("socket-x32", x32 | 41)]
    } else {
        &[("uring", 425), ("ptrace", 117), ("vm", 270), ("fds", 438), ("keys", 219)]
    };
    let all: &[&str] = &["network:read", "network:unix", "filesystem:write"];
    let declared: Vec<_> =
        calls.iter().map(|(name, number)| (*name, format!("perl attack.pl allowed {number}"))).collect();
    let declared: Vec<_> = declared.iter().map(|(name, script)| (*name, &**script, all)).collect();
    let b = declaring(&declared).start();
    for (name, _) in calls {
        assert_eq!(said(&b, name), Value::Bool(false), "{name}");
    }
}

#[test]
fn a_command_has_no_capabilities_and_no_view_of_its_sidecar() {
    let sets = "! grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb):' /proc/self/status | grep -qv 0000000000000000";
    let b = declaring(&[
        ("none", &attempt(sets), &[]),
        ("all", &attempt(sets), &["filesystem:write", "network:write", "network:unix"]),
        ("environ", &attempt("cat /proc/$PPID/environ"), &["filesystem:write"]),
        ("root", &attempt("ls /proc/$PPID/root/"), &["filesystem:write"]),
        ("shadow", &attempt("cat /etc/shadow"), &[]),
        ("shadow-read", &attempt("cat /etc/shadow"), &["filesystem:read"]),
        (
            "kernel",
            &attempt("test -w /proc/sys/kernel/core_pattern && : >>/proc/sys/kernel/core_pattern"),
            &["filesystem:write"],
        ),
        (
            "disk",
            &attempt("head -c 1 /dev/mem || head -c 1 /dev/vda || head -c 1 /dev/sda"),
            &["filesystem:write"],
        ),
    ])
    .start();
    // Nobody but root has any to drop from its bounding set.
    if is_root() {
        for name in ["none", "all"] {
            assert_eq!(said(&b, name), Value::Bool(true), "{name}");
        }
    } else {
        println!("not run as root: the bounding set of commands was not looked at");
    }
    for name in ["environ", "root", "shadow", "shadow-read", "kernel", "disk"] {
        assert_eq!(said(&b, name), Value::Bool(false), "{name}");
    }
}

#[test]
fn no_permission_reaches_the_files_of_the_sidecar() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = elsewhere.path().join("outside");
    std::fs::write(&outside, "outside").unwrap();
    let secrets = ["identity.key", "journal.db", "audit.db", "token"];
    let reads = |at: &str| attempt(&secrets.map(|name| format!("cat {at}/{name}")).join(" || "));
    let make = attempt("touch state/new");
    let remove = attempt("rm state/token || mv state gone || ln state/token stolen");
    let (direct, root, linked) = (reads("state"), reads("/proc/self/root$PWD/state"), reads("peek"));
    let file = attempt("cat key");
    let (seen, written) = (attempt(&format!("cat {}", outside.display())), attempt("touch work/new"));
    let kinds: [(&str, &[&str]); 3] =
        [("none", &[]), ("read", &["filesystem:read"]), ("write", &["filesystem:write"])];
    let scripts = [
        ("direct", &direct),
        ("root", &root),
        ("linked", &linked),
        ("file", &file),
        ("make", &make),
        ("remove", &remove),
    ];
    let mut declared = Vec::new();
    for (kind, permissions) in kinds {
        for (name, script) in scripts {
            declared.push((format!("{kind}-{name}"), script.as_str(), permissions));
        }
        declared.push((format!("{kind}-outside"), seen.as_str(), permissions));
        declared.push((format!("{kind}-work"), written.as_str(), permissions));
    }
    let declared: Vec<_> = declared.iter().map(|(name, script, may)| (&**name, *script, *may)).collect();
    let b = declaring(&declared)
        .link("peek", "state")
        .link("key", "state/identity.key")
        .file("work/kept", "")
        .start();
    for (kind, _) in kinds {
        for (name, _) in scripts {
            let name = format!("{kind}-{name}");
            assert_eq!(said(&b, &name), Value::Bool(false), "{name}");
        }
        assert_eq!(said(&b, &format!("{kind}-outside")), Value::Bool(kind != "none"), "{kind}");
        assert_eq!(said(&b, &format!("{kind}-work")), Value::Bool(kind == "write"), "{kind}");
    }
}

#[test]
fn commands_do_not_run_as_root_unless_a_key_says_so() {
    if !is_root() {
        println!("not run: only root can start a sidecar as root");
        return;
    }
    let id = [("id", "id -u", &[] as &[&str])];
    let refused = declaring(&id).set("process.allow_root", "off").refused_to_start();
    assert!(refused.contains("process.user") && refused.contains("process.allow_root"), "{refused}");
    let refused = declaring(&id).set("process.user", "root").refused_to_start();
    assert!(refused.contains("is root"), "{refused}");
    let refused = declaring(&id).set("process.user", "nobody-of-that-name").refused_to_start();
    assert!(refused.contains("/etc/passwd has no user"), "{refused}");
    let allowed = declaring(&id).set("process.allow_root", "on").start();
    assert_eq!(said(&allowed, "id"), Value::from(0));
    let sets = "! grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb):' /proc/self/status | grep -qv 0000000000000000";
    let as_user = declaring(&[
        ("id", "id -u", &[]),
        ("group", "id -G", &[]),
        ("sets", &attempt(sets), &[]),
        ("shadow", &attempt("cat /etc/shadow"), &["filesystem:read"]),
        ("environ", &attempt("cat /proc/$PPID/environ"), &["filesystem:read"]),
        ("back", &attempt("perl -e '$< = 0; $> = 0; exit($> != 0)'"), &[]),
    ])
    .set("process.user", "65534")
    .start();
    for (name, value) in [("id", Value::from(65_534)), ("group", 65_534.into()), ("sets", true.into())] {
        assert_eq!(said(&as_user, name), value, "{name}");
    }
    for name in ["shadow", "environ", "back"] {
        assert_eq!(said(&as_user, name), Value::Bool(false), "{name}");
    }
}

#[test]
fn a_command_cannot_start_processes_without_end() {
    // The script lies in a folder of root's own, which the user cannot read: it comes as an argument.
    let fork = "perl -e 'my @c; for (1..400) { my $c = fork(); last unless defined $c; \
                if (!$c) { sleep 60; exit } push @c, $c } kill KILL => @c; print scalar(@c)'";
    let setup = declaring(&[("many", fork, &[])]).set("process.processes_max", "40");
    let setup = if is_root() { setup.set("process.user", "65534") } else { setup };
    let b = setup.start();
    let started = said(&b, "many").as_integer().and_then(|count| u64::try_from(count).ok()).unwrap();
    // Other processes of an ordinary user may have ended since the sidecar counted them.
    assert!(started > 0 && started < 300, "{started}");
    logged(&b, |line| line.contains("processes=\"bounded for"));
}

#[test]
fn what_the_kernel_offers_is_told_at_start_in_one_line() {
    let b = declaring(&[("none", "echo null", &[])]).start();
    let line = logged(&b, |line| line.contains("commands are confined"));
    for field in ["landlock=", "seccomp=", "processes=", "enforced=", "not_enforced="] {
        assert!(line.contains(field), "{field}: {line}");
    }
}

#[test]
fn what_a_command_leaves_behind_is_collected_when_it_ends() {
    let script = "perl -e 'use POSIX; if (!fork) { setsid; exit if fork; sleep 1; exit } wait; print 1'";
    let b = declaring(&[("leave", script, &[])]).start();
    assert_eq!(said(&b, "leave"), Value::from(1));
    let children =
        || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", b.pid())).unwrap_or_default();
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    // It is taken in, and gone once it has ended: a child that nobody collects would stay for ever.
    while !children().is_empty() {
        assert!(std::time::Instant::now() < deadline, "{}", children());
        std::thread::yield_now();
    }
}

/// What runs as the same user: the agent's other programs, or a command where the kernel has no Landlock.
#[test]
fn other_processes_of_the_same_user_cannot_look_into_the_sidecar() {
    // With its capabilities root is no ordinary user.
    let words: &[&str] = match is_root() {
        true => &["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"],
        false => &["env"],
    };
    if std::process::Command::new(words[0]).arg("--version").output().is_err() {
        println!("not run: setpriv, which root needs for this, is not there");
        return;
    }
    let b = Setup::new().through(words).start();
    let mut reader = std::process::Command::new(words[0]);
    let read =
        reader.args(&words[1..]).args(["cat", &format!("/proc/{}/environ", b.pid())]).output().unwrap();
    assert!(!read.status.success() && read.stdout.is_empty(), "{read:?}");
}

/// What a command complains of when it fails: its secrets among it.
const COMPLAINT: &str = "echo first line >&2; echo 'cannot open file:///root/secrets/id_rsa' >&2; \
                         echo 'postgres://svc:S3cr3t@db.internal/prod refused' >&2; exit 3";

#[test]
fn what_a_failing_command_complains_of_is_for_its_owner_alone() {
    let b = declaring(&[
        ("fails", COMPLAINT, &[]),
        ("hangs", &COMPLAINT.replace("exit 3", "sleep 60"), &[]),
        ("talks", &COMPLAINT.replace("exit 3", "echo no json"), &[]),
        ("silent", "exit 4", &[]),
    ])
    .start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    for (name, code) in [("fails", 5001), ("hangs", 5003), ("talks", 5001), ("silent", 5001)] {
        let id = caller.invoke(within(&format!("org.example.{name}:1.0.0"), Value::Null, SOON_MS));
        let answer = caller.result(&id);
        assert_eq!(failure(&answer), code, "{name}");
        let told = String::from_utf8_lossy(&answer.bytes).into_owned();
        for secret in ["secrets", "id_rsa", "S3cr3t", "svc", "db.internal", "first line"] {
            assert!(!told.contains(secret), "{name} tells {secret}: {told}");
        }
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        if name != "silent" {
            // All of it is in the log of the sidecar that ran it, with the call's id, and in no other.
            let line = logged(&b, |line| line.contains(&id) && line.contains("stderr="));
            assert!(line.contains("INFO") && line.contains("id_rsa") && line.contains("S3cr3t"), "{line}");
            assert!(line.contains("first line"), "{line}");
        }
        assert!(!a.log().contains("S3cr3t"), "{}", a.log());
    }
}

#[test]
fn a_declaration_may_have_the_last_line_of_stderr_told() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: tells\n    tellStderr: true\n    \
                command: [sh, -c, \"echo secret >&2; echo 'the disk is full' >&2; exit 3\"]\n";
    let b = Setup::new().capabilities(yaml).start();
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id("org.example.tells:1.0.0", Value::Null));
    let answer = caller.result(&id);
    let message = of_error(&answer, "message").and_then(Value::as_text).unwrap().to_owned();
    assert_eq!(message, "the provider exited with code 3: the disk is full");
}
