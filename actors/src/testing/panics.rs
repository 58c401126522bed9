//! Panics of a thread, told to a simulation instead of being printed.

use std::marker::PhantomData;
use std::panic::PanicHookInfo;
use std::rc::Rc;

use crate::code::tell_panics;

/// Tells `tell` of every panic of this thread, instead of the process's panic hook, until what it returns is
/// dropped, and whether the system catches it, as it does for the code of agents. The runs of the thread
/// fail with the place of the panic, as ever. `tell` must not panic.
///
/// There is one such guard a thread: the last one counts.
#[must_use = "it ends when this is dropped"]
pub fn panics_told_to(tell: impl Fn(&PanicHookInfo<'_>, bool) + 'static) -> PanicsTold {
    tell_panics(Some(Rc::new(tell)));
    PanicsTold { of_this_thread: PhantomData }
}

/// As long as it is there, panics of the thread that made it are told. See [`panics_told_to`].
#[derive(Debug)]
pub struct PanicsTold {
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for PanicsTold {
    fn drop(&mut self) {
        tell_panics(None);
    }
}
