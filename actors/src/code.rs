//! Runs a run's code in a task of its own, and watches it stand still, panic and end.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use crate::RunError;
use crate::messages::CodeEnd;
use crate::place::{CodePlace, Permit, as_run};
use crate::registry::{BoxFuture, Returned};
use crate::shared::Shared;

/// The future of a run's code: reports every standstill to the journal, and a panic as an end.
pub(crate) struct Code {
    body: BoxFuture<Result<Returned, RunError>>,
    shared: Arc<Shared>,
    waker: Arc<CodeWaker>,
    place: CodePlace,
    /// How often in a row the code was woken while it was being polled.
    restless: u32,
}

/// Code that is woken so often in a row has a body that never rests; results of its other steps
/// must not wait for that.
const RESTLESS_MAX: u32 = 256;

impl Code {
    pub(crate) fn new(
        body: BoxFuture<Result<Returned, RunError>>,
        shared: Arc<Shared>,
        permit: Permit,
    ) -> Self {
        let waker = Arc::new(CodeWaker { woken: AtomicBool::new(false), task: Mutex::new(None) });
        Self { body, shared, waker, place: CodePlace::new(permit), restless: 0 }
    }
}

/// Tells whether the code was woken while it was being polled.
struct CodeWaker {
    woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for CodeWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Future for Code {
    type Output = CodeEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CodeEnd> {
        let this = &mut *self;
        ready!(this.place.poll(&this.shared, cx));
        {
            let mut task = this.waker.task.lock().unwrap_or_else(PoisonError::into_inner);
            if task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
                *task = Some(cx.waker().clone());
            }
        }
        this.waker.woken.store(false, Ordering::Release);
        this.shared.polled();
        let waker = Waker::from(Arc::clone(&this.waker));
        let mut context = Context::from_waker(&waker);
        let polled = as_run(&this.shared, || caught(|| this.body.as_mut().poll(&mut context)));
        match polled {
            Ok(Poll::Ready(result)) => Poll::Ready(CodeEnd::Returned(result)),
            Ok(Poll::Pending) => {
                // Woken meanwhile: it has more to do, and does not stand still.
                this.restless += 1;
                if !this.waker.woken.load(Ordering::Acquire) || this.restless > RESTLESS_MAX {
                    this.restless = 0;
                    // Held by us, by the waker of this poll, and by whatever else may wake the code.
                    let held = Arc::strong_count(&this.waker) - 2;
                    this.shared.standstill(held > this.shared.kept(&waker));
                }
                if !this.waker.woken.load(Ordering::Acquire) {
                    this.place.stands_still(&this.shared);
                }
                Poll::Pending
            }
            Err(panic) => Poll::Ready(CodeEnd::Panicked(panic)),
        }
    }
}

/// A panic that was caught on another thread, with its message and location.
struct Located(String);

/// Lets a panic that [`caught`] has caught elsewhere go on here.
pub(crate) fn resume(panic: String) -> ! {
    std::panic::resume_unwind(Box::new(Located(panic)))
}

/// What a simulation does with the panics of its thread.
pub(crate) type OnPanic = Rc<dyn Fn(&PanicHookInfo<'_>)>;

thread_local! {
    /// Where the code that this thread is polling panicked; `None` outside such code.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Who is told of panics of this thread, instead of the hook that was there.
    pub(crate) static ON_PANIC: RefCell<Option<OnPanic>> = const { RefCell::new(None) };
}

/// Adds the one panic hook of ours: it notes where code has panicked, and goes on to the hook that was
/// there. It does nothing outside of our calls.
pub(crate) fn hook_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICKED_AT.with_borrow_mut(|at| {
                if let (Some(at), Some(location)) = (at.as_mut(), info.location()) {
                    *at = location.to_string();
                }
            });
            match ON_PANIC.try_with(|on| on.borrow().clone()).ok().flatten() {
                Some(tell) => tell(info),
                None => before(info),
            }
        }));
    });
}

/// Calls user code, and turns a panic into its message and location.
///
/// The location is known to the process's panic hook alone, so that the first call adds one.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    hook_panics();
    let outer = PANICKED_AT.replace(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(call));
    let location = PANICKED_AT.replace(outer);
    result.map_err(|panic| {
        let panic = match panic.downcast::<Located>() {
            Ok(located) => return located.0,
            Err(panic) => panic,
        };
        let message = panic_message(&*panic);
        // A panic's payload may panic itself when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        match location.filter(|location| !location.is_empty()) {
            Some(location) => format!("panicked at {location}: {message}"),
            None => format!("panicked: {message}"),
        }
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a value that is no text".to_owned()
    }
}
