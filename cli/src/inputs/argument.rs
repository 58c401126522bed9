use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The most bytes of one argument (128 KiB less the NUL at its end), a limit of the kernel's.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

const PLACEHOLDER: &[u8] = b"{}";

/// Why an input cannot be put into a command's arguments. Final for this input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// It holds a NUL byte, which no argument can.
    #[error("the input holds a NUL byte and cannot be an argument")]
    Nul,
    /// An argument would be too long.
    #[error("an argument of {bytes} bytes is longer than the system allows ({ARGUMENT_BYTES_MAX})")]
    TooLong {
        /// How long.
        bytes: usize,
    },
}

/// Replaces every `{}` in the arguments by the input, byte for byte. No shell is involved, and an
/// input that holds `{}` is not looked at again.
///
/// # Errors
///
/// The input is needed in an argument and cannot be there; see [`ArgumentError`].
pub fn substitute(args: &[OsString], input: &OsStr) -> Result<Vec<OsString>, ArgumentError> {
    args.iter().map(|arg| substitute_one(arg.as_bytes(), input.as_bytes())).collect()
}

fn substitute_one(arg: &[u8], input: &[u8]) -> Result<OsString, ArgumentError> {
    let places = places(arg).count();
    if places > 0 && input.contains(&0) {
        return Err(ArgumentError::Nul);
    }
    // Measured before it is built: many places times a long input would be much memory.
    let bytes = arg.len() - places * PLACEHOLDER.len() + places.saturating_mul(input.len());
    if bytes > ARGUMENT_BYTES_MAX {
        return Err(ArgumentError::TooLong { bytes });
    }
    let mut whole = Vec::with_capacity(bytes);
    let mut from = 0;
    for place in self::places(arg) {
        whole.extend_from_slice(&arg[from..place]);
        whole.extend_from_slice(input);
        from = place + PLACEHOLDER.len();
    }
    whole.extend_from_slice(&arg[from..]);
    Ok(OsString::from_vec(whole))
}

/// Where the placeholders of an argument begin.
fn places(arg: &[u8]) -> impl Iterator<Item = usize> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let place = arg[from..].windows(PLACEHOLDER.len()).position(|at| at == PLACEHOLDER)?;
        let place = from + place;
        from = place + PLACEHOLDER.len();
        Some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&[u8]], input: &[u8], expected: Result<&[&[u8]], ArgumentError>) {
        let args: Vec<_> = args.iter().map(|arg| OsString::from_vec(arg.to_vec())).collect();
        let seen = substitute(&args, OsStr::from_bytes(input));
        let seen = seen.map(|args| args.into_iter().map(OsString::into_vec).collect::<Vec<_>>());
        let expected = expected.map(|args| args.iter().map(|arg| arg.to_vec()).collect());
        assert_eq!(seen, expected);
    }

    #[test]
    fn every_placeholder_becomes_the_input() {
        check(&[b"{}", b"-o{}.out", b"x"], b"a b", Ok(&[b"a b", b"-oa b.out", b"x"]));
        check(&[b"{}{}", b"{{}}", b"{", b"}{"], b"i", Ok(&[b"ii", b"{i}", b"{", b"}{"]));
        check(&[b"{}"], b"\xff{}\n", Ok(&[b"\xff{}\n"]));
        check(&[b"a{}b"], b"", Ok(&[b"ab"]));
        check(&[], b"i", Ok(&[]));
    }

    #[test]
    fn what_cannot_be_an_argument_is_refused() {
        check(&[b"{}"], b"a\0b", Err(ArgumentError::Nul));
        check(&[b"no place"], b"a\0b", Ok(&[b"no place"]));
        let just = vec![b'x'; ARGUMENT_BYTES_MAX];
        check(&[b"{}"], &just, Ok(&[&just]));
        let bytes = ARGUMENT_BYTES_MAX + 1;
        check(&[b"x"], &just, Ok(&[b"x"]));
        check(&[b"-{}"], &just, Err(ArgumentError::TooLong { bytes }));
        check(&[b"no place"], &just, Ok(&[b"no place"]));
        check(&[&[b'x'; 200_000]], b"i", Err(ArgumentError::TooLong { bytes: 200_000 }));
    }

    #[test]
    fn an_argument_that_becomes_short_enough_is_taken() {
        let places = b"{}".repeat(ARGUMENT_BYTES_MAX);
        check(&[&places], b"x", Ok(&[&vec![b'x'; ARGUMENT_BYTES_MAX]]));
        let long = vec![b'x'; 100_000];
        let bytes = 99_999 * 100_000;
        check(&[&b"{}".repeat(99_999)], &long, Err(ArgumentError::TooLong { bytes }));
    }
}
