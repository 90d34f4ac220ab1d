//! A sidecar in which something panics: it ends, and says what it was.

use crate::support::Setup;

#[test]
fn a_task_that_panics_ends_the_sidecar_with_70_and_the_last_line_names_it() {
    let mut sidecar = Setup::new().environment("TEST_HOOK_PANIC", "as the test asked").start();
    assert_eq!(sidecar.wait().code(), Some(70), "{}", sidecar.log());
    let log = sidecar.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains(" ERROR "), "{log}");
    assert!(last.contains("exit_code=70") && last.contains("panic=\"as the test asked\""), "{log}");
    assert!(last.contains("location=\"src/daemon/hooks.rs:"), "{log}");
}
