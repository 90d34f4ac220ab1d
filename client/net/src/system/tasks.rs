//! Runs futures as tasks, counted so that a shutdown can wait for them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::fault::Faults;

/// A task for a [`Spawn`] to run.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work on its way to whatever does it.
pub type Work = Box<dyn FnOnce() + Send>;

/// Runs tasks in tokio's place: a simulation can stop all tasks of one process at once.
pub trait Spawn: Send + Sync + 'static {
    /// Runs `task` to its end, or drops it.
    fn spawn(&self, task: Task);

    /// Does work that would hold up links, or drops it. Done in place, everything happens in one order.
    fn compute(&self, work: Work) {
        work();
    }
}

/// A group of tasks. Clones are the same group.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    /// `None` is tokio's own.
    spawner: Option<Arc<dyn Spawn>>,
    /// As much work is done at once as there are cores: more would only take them from the links' thread.
    places: Arc<Semaphore>,
    faults: Faults,
}

impl Default for Tasks {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            tracker: TaskTracker::new(),
            spawner: None,
            places: Arc::new(Semaphore::new(cores.max(PLACES_MIN))),
            faults: Faults::default(),
        }
    }
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
        Self { tracker: TaskTracker::new(), ..self.clone() }
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

    /// Runs work that would delay links: on another thread, first come, first served, or wherever a spawner that runs the
    /// tasks puts it. `None` if it panicked, which is reported like a task's panic.
    pub async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let Some(spawner) = &self.spawner else {
            let place = Arc::clone(&self.places).acquire_owned().await;
            let faults = self.faults.clone();
            let work = move || {
                let done = faults.catch(work);
                // Whoever asked may be gone by now; the place is taken until the work is done.
                drop(place);
                done
            };
            return tokio::task::spawn_blocking(work).await.ok().flatten();
        };
        let (done, mut told) = oneshot::channel();
        // Nobody may wait for it any more.
        spawner.compute(Box::new(move || drop(done.send(work()))));
        match told.try_recv() {
            // Done in place: nothing else has its turn in between.
            Ok(done) => Some(done),
            Err(_) => told.await.ok(),
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

/// Places for work on a machine with fewer cores: one piece that takes long keeps no other waiting.
const PLACES_MIN: usize = 2;

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
    async fn no_more_work_is_done_at_once_than_there_are_places() {
        let tasks = Tasks::new();
        let places = tasks.places.available_permits();
        let (gate, is_open) = std::sync::mpsc::sync_channel::<()>(places);
        let is_open = Arc::new(Mutex::new(is_open));
        let (began, mut begins) = tokio::sync::mpsc::channel(places + 1);
        for number in 0..=places {
            let (is_open, began, work) = (Arc::clone(&is_open), began.clone(), tasks.group());
            tasks.spawn(async move {
                work.compute(move || {
                    began.blocking_send(number).unwrap();
                    is_open.lock().unwrap().recv().unwrap();
                })
                .await
            });
        }
        for number in 0..places {
            assert!(begins.recv().await.is_some(), "{number}");
        }
        tokio::task::yield_now().await;
        assert!(begins.try_recv().is_err() && tasks.places.available_permits() == 0, "the last one waits");
        gate.send(()).unwrap();
        assert_eq!(begins.recv().await, Some(places), "first come, first served");
        (0..places).for_each(|_| gate.send(()).unwrap());
        tasks.close();
        tasks.wait().await;
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
