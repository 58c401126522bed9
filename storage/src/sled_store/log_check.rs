//! Looks for damage in sled's log before sled does.
//!
//! When sled opens, it takes the first message that it cannot read for the torn end of the log, or
//! of one segment of it, goes on without what lies behind, and overwrites that. So the part of the
//! log that it will replay is walked before: if an acknowledged commit lies behind a message that
//! cannot be read, the store is damaged, and sled never gets to see it.
//!
//! Damage in the message of the last commits themselves is left to the count that is read after the
//! open: of those sled makes the end of the log.
//!
//! Every commit puts [`COUNT_KEY`], which is how it is recognised in the log. What was replayed by
//! an earlier open needs no look: sled finds it by a table with checksums, and reading it checks
//! it.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::open::{COUNT_KEY, SEGMENT_BYTES};

/// The header of a segment: checksum, its place in the log, and how much of the log was stable.
const SEGMENT_HEADER_BYTES: usize = 20;
/// What is left of a segment below this size stays unused.
const MESSAGE_HEADER_BYTES_MAX: usize = 32;
const SEGMENT: u64 = SEGMENT_BYTES as u64;

/// No message begins in so many zeros, but perhaps in the last few of them.
const ZEROS: [u8; 4096] = [0; 4096];

/// Kinds of messages.
const CAP: u8 = 2;
const LINK: u8 = 10;
const KINDS: RangeInclusive<u8> = 1..=11;

/// Why the log must not be opened.
#[derive(Debug)]
pub(super) enum Damage {
    /// The header of a segment is not what was written.
    Segment { at: u64 },
    /// An acknowledged commit of this number lies behind a message that cannot be read.
    Before { at: u64, commit: u64 },
}

/// Walks what sled will replay of a log in which so many commits are acknowledged.
pub(super) fn check(store: &Path, acknowledged: u64) -> io::Result<Option<Damage>> {
    let file = File::open(store.join("db"))?;
    let from = replayed_from(store)? / SEGMENT;
    let mut segments = Vec::new();
    let mut headless = Vec::new();
    for at in (0..file.metadata()?.len()).step_by(SEGMENT_BYTES) {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        match file.read_exact_at(&mut header, at) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error),
        }
        match segment_number(&header) {
            _ if header == [0; SEGMENT_HEADER_BYTES] => headless.push(at),
            Some(number) if number >= from => segments.push((number, at)),
            Some(_) => {}
            None => return Ok(Some(Damage::Segment { at })),
        }
    }
    segments.sort_unstable();
    let newest = segments.last().map_or(from, |(number, _)| *number);
    // Buffers are written side by side, so that a crash can leave a few segments without headers.
    let numbers = from..=newest + 8;
    let acknowledged = |found: &Found| found.commit.filter(|commit| *commit <= acknowledged);

    for at in headless {
        let segment = read_segment(&file, at)?;
        let found = search(&segment, SEGMENT_HEADER_BYTES, &numbers);
        if let Some(commit) = found.iter().find_map(acknowledged) {
            return Ok(Some(Damage::Before { at, commit }));
        }
    }
    let mut unreadable = None;
    for (number, at) in segments {
        let segment = read_segment(&file, at)?;
        let mut from = SEGMENT_HEADER_BYTES;
        if unreadable.is_none() {
            from = match walk(&segment, number) {
                Ok(()) => continue,
                Err(torn) => torn,
            };
        }
        let found = search(&segment, from, &(number..=*numbers.end()));
        // A segment that is used again may be overwritten from its middle: then nothing of what
        // it held is needed any more, and sled goes on with the next one.
        let is_reused = unreadable.is_none() && found.iter().any(|found| found.segment > number);
        if !is_reused {
            unreadable.get_or_insert(at + from as u64);
        }
        let behind = found.iter().filter(|found| !is_reused || found.segment > number);
        if let Some(commit) = behind.filter_map(acknowledged).min() {
            return Ok(Some(Damage::Before { at: unreadable.unwrap_or(at), commit }));
        }
    }
    Ok(None)
}

/// The place in the log up to which the newest snapshot knows it.
fn replayed_from(store: &Path) -> io::Result<u64> {
    let mut snapshots = Vec::new();
    for entry in std::fs::read_dir(store)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("snap.") {
            snapshots.push(entry.path());
        }
    }
    snapshots.sort();
    let Some(newest) = snapshots.pop() else { return Ok(0) };
    let bytes = std::fs::read(newest)?;
    // 0 is none. A snapshot that is damaged is sled's to find.
    Ok(varint(&mut &bytes[..]).unwrap_or(0).saturating_sub(1))
}

/// Which segment of the log it is, in the order written, if the header is sound.
fn segment_number(header: &[u8; SEGMENT_HEADER_BYTES]) -> Option<u64> {
    let (checksum, body) = header.split_first_chunk()?;
    let place = u64::from_le_bytes(*body.first_chunk()?) ^ (u64::MAX >> 1);
    let sound = crc32fast::hash(body) ^ u32::MAX == u32::from_le_bytes(*checksum);
    (sound && place.is_multiple_of(SEGMENT)).then_some(place / SEGMENT)
}

fn read_segment(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut segment = vec![0; SEGMENT_BYTES];
    let mut filled = 0;
    while filled < segment.len() {
        match file.read_at(&mut segment[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    segment.truncate(filled);
    Ok(segment)
}

/// Reads message after message; where the first one is that cannot be read.
fn walk(segment: &[u8], number: u64) -> Result<(), usize> {
    let mut at = SEGMENT_HEADER_BYTES;
    while at + MESSAGE_HEADER_BYTES_MAX <= SEGMENT_BYTES {
        match Message::read(segment, at, &(number..=number)) {
            Some(Message { kind: CAP, .. }) => return Ok(()),
            Some(message) => at = message.end,
            None => return Err(at),
        }
    }
    Ok(())
}

/// A sound message where the walk does not get.
struct Found {
    segment: u64,
    commit: Option<u64>,
}

/// Finds the sound messages behind one that cannot be read, whose own length means nothing.
fn search(segment: &[u8], from: usize, numbers: &RangeInclusive<u64>) -> Vec<Found> {
    let (mut found, mut at) = (Vec::new(), from);
    while at < segment.len() {
        // What was never written, or was cut off by an earlier start, is mostly all there is.
        if segment[at..].starts_with(&ZEROS) {
            at += ZEROS.len() - MESSAGE_HEADER_BYTES_MAX;
            continue;
        }
        match Message::read(segment, at, numbers) {
            Some(message) => {
                found.push(Found { segment: message.segment, commit: message.commit() });
                at = message.end;
            }
            None => at += 1,
        }
    }
    found
}

/// One message of the log.
struct Message<'a> {
    kind: u8,
    segment: u64,
    body: &'a [u8],
    end: usize,
}

impl<'a> Message<'a> {
    /// Reads the message at a place, if there is a sound one of one of these segments.
    fn read(bytes: &'a [u8], at: usize, segments: &RangeInclusive<u64>) -> Option<Self> {
        let message = bytes.get(at..)?;
        let (checksum, rest) = message.split_first_chunk()?;
        let (kind, mut rest) = rest.split_first()?;
        if !KINDS.contains(kind) {
            return None;
        }
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let segment = varint(&mut rest)?;
        let _page = varint(&mut rest)?;
        if !segments.contains(&segment) {
            return None;
        }
        let body = rest.get(..length)?;
        let header = message.len() - rest.len();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(body);
        hasher.update(&message[size_of::<u32>()..header]);
        let sound = hasher.finalize() ^ u32::MAX == u32::from_le_bytes(*checksum);
        sound.then_some(Self { kind: *kind, segment, body, end: at + header + length })
    }

    /// The number of the commit, if it is the message that counts it.
    fn commit(&self) -> Option<u64> {
        // Later copies of the page may be written while another commit is under way.
        if self.kind != LINK {
            return None;
        }
        let key_bytes = u8::try_from(COUNT_KEY.len()).ok()?;
        let rest = self.body.strip_prefix(&[0, key_bytes])?.strip_prefix(COUNT_KEY)?;
        let number = rest.strip_prefix(&[size_of::<u64>() as u8])?;
        Some(u64::from_be_bytes(number.try_into().ok()?))
    }
}

/// A number as sled writes it.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first()?;
    let (number, length) = match first {
        0..=240 => (u64::from(*first), 0),
        241..=248 => (240 + 256 * u64::from(first - 241) + u64::from(*rest.first()?), 1),
        249 => (2288 + 256 * u64::from(*rest.first()?) + u64::from(*rest.get(1)?), 2),
        250.. => {
            let length = usize::from(first - 247);
            let mut number = [0; 8];
            number[..length].copy_from_slice(rest.get(..length)?);
            (u64::from_le_bytes(number), length)
        }
    };
    *bytes = &rest[length..];
    Some(number)
}
