use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;

use sha2::{Digest, Sha256};

use super::{INPUT_BYTES_MAX, InputError, InputHash, Notes};

/// How much of an input that is too long is kept, to tell which one it is.
const START_BYTES: usize = 256;

/// A list of inputs, one a line, or each ended by NUL.
///
/// An input keeps all its bytes but the one that ends it; the last one needs no end. Empty ones
/// are skipped and counted, unless the list is [exact](List::exact). An input is given out as soon as its end has been read, and no more
/// than [`INPUT_BYTES_MAX`] of it is ever held.
#[derive(Debug)]
pub struct List<R> {
    reader: BufReader<R>,
    end: u8,
    /// Whether an empty input is one.
    keeps_empty: bool,
    blank: u64,
    with_cr: u64,
    without_cr: u64,
    over: bool,
}

impl<R: Read> List<R> {
    /// Begins to read a list; `nul` says that inputs end at NUL instead of LF.
    pub fn new(reader: R, nul: bool) -> Self {
        List {
            reader: BufReader::with_capacity(64 * 1024, reader),
            end: if nul { 0 } else { b'\n' },
            keeps_empty: false,
            blank: 0,
            with_cr: 0,
            without_cr: 0,
            over: false,
        }
    }

    /// Begins to read a list that ends each input at NUL, of which empty ones are none to be skipped.
    pub fn exact(reader: R) -> Self {
        List { keeps_empty: true, ..Self::new(reader, true) }
    }

    /// Returns what has been passed over so far.
    pub fn notes(&self) -> Notes {
        let all_end_in_cr = self.end == b'\n' && self.with_cr > 0 && self.without_cr == 0;
        Notes { blank: self.blank, all_end_in_cr, ..Notes::default() }
    }

    /// Reads up to and over the next end; `None` at the end of the list.
    fn read_one(&mut self) -> io::Result<Option<Result<Vec<u8>, InputError>>> {
        let mut input = Vec::new();
        let mut too_long: Option<(Sha256, u64)> = None;
        let mut begun = false;
        loop {
            let available = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            let end = available.iter().position(|byte| *byte == self.end);
            let part = &available[..end.unwrap_or(available.len())];
            let at_end = end.is_some() || available.is_empty();
            begun |= !available.is_empty();
            match &mut too_long {
                Some((hasher, bytes)) => {
                    hasher.update(part);
                    *bytes += part.len() as u64;
                }
                None => {
                    input.extend_from_slice(part);
                    if input.len() > INPUT_BYTES_MAX {
                        too_long = Some((Sha256::new_with_prefix(&input), input.len() as u64));
                        input.truncate(START_BYTES);
                        input.shrink_to_fit();
                    }
                }
            }
            let read = part.len() + usize::from(end.is_some());
            self.reader.consume(read);
            if at_end {
                let input = match too_long {
                    Some((hasher, bytes)) => Err(InputError::TooLong {
                        bytes,
                        start: OsString::from_vec(input),
                        hash: InputHash::finish(hasher),
                    }),
                    None => Ok(input),
                };
                return Ok(begun.then_some(input));
            }
        }
    }
}

impl<R: Read> Iterator for List<R> {
    type Item = Result<OsString, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            match self.read_one() {
                Ok(Some(Ok(input))) if input.is_empty() && !self.keeps_empty => self.blank += 1,
                Ok(Some(Ok(input))) => {
                    match input.last() {
                        Some(b'\r') => self.with_cr += 1,
                        _ => self.without_cr += 1,
                    }
                    return Some(Ok(OsString::from_vec(input)));
                }
                Ok(Some(Err(too_long))) => return Some(Err(too_long)),
                Ok(None) => self.over = true,
                Err(error) => {
                    self.over = true;
                    return Some(Err(InputError::List(error)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    /// Hands out one piece a read, and an error or the end after the last.
    struct Pieces(VecDeque<io::Result<Vec<u8>>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                Some(piece) => piece.map(|piece| {
                    buffer[..piece.len()].copy_from_slice(&piece);
                    piece.len()
                }),
                None => Ok(0),
            }
        }
    }

    fn pieces(pieces: &[&[u8]]) -> Pieces {
        Pieces(pieces.iter().map(|piece| Ok(piece.to_vec())).collect())
    }

    fn inputs(list: &mut List<impl Read>) -> Vec<Vec<u8>> {
        list.map(|input| input.expect("an input").into_vec()).collect()
    }

    #[test]
    fn lines_keep_their_bytes_and_blank_ones_are_counted() {
        let mut list = List::new(&b"\na\r\n \n\n\xff\0\nlast"[..], false);
        assert_eq!(inputs(&mut list), [&b"a\r"[..], b" ", b"\xff\0", b"last"]);
        assert_eq!(list.notes(), Notes { blank: 2, ..Notes::default() });
    }

    #[test]
    fn names_end_at_nul() {
        let mut list = List::new(&b"a\nb\0\0c\r\0"[..], true);
        assert_eq!(inputs(&mut list), [&b"a\nb"[..], b"c\r"]);
        assert_eq!(list.notes(), Notes { blank: 1, ..Notes::default() });
    }

    #[test]
    fn an_empty_list_has_no_inputs() {
        for bytes in [&b""[..], b"\n", b"\n\n"] {
            let mut list = List::new(bytes, false);
            assert_eq!(inputs(&mut list), Vec::<Vec<u8>>::new());
            assert_eq!(list.notes().blank, bytes.len() as u64);
        }
    }

    #[test]
    fn only_a_list_of_nothing_but_cr_gets_the_hint() {
        for (bytes, hint) in [("a\r\nb\r\n", true), ("a\r\nb\n", false), ("", false), ("\n", false)]
        {
            let mut list = List::new(bytes.as_bytes(), false);
            inputs(&mut list);
            assert_eq!(list.notes().all_end_in_cr, hint, "{bytes:?}");
        }
    }

    #[test]
    fn an_input_is_given_out_before_the_next_is_read() {
        let mut list = List::new(pieces(&[b"a", b"b\nc", b"d\n"]), false);
        assert_eq!(list.next().expect("an input").expect("read"), "ab");
        assert_eq!(list.reader.get_ref().0.len(), 1, "the rest is not yet asked for");
        assert_eq!(inputs(&mut list), [b"cd"]);
    }

    #[test]
    fn a_line_too_long_is_reported_without_being_kept_and_the_next_is_read() {
        let long = vec![b'x'; INPUT_BYTES_MAX + 100_000];
        let mut bytes = long.clone();
        bytes.extend_from_slice(b"\nnext");
        let mut list = List::new(&bytes[..], false);
        match list.next() {
            Some(Err(InputError::TooLong { bytes, start, hash })) => {
                assert_eq!(bytes, long.len() as u64);
                assert_eq!(start.into_vec(), vec![b'x'; START_BYTES]);
                assert_eq!(hash, InputHash::of(OsStr::from_bytes(&long)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(inputs(&mut list), [b"next"]);

        let just = vec![b'x'; INPUT_BYTES_MAX];
        assert_eq!(inputs(&mut List::new(&just[..], false)), [just]);
    }

    #[test]
    fn a_list_that_breaks_off_says_so_once() {
        let mut source = pieces(&[b"a\nb"]);
        source.0.push_back(Err(io::ErrorKind::Interrupted.into()));
        source.0.push_back(Err(io::Error::other("gone")));
        let mut list = List::new(source, false);
        assert_eq!(list.next().expect("an input").expect("read"), "a");
        assert!(matches!(list.next(), Some(Err(InputError::List(_)))));
        assert!(list.next().is_none());
    }

    proptest! {
        #[test]
        fn reads_of_any_size_give_the_same_inputs(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..300),
            sizes in proptest::collection::vec(1usize..20, 1..10),
        ) {
            let mut source = VecDeque::new();
            let mut rest = &bytes[..];
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(rest.len().min(*size));
                source.push_back(Ok(piece.to_vec()));
                rest = after;
            }
            let mut list = List::new(Pieces(source), false);
            let expected: Vec<_> =
                bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(inputs(&mut list), expected);
        }
    }
}
