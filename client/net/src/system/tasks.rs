//! Runs futures as tasks, counted so that a shutdown can wait for them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::fault::Faults;

/// A task for a [`Spawn`] to run.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs tasks in tokio's place: a simulation can stop all tasks of one process at once.
pub trait Spawn: Send + Sync + 'static {
    /// Runs `task` to its end, or drops it.
    fn spawn(&self, task: Task);
}

/// A group of tasks. Clones are the same group.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    /// `None` is tokio's own.
    spawner: Option<Arc<dyn Spawn>>,
    faults: Faults,
}

impl Tasks {
    /// An empty group whose tasks tokio runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty group whose tasks `spawner` runs.
    pub fn run_by(spawner: Arc<dyn Spawn>) -> Self {
        Self { spawner: Some(spawner), ..Self::default() }
    }

    /// An empty group that runs its tasks as this one does, and shares its panics.
    pub fn group(&self) -> Self {
        Self { tracker: TaskTracker::new(), spawner: self.spawner.clone(), faults: self.faults.clone() }
    }

    /// The panics of its tasks; a spawner handles those of its own tasks.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Starts a task; its output is dropped, and its panic is [reported](Self::faults).
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) {
        let work = self.tracker.track_future(work);
        match &self.spawner {
            // The tracker, not the handle, says when it has ended.
            None => drop(tokio::spawn(self.faults.guard(work))),
            Some(spawner) => spawner.spawn(Box::pin(async { drop(work.await) })),
        }
    }

    /// Runs work that would delay links: on another thread, or in place if a spawner runs the tasks, so that everything
    /// happens in one order. `None` if it panicked, which is reported like a task's panic.
    pub async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match &self.spawner {
            None => {
                let faults = self.faults.clone();
                tokio::task::spawn_blocking(move || faults.catch(work)).await.ok().flatten()
            }
            Some(_) => Some(work()),
        }
    }

    /// Lets [`wait`](Self::wait) end; tasks can still be started.
    pub fn close(&self) {
        self.tracker.close();
    }

    /// Waits until the group is closed and none of its tasks runs.
    pub async fn wait(&self) {
        self.tracker.wait().await;
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &self.tracker.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps tasks and runs none.
    #[derive(Default)]
    struct Shelf(Mutex<Vec<Task>>);

    impl Spawn for Shelf {
        fn spawn(&self, task: Task) {
            self.0.lock().unwrap().push(task);
        }
    }

    #[tokio::test]
    async fn a_spawner_gets_the_tasks_of_a_group_and_of_groups_made_from_it() {
        let shelf = Arc::new(Shelf::default());
        let tasks = Tasks::run_by(shelf.clone());
        let group = tasks.group();
        tasks.spawn(async {});
        group.spawn(async {});
        assert_eq!(shelf.0.lock().unwrap().len(), 2);
        group.close();
        let ends = tokio::time::timeout(std::time::Duration::from_millis(1), group.wait());
        assert!(ends.await.is_err(), "a task that waits to run counts");
        shelf.0.lock().unwrap().clear();
        group.wait().await;
    }

    #[tokio::test]
    async fn work_is_done_in_place_under_a_spawner_and_elsewhere_under_tokio() {
        let here = std::thread::current().id();
        let there = || std::thread::current().id();
        assert_eq!(Tasks::run_by(Arc::new(Shelf::default())).compute(there).await, Some(here));
        assert_ne!(Tasks::new().compute(there).await, Some(here));
    }

    #[tokio::test]
    async fn a_panic_of_a_task_or_of_work_is_reported_to_the_group_it_stems_from() {
        let tasks = Tasks::new();
        assert_eq!(tasks.group().compute(|| panic!("as told")).await, None::<()>);
        assert_eq!(tasks.faults().first().await.text, "as told");
        let tasks = Tasks::new();
        let group = tasks.group();
        group.spawn(async { panic!("as told again") });
        assert_eq!(tasks.faults().first().await.text, "as told again");
        group.close();
        group.wait().await;
    }

    #[tokio::test]
    async fn tokio_runs_the_tasks_otherwise() {
        let tasks = Tasks::new();
        let (sender, ran) = tokio::sync::oneshot::channel();
        tasks.spawn(async { sender.send(7).unwrap() });
        tasks.close();
        tasks.wait().await;
        assert_eq!(ran.await, Ok(7));
    }
}
