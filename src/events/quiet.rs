//! Calls that may panic, turned into errors without a word on standard error.
//!
//! Used around the engine, which panics on damaged files. The message of a caught panic becomes the text of the error,
//! so the hook of the process is not asked to print it; panics elsewhere print as ever. This needs unwinding: the
//! crate must not be built with `panic = "abort"`.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// What `call` returns, or the first line of its panic.
///
/// # Errors
/// The panic's message.
pub(super) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(silence_caught_panics);
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    QUIET.set(before);
    result.map_err(|payload| first_line(payload.as_ref()))
}

fn silence_caught_panics() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !QUIET.get() {
            previous(panic);
        }
    }));
}

fn first_line(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.and_then(|t| t.lines().next()).unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_first_line() {
        assert_eq!(catch(|| -> u8 { panic!("one\ntwo") }), Err("one".to_owned()));
        assert_eq!(catch(|| 7), Ok(7));
    }
}
