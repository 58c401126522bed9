//! What a `map` prints: on a thread of its own, so that a slow terminal slows no run.

mod bars;
mod input;
mod json;
mod plain;
mod view;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ghostlight::Status;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

pub(super) use self::input::Input;
use super::signals::Stop;
use crate::batch::{Launches, Running};
use crate::fatal::Fatal;
use crate::inputs::Notes;
use crate::lines::LineChunk;

/// How many events may wait for a slow terminal or pipe, and how many bytes they may have.
const EVENTS_AHEAD: usize = 1024;
const BYTES_AHEAD: usize = 4 << 20;
/// What an event takes beside its texts.
const EVENT_BYTES: usize = 256;

/// Something to print.
pub(super) enum Event {
    /// A run is known: it was dispatched, or found.
    Began {
        run_id: Arc<str>,
        input: Input,
    },
    Line {
        run_id: Arc<str>,
        input: Input,
        sequence: u64,
        chunk: LineChunk,
    },
    /// `before`: the run had ended before this program looked.
    Ended {
        run_id: Arc<str>,
        input: Input,
        end: RunEnd,
        before: bool,
    },
    /// How many inputs there are, where that is known before they are read.
    Inputs(u64),
    /// Something of the source cannot be read.
    Unreadable(String),
    /// The source is read to its end.
    Read(Notes),
    /// Something to tell the user.
    Note(String),
}

impl Event {
    fn bytes(&self) -> usize {
        let texts = match self {
            Self::Began { input, .. } => input.base64_bytes(),
            Self::Inputs(_) | Self::Read(_) => 0,
            Self::Line { chunk, .. } => chunk.bytes.len(),
            Self::Ended { input, end, .. } => {
                input.base64_bytes() + end.error.as_ref().map_or(0, String::len)
            }
            Self::Unreadable(text) | Self::Note(text) => text.len(),
        };
        EVENT_BYTES + texts
    }
}

/// Where events go in. Waits while too many are there, or too many bytes of them.
#[derive(Clone)]
pub(super) struct Events {
    events: mpsc::Sender<(Event, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// Nothing is printed any more.
pub(super) struct NotPrinted;

impl Events {
    pub(super) async fn send(&self, event: Event) -> Result<(), NotPrinted> {
        let room = Arc::clone(&self.room).acquire_many_owned(permits(&event)).await;
        let room = room.map_err(|_| NotPrinted)?;
        self.events.send((event, room)).await.map_err(|_| NotPrinted)
    }

    fn try_send(&self, event: Event) -> Result<(), NotPrinted> {
        let room = Arc::clone(&self.room).try_acquire_many_owned(permits(&event));
        let room = room.map_err(|_| NotPrinted)?;
        self.events.try_send((event, room)).map_err(|_| NotPrinted)
    }
}

/// No event is larger than all the room there is.
fn permits(event: &Event) -> u32 {
    event.bytes().min(BYTES_AHEAD) as u32
}

pub(super) struct RunEnd {
    pub(super) status: Status,
    pub(super) error: Option<String>,
}

/// How many runs ended how.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) completed: u64,
    /// Of the completed ones, those that were so before.
    pub(super) before: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) unreadable: u64,
    pub(super) elapsed: Duration,
    pub(super) notes: Notes,
    /// The first failures, for the table.
    pub(super) failures: Vec<(String, String)>,
    /// The list of inputs was not read to its end, or not all of it is done.
    pub(super) stopped: bool,
}

/// How many failures the table names.
const FAILURES_NAMED: usize = 20;

impl Totals {
    fn count(&mut self, input: &str, end: &RunEnd, before: bool) {
        match end.status {
            Status::Completed => {
                self.completed += 1;
                self.before += u64::from(before);
                return;
            }
            Status::Aborted => self.cancelled += 1,
            _ => self.failed += 1,
        }
        if self.failures.len() < FAILURES_NAMED {
            let error = end.error.clone().unwrap_or_else(|| end.status.to_string());
            self.failures.push((input.to_owned(), error));
        }
    }
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Json,
    Plain,
    /// Standard error is a terminal.
    Bars,
}

impl Mode {
    pub(super) fn choose(json: bool) -> Self {
        match (json, std::io::stderr().is_terminal()) {
            (true, _) => Self::Json,
            (false, true) => Self::Bars,
            (false, false) => Self::Plain,
        }
    }
}

/// Prints one kind of report.
trait Print {
    fn event(&mut self, event: &Event) -> std::io::Result<()>;
    /// Which commands are running now, whenever that has changed.
    fn running(&mut self, _now: &BTreeSet<Arc<str>>) {}
    /// Nothing is waiting: what is buffered should be seen.
    fn idle(&mut self) -> std::io::Result<()>;
    fn end(&mut self, totals: &Totals) -> std::io::Result<()>;
}

pub(super) struct Reporter {
    events: Events,
    closed: Arc<Closed>,
    finished: JoinHandle<Totals>,
    stopped: Arc<std::sync::atomic::AtomicBool>,
}

impl Reporter {
    pub(super) fn start(mode: Mode, launches: &Launches) -> Self {
        let running = (mode == Mode::Bars).then(|| launches.running());
        Self::start_with(running, move || match mode {
            Mode::Json => Box::new(json::Json::new()),
            Mode::Plain => Box::new(plain::Plain::new()),
            Mode::Bars => Box::new(bars::Bars::new()),
        })
    }

    fn start_with(
        running: Option<Running>,
        printer: impl FnOnce() -> Box<dyn Print> + Send + 'static,
    ) -> Self {
        let (events, received) = mpsc::channel(EVENTS_AHEAD);
        let events = Events { events, room: Arc::new(Semaphore::new(BYTES_AHEAD)) };
        let closed = Arc::new(Closed::default());
        // Until everything is known to be done.
        let stopped = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let thread = Thread {
            events: received,
            running,
            closed: Arc::clone(&closed),
            stopped: Arc::clone(&stopped),
        };
        // Ends when all senders of events are gone.
        let finished = tokio::task::spawn_blocking(move || thread.run(&mut *printer()));
        Self { events, closed, finished, stopped }
    }

    /// Waits until our output takes no more, and says what that means.
    pub(super) async fn closed(&self) -> Stop {
        tokio::select! {
            () = self.closed.noticed.notified() => {}
            // Its thread is there for as long as we are, unless it panics.
            () = self.events.events.closed() => {}
        }
        self.closed.stop().unwrap_or_else(|| printer_failed(&"it has stopped"))
    }

    /// Where events go in.
    pub(super) fn events(&self) -> Events {
        self.events.clone()
    }

    /// Says something to the user, past everything that waits to be printed if need be.
    pub(super) fn note(&self, text: &str) {
        if self.events.try_send(Event::Note(text.to_owned())).is_err() {
            let text = format!("ghostlight: {text}\n");
            // Standard error may be what is blocked: nobody waits for this thread.
            std::thread::spawn(move || {
                use std::io::Write;
                let _ = std::io::stderr().write_all(text.as_bytes());
            });
        }
    }

    /// Prints the table, and returns what it says. All senders of events must be gone.
    ///
    /// # Errors
    /// Not everything could be printed, or counted.
    pub(super) async fn finish(self, all: bool) -> Result<Totals, Stop> {
        self.stopped.store(!all, std::sync::atomic::Ordering::Release);
        drop(self.events);
        let totals = self.finished.await;
        match self.closed.stop() {
            Some(stop) => Err(stop),
            None => totals.map_err(|error| printer_failed(&error)),
        }
    }
}

/// What cannot be counted is not known to be done.
fn printer_failed(why: &dyn std::fmt::Display) -> Stop {
    Stop::Fatal(Fatal::new(format!(
        "a bug in what prints the report: {why}; the runs are recorded, and the same command line goes on"
    )))
}

/// Whether our output takes no more, and why.
#[derive(Default)]
struct Closed {
    noticed: Notify,
    error: OnceLock<std::io::Error>,
}

impl Closed {
    /// Returns whether it took what was written.
    fn took(&self, written: std::io::Result<()>) -> bool {
        let Err(error) = written else { return true };
        let _ = self.error.set(error);
        self.noticed.notify_one();
        false
    }

    fn stop(&self) -> Option<Stop> {
        let error = self.error.get()?;
        Some(match error.kind() {
            std::io::ErrorKind::BrokenPipe => Stop::ClosedOutput,
            // The signal may come later than this, or never: it goes to the terminal's own session.
            _ if is_hung_up(&std::io::stdout()) || is_hung_up(&std::io::stderr()) => Stop::Hangup,
            _ => Stop::Fatal(Fatal::new(format!("write the output: {error}"))),
        })
    }
}

/// Whether a stream is a terminal that is gone. A file answers otherwise, whatever its disk does.
fn is_hung_up(stream: &impl AsFd) -> bool {
    rustix::termios::tcgetattr(stream).is_err_and(|error| error == rustix::io::Errno::IO)
}

struct Thread {
    events: mpsc::Receiver<(Event, OwnedSemaphorePermit)>,
    /// For those who show it.
    running: Option<Running>,
    closed: Arc<Closed>,
    stopped: Arc<std::sync::atomic::AtomicBool>,
}

impl Thread {
    fn run(mut self, printer: &mut dyn Print) -> Totals {
        #[expect(clippy::disallowed_methods, reason = "a person waits, by the wall clock")]
        let began = Instant::now();
        let mut totals = Totals::default();
        let mut broken = false;
        loop {
            let (event, _room) = match self.events.try_recv() {
                Ok(event) => event,
                Err(mpsc::error::TryRecvError::Empty) => {
                    self.show_running(printer);
                    broken = broken || !self.closed.took(printer.idle());
                    match self.wait() {
                        Waited::Event(event) => event,
                        Waited::Running => continue,
                        Waited::Over => break,
                    }
                }
                Err(mpsc::error::TryRecvError::Disconnected) => break,
            };
            match &event {
                Event::Ended { input, end, before, .. } => totals.count(input, end, *before),
                Event::Unreadable(_) => totals.unreadable += 1,
                Event::Read(notes) => totals.notes = *notes,
                Event::Began { .. } | Event::Line { .. } | Event::Inputs(_) | Event::Note(_) => {}
            }
            broken = broken || !self.closed.took(printer.event(&event));
            self.show_running(printer);
        }
        totals.elapsed = began.elapsed();
        totals.stopped = self.stopped.load(std::sync::atomic::Ordering::Acquire);
        if !broken {
            self.closed.took(printer.end(&totals));
        }
        totals
    }

    fn show_running(&mut self, printer: &mut dyn Print) {
        if let Some(now) = self.running.as_mut().and_then(Running::changed_to) {
            printer.running(&now);
        }
    }

    /// Waits for something to print.
    fn wait(&mut self) -> Waited {
        let Self { events, running, .. } = self;
        let changed = async {
            match running {
                Some(running) => running.changed().await,
                None => std::future::pending().await,
            }
        };
        Handle::current().block_on(async {
            tokio::select! {
                biased;
                event = events.recv() => event.map_or(Waited::Over, Waited::Event),
                () = changed => Waited::Running,
            }
        })
    }
}

enum Waited {
    Event((Event, OwnedSemaphorePermit)),
    Running,
    Over,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Text;
    use crate::lines::Stream;

    #[tokio::test(start_paused = true)]
    async fn what_waits_to_be_printed_is_bounded_by_its_bytes() {
        let (events, mut received) = mpsc::channel(EVENTS_AHEAD);
        let events = Events { events, room: Arc::new(Semaphore::new(BYTES_AHEAD)) };
        let line = |bytes: usize| Event::Line {
            run_id: "r".into(),
            input: Input::new(&Text::Text("i".into())),
            sequence: 1,
            chunk: LineChunk {
                stream: Stream::Stdout,
                bytes: vec![b'x'; bytes],
                partial: false,
                truncated: false,
            },
        };
        let at_once = async |event| {
            tokio::time::timeout(Duration::from_secs(1), events.send(event)).await.is_ok()
        };
        let mut sent = 0;
        while at_once(line(200_000)).await {
            sent += 1;
        }
        assert_eq!(sent, BYTES_AHEAD / (200_000 + EVENT_BYTES));
        // Printed, it makes room for the next one, and anything fits into all the room there is.
        drop(received.recv().await);
        assert!(at_once(line(200_000)).await);
        while received.try_recv().is_ok() {}
        assert!(at_once(line(2 * BYTES_AHEAD)).await);
    }

    /// Prints nothing, and panics at some event or at the end.
    struct Broken {
        at_end: bool,
    }

    impl Print for Broken {
        fn event(&mut self, _: &Event) -> std::io::Result<()> {
            assert!(self.at_end, "broken");
            Ok(())
        }

        fn idle(&mut self) -> std::io::Result<()> {
            Ok(())
        }

        fn end(&mut self, _: &Totals) -> std::io::Result<()> {
            panic!("broken");
        }
    }

    #[tokio::test]
    async fn a_report_that_panics_is_no_success() {
        for at_end in [false, true] {
            let reporter = Reporter::start_with(None, move || Box::new(Broken { at_end }));
            reporter.note("hello");
            if !at_end {
                assert_eq!(reporter.closed().await.code(), 2, "it is noticed at once");
            }
            let Err(Stop::Fatal(fatal)) = reporter.finish(true).await else {
                panic!("nothing was printed");
            };
            assert!(fatal.message.contains("a bug in what prints the report"), "{fatal}");
        }
    }
}
