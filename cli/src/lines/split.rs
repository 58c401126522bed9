//! Cuts a stream of bytes into chunks, the same ones at any read boundary.

use super::encode::{ENVELOPE_BYTES_MAX, base64_len, content_len, text_len};
use super::{CHUNK_BYTES_MAX, LineChunk, Stream};

const CONTENT_BYTES_MAX: usize = CHUNK_BYTES_MAX - ENVELOPE_BYTES_MAX;

/// A line, and how far its stream has been read once it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    /// The line, or the part of one.
    pub chunk: LineChunk,
    /// The offset in the stream after the chunk's last byte. Reading that begins here yields the
    /// rest exactly: commit it together with the chunk, and no line is lost or doubled.
    pub end: u64,
}

/// Cuts the bytes of one stream into lines.
///
/// What comes out depends on the bytes alone, never on how they were handed in, and a splitter
/// that begins at any [`OutputLine::end`] continues as this one would have.
///
/// Holds at most [`CHUNK_BYTES_MAX`] plus one [`push`](Self::push) in memory, as long as all
/// pieces are taken before the next push.
#[derive(Debug)]
pub struct LineSplitter {
    stream: Stream,
    buffer: Vec<u8>,
    /// How much of the buffer has been given out.
    taken: usize,
    /// How much of the buffer is known to hold no LF after `taken`.
    searched: usize,
    /// The offset in the stream of `buffer[taken]`.
    offset: u64,
    mid_line: bool,
}

impl LineSplitter {
    /// Begins at `offset`; `mid_line` says whether a part of a line ends there.
    pub fn new(stream: Stream, offset: u64, mid_line: bool) -> Self {
        LineSplitter { stream, buffer: Vec::new(), taken: 0, searched: 0, offset, mid_line }
    }

    /// Returns what the stream is after a truncation: a chunk that says so, and a splitter that
    /// begins anew.
    pub(crate) fn truncated(&self) -> (OutputLine, Self) {
        let stream = self.stream;
        let chunk = LineChunk { stream, bytes: Vec::new(), partial: false, truncated: true };
        (OutputLine { chunk, end: 0 }, Self::new(stream, 0, false))
    }

    /// Returns the stream whose bytes these are.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Returns the offset of the next byte to push.
    pub fn read_to(&self) -> u64 {
        self.offset + (self.buffer.len() - self.taken) as u64
    }

    /// Appends the bytes that follow in the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next line, or part of one; `None` if more bytes are needed.
    ///
    /// `at_end` says that no more bytes will come: what is left then is the last line.
    pub fn next_line(&mut self, at_end: bool) -> Option<OutputLine> {
        let rest = &self.buffer[self.taken..];
        let unsearched = self.searched.max(self.taken);
        let line_end = self.buffer[unsearched..].iter().position(|byte| *byte == b'\n');
        // A line of more bytes than a chunk can never be one chunk, so its end does not matter.
        let candidate = match line_end.map(|at| unsearched + at + 1 - self.taken) {
            Some(len) if len <= CHUNK_BYTES_MAX => Some(len),
            Some(_) => None,
            None if rest.len() >= CHUNK_BYTES_MAX => None,
            None if at_end && !rest.is_empty() => Some(rest.len()),
            None => {
                self.searched = self.buffer.len();
                return None;
            }
        };
        let (len, whole) = match candidate {
            Some(len) if content_len(&rest[..len]) <= CONTENT_BYTES_MAX => (len, true),
            _ => (part_len(rest), false),
        };
        let bytes = rest[..len].to_vec();
        let partial = self.mid_line || !whole;
        self.mid_line = !whole;
        self.taken += len;
        self.searched = self.searched.max(self.taken);
        self.offset += len as u64;
        Some(OutputLine {
            chunk: LineChunk { stream: self.stream, bytes, partial, truncated: false },
            end: self.offset,
        })
    }
}

/// How much of a line that is too long goes into its next part.
///
/// As much as fits both as text and as base64, so that the cut does not depend on which of the two
/// it will be; then back to the beginning of a character that the cut would go through.
fn part_len(line: &[u8]) -> usize {
    let mut as_text = 0;
    let mut len = 0;
    for byte in line {
        as_text += text_len(*byte);
        if as_text > CONTENT_BYTES_MAX || base64_len(len + 1) > CONTENT_BYTES_MAX {
            break;
        }
        len += 1;
    }
    match std::str::from_utf8(&line[..len]) {
        Err(cut) if cut.error_len().is_none() && cut.valid_up_to() > 0 => cut.valid_up_to(),
        _ => len,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn split(bytes: &[u8], reads: &[usize]) -> Vec<OutputLine> {
        let mut splitter = LineSplitter::new(Stream::Stdout, 0, false);
        let mut lines = Vec::new();
        let mut rest = bytes;
        let mut reads = reads.iter().cycle();
        while !rest.is_empty() {
            let (read, after) = rest.split_at(rest.len().min(*reads.next().unwrap_or(&65_536)));
            splitter.push(read);
            lines.extend(std::iter::from_fn(|| splitter.next_line(false)));
            rest = after;
        }
        lines.extend(std::iter::from_fn(|| splitter.next_line(true)));
        assert_eq!(splitter.read_to(), bytes.len() as u64);
        lines
    }

    fn check_lossless(bytes: &[u8], lines: &[OutputLine]) {
        let mut joined = Vec::new();
        for line in lines {
            joined.extend_from_slice(&line.chunk.bytes);
            assert_eq!(line.end, joined.len() as u64);
            assert!(line.chunk.encode().len() <= CHUNK_BYTES_MAX);
        }
        assert_eq!(joined, bytes);
    }

    #[test]
    fn lines_keep_their_bytes() {
        let lines = split(b"a\r\n\n\xff\nlast", &[3]);
        let seen: Vec<_> = lines.iter().map(|line| line.chunk.bytes.as_slice()).collect();
        assert_eq!(seen, [&b"a\r\n"[..], b"\n", b"\xff\n", b"last"]);
        assert!(lines.iter().all(|line| !line.chunk.partial));
    }

    #[test]
    fn a_long_line_comes_in_marked_parts_and_the_next_one_is_whole() {
        let mut bytes = vec![b'x'; 600 * 1024];
        bytes.extend_from_slice(b"\nshort\n");
        let lines = split(&bytes, &[65_536]);
        check_lossless(&bytes, &lines);
        let partial: Vec<_> = lines.iter().map(|line| line.chunk.partial).collect();
        assert_eq!(partial, [true, true, true, false]);
    }

    #[test]
    fn a_line_that_just_fits_is_one_chunk() {
        // The LF takes two bytes of JSON.
        for (len, chunks) in [(CONTENT_BYTES_MAX - 2, 1), (CONTENT_BYTES_MAX - 1, 2)] {
            let mut bytes = vec![b'x'; len];
            bytes.push(b'\n');
            let lines = split(&bytes, &[4096]);
            check_lossless(&bytes, &lines);
            assert_eq!(lines.len(), chunks, "a line of {len} bytes");
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let bytes = "é…𝄞".repeat(70_000).into_bytes();
        let lines = split(&bytes, &[10_007]);
        check_lossless(&bytes, &lines);
        assert!(lines.iter().all(|line| std::str::from_utf8(&line.chunk.bytes).is_ok()));
    }

    /// Bytes with lines of all kinds: short, binary, escaped, and too long for a chunk.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            8 => vec(any::<u8>(), 0..40),
            2 => (any::<u8>(), 100_000usize..400_000).prop_map(|(byte, len)| vec![byte; len]),
            1 => (40_000usize..90_000).prop_map(|len| "né\u{1}".repeat(len).into_bytes()),
        ];
        (vec(line, 0..6), any::<bool>()).prop_map(|(lines, ended)| {
            let mut bytes = lines.join(&b'\n');
            if ended {
                bytes.push(b'\n');
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn read_boundaries_change_nothing(bytes in output(), reads in vec(1usize..70_000, 1..8)) {
            let whole = split(&bytes, &[usize::MAX]);
            check_lossless(&bytes, &whole);
            prop_assert_eq!(split(&bytes, &reads), whole);
        }

        #[test]
        fn any_end_is_a_place_to_begin_again(bytes in output(), at: prop::sample::Index) {
            let whole = split(&bytes, &[usize::MAX]);
            prop_assume!(!whole.is_empty());
            let at = at.index(whole.len());
            let from = whole[at].end;
            let mid_line = !whole[at].chunk.bytes.ends_with(b"\n");
            let mut again = LineSplitter::new(Stream::Stdout, from, mid_line);
            again.push(&bytes[from as usize..]);
            let rest: Vec<_> = std::iter::from_fn(|| again.next_line(true)).collect();
            prop_assert_eq!(&rest[..], &whole[at + 1..]);
        }
    }
}
