//! What the thread of a life is doing, as far as the world cannot see it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ghostlight::testing::{PanicsTold, panics_told_to};

use crate::world::World;

/// Code that keeps its thread for longer than this in one poll, in real time, blocks or computes.
const POLL_MAX: Duration = Duration::from_millis(500);

/// Code that keeps its thread for longer than this is told of while it still does, for it may never end.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Whose code is polled, and since when.
#[derive(Clone)]
struct Polling {
    who: String,
    since: Instant,
}

#[derive(Clone)]
struct Life {
    world: World,
    /// Shared with the watchdog.
    polling: Arc<Mutex<Option<Polling>>>,
}

thread_local! {
    /// The life that this thread is.
    static LIFE: RefCell<Option<Life>> = const { RefCell::new(None) };
    /// What this thread's last panic said, with its place.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// This thread calls what judges the world.
    static JUDGING: Cell<bool> = const { Cell::new(false) };
}

fn life() -> Option<Life> {
    LIFE.with_borrow(Clone::clone)
}

/// As long as it is there, this thread is a life of a world: panics are lines of the timeline, and are not
/// printed, since scenarios panic on purpose, and a failing one is executed many times.
pub(crate) struct OfALife {
    _panics: PanicsTold,
}

impl OfALife {
    pub(crate) fn begin(world: &World, watchdog: &Watchdog) -> Self {
        let told = world.clone();
        let panics = panics_told_to(move |info, caught| {
            let text = info.to_string().replace('\n', " ");
            let caught = caught || polled_now().is_some() || JUDGING.get();
            told.panicked(&text, caught);
            LAST_PANIC.set(text);
        });
        LIFE.set(Some(Life { world: world.clone(), polling: Arc::clone(&watchdog.polling) }));
        Self { _panics: panics }
    }
}

impl Drop for OfALife {
    fn drop(&mut self) {
        LIFE.set(None);
    }
}

/// Whether this thread is a life of a world.
pub(crate) fn is_of_a_life() -> bool {
    LIFE.with_borrow(Option::is_some)
}

/// What this thread's last panic said, with its place.
pub(crate) fn last_panic() -> String {
    LAST_PANIC.with_borrow(Clone::clone)
}

/// Calls what judges the world; `None` if it is what this thread is calling already.
pub(crate) fn judging<T>(judge: impl FnOnce() -> T) -> Option<T> {
    struct Judging;
    impl Drop for Judging {
        fn drop(&mut self) {
            JUDGING.set(false);
        }
    }
    if JUDGING.replace(true) {
        return None;
    }
    let _judging = Judging;
    Some(judge())
}

/// Whose code this thread is polling.
pub(crate) fn polled_now() -> Option<String> {
    let polling = lock(&life()?.polling).clone();
    polling.map(|polling| polling.who)
}

/// Code is about to be polled on this thread.
pub(crate) fn polling(who: &impl fmt::Display) {
    if let Some(life) = life() {
        let who = who.to_string();
        life.world.count_poll(&who);
        *lock(&life.polling) = Some(Polling { who, since: now() });
    }
}

/// The code was polled.
pub(crate) fn polled() {
    let Some(life) = life() else { return };
    let Some(polling) = lock(&life.polling).take() else { return };
    if polling.since.elapsed() > POLL_MAX {
        life.world.warn(format!(
            "{} kept its thread for more than {} ms of real time in one poll: it blocks, and nothing of that is simulated",
            polling.who,
            POLL_MAX.as_millis()
        ));
    }
}

/// Tells of code that keeps its thread and may never give it back, which only another thread can.
pub(crate) struct Watchdog {
    polling: Arc<Mutex<Option<Polling>>>,
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches the lives of one world. `told` is what it is about.
    pub(crate) fn begin(told: String) -> Self {
        let polling: Arc<Mutex<Option<Polling>>> = Arc::default();
        let (end, ended) = mpsc::channel();
        let watched = Arc::clone(&polling);
        let thread = std::thread::Builder::new().name("ghostlight-sim".into());
        let thread = thread.spawn(move || {
            let mut before = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(STUCK_AFTER / 10) {
                let stuck = lock(&watched).clone();
                let Some(Polling { who, since }) = stuck else { continue };
                if since.elapsed() > STUCK_AFTER && before != Some(since) {
                    before = Some(since);
                    eprintln!(
                        "{told}: {who} has kept its thread for {} s of real time, and nothing goes on meanwhile: it blocks, or never comes to an await",
                        STUCK_AFTER.as_secs()
                    );
                }
            }
        });
        // Without a thread to spare, nothing is lost but the warning.
        Self { polling, end: Some(end), thread: thread.ok() }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic, and has nothing to say.
            let _ = thread.join();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real time is what is looked for")]
fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
