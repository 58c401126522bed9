//! Panics of user code, as values.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::rc::Rc;
use std::sync::Once;
use std::task::Poll;

use crate::registry::BoxFuture;

/// A panic that was caught on another thread, with its message and location.
struct Located(String);

/// Lets a panic that [`caught`] has caught elsewhere go on here.
pub(crate) fn resume(panic: String) -> ! {
    std::panic::resume_unwind(Box::new(Located(panic)))
}

/// What a simulation does with the panics of its thread, told whether [`caught`] is there to catch it.
pub(crate) type OnPanic = Rc<dyn Fn(&PanicHookInfo<'_>, bool)>;

thread_local! {
    /// Where the code that this thread is polling panicked; `None` outside such code.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Who is told of panics of this thread, instead of the hook that was there.
    static ON_PANIC: RefCell<Option<OnPanic>> = const { RefCell::new(None) };
}

/// Adds the one panic hook of ours: it notes where code has panicked, and goes on to the hook that was
/// there. It does nothing outside of our calls.
fn hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let caught = PANICKED_AT.with_borrow_mut(|at| {
                if let (Some(at), Some(location)) = (at.as_mut(), info.location()) {
                    *at = location.to_string();
                }
                at.is_some()
            });
            match ON_PANIC.try_with(|on| on.borrow().clone()).ok().flatten() {
                Some(tell) => tell(info, caught),
                None => before(info),
            }
        }));
    });
}

/// Tells `tell` of every panic of this thread, instead of the hook that was there; or no longer.
pub(crate) fn tell_panics(tell: Option<OnPanic>) {
    hook();
    ON_PANIC.set(tell);
}

/// Calls user code, and turns a panic into its message and location.
///
/// The location is known to the process's panic hook alone, so that the first call adds one.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    hook();
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

/// Polls code to its end; `Err` is a panic's text. What panics while it is dropped harms nobody.
pub(crate) async fn guarded<T>(body: BoxFuture<T>) -> Result<T, String> {
    let mut body = Guarded(Some(body));
    std::future::poll_fn(|cx| {
        let Some(body) = &mut body.0 else { return Poll::Pending };
        match caught(|| body.as_mut().poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// Code that may be dropped at any time.
struct Guarded<T>(Option<BoxFuture<T>>);

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let body = self.0.take();
        // A panic's payload may panic itself when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(body))).map_err(std::mem::forget);
    }
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
