//! Looks for damage in sled's log before sled does.
//!
//! When sled opens, it replays its log from the segment that the newest snapshot names. The first
//! message that it cannot read is the torn end of the log to it, or of one segment of it: it goes on
//! without what lies behind, and may overwrite that. So these segments are read before.
//!
//! Crashes leave much that cannot be read: torn ends, segments that were being used again, or being
//! zeroed because nothing in them was needed any more. So a message that cannot be read is damage
//! only if both of this holds:
//!
//! - An acknowledged commit lies behind it, so that it was written whole once.
//! - Its segment is in use: it holds content of a page that is not written whole, nor freed, later
//!   in the log. sled does not touch such a segment before what replaces its content is settled: two
//!   segments were begun since, and what they say of the log's stable part is in their headers.
//!
//! After a power cut that interrupted an open, zeros in segments that it found free may be on the disk
//! while the new snapshot is not, so then whatever is replaced at all is not in use.
//!
//! Everything else is left to the count that is read after the open, by when sled has made it the end of
//! the log: damage of the last commits themselves, or of what is replaced since. A segment that was in
//! use and begins with two pages of zeros looks like a free one. What an earlier open replayed needs no
//! look: sled finds it by a table with checksums, and reading it checks it.
//!
//! Every commit puts [`super::open::COUNT_KEY`], which is how it is recognised in the log.

mod message;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use self::message::{Header, MESSAGE_HEADER_BYTES_MAX, Message, SEGMENT, SEGMENT_HEADER_BYTES};
use super::open::SEGMENT_BYTES;

/// No message begins in so many zeros, but perhaps in the last few of them.
const ZEROS: [u8; 4096] = [0; 4096];

/// An acknowledged commit of this number lies behind a place of the file that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) at: u64,
    pub(super) commit: u64,
}

/// Reads what sled will replay of a log in which so many commits are acknowledged; `same_boot` if the
/// machine has not started again since the last one.
pub(super) fn check(
    store: &Path,
    acknowledged: u64,
    same_boot: bool,
) -> io::Result<Option<Damage>> {
    let file = File::open(store.join("db"))?;
    let Some(first) = first_replayed(store)? else { return Ok(None) };
    let mut segments = Vec::new();
    for at in (0..file.metadata()?.len()).step_by(SEGMENT_BYTES) {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        read(&file, &mut bytes, at)?;
        let header = Header::read(&bytes);
        let needs_no_look = match header {
            Some(Header { number, .. }) => number < first,
            None => is_free(&file, &bytes, at)?,
        };
        if !needs_no_look {
            segments.push((at, header));
        }
    }
    let headers = segments.iter().filter_map(|(_, header)| *header);
    let settled = headers.map(|header| header.stable / SEGMENT).max().unwrap_or(0);
    let settled = if same_boot { settled } else { u64::MAX };
    let mut log = Log { acknowledged, settled, ..Log::default() };
    for (at, header) in segments {
        let segment = read_segment(&file, at)?;
        if let Some(Header { number, .. }) = header {
            let (found, unreadable) = walk(&segment, number);
            log.add(found, unreadable.map(|within| (at + within as u64, number)));
        } else {
            let found = search(&segment, first..=u64::MAX);
            let number = found.iter().map(|found| found.place / SEGMENT).max();
            log.add(found, number.map(|number| (at, number)));
        }
    }
    Ok(log.damage())
}

/// The number of the first segment that sled will replay, of which snapshots have their names. None
/// if nobody knows.
pub(super) fn first_replayed(store: &Path) -> io::Result<Option<u64>> {
    // sled checks the content of a snapshot before it uses it.
    let Some(newest) = newest_snapshot(store)? else { return Ok(Some(0)) };
    let place = newest.extension().and_then(|place| u64::from_str_radix(place.to_str()?, 16).ok());
    Ok(place.map(|place| place / SEGMENT))
}

/// The snapshot that sled will use.
pub(super) fn newest_snapshot(store: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in std::fs::read_dir(store)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("snap.") {
            newest = newest.max(Some(entry.path()));
        }
    }
    Ok(newest)
}

/// Whether sled has zeroed the segment, or none was there. What is left of a segment behind two
/// pages of zeros is not looked for, so that free segments cost nothing.
fn is_free(file: &File, header: &[u8; SEGMENT_HEADER_BYTES], at: u64) -> io::Result<bool> {
    let mut page = ZEROS;
    if *header == [0; SEGMENT_HEADER_BYTES] {
        read(file, &mut page, at + ZEROS.len() as u64)?;
    }
    Ok(*header == [0; SEGMENT_HEADER_BYTES] && page == ZEROS)
}

fn read_segment(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut segment = vec![0; SEGMENT_BYTES];
    let filled = read(file, &mut segment, at)?;
    segment.truncate(filled);
    Ok(segment)
}

/// Reads what there is before the end of the file.
fn read(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A message, by its place in the log.
#[derive(Debug)]
struct Found {
    place: u64,
    page: u64,
    is_content: bool,
    is_replacing: bool,
    commit: Option<u64>,
}

impl Found {
    fn new(message: &Message<'_>, at: usize) -> Self {
        Self {
            place: message.segment * SEGMENT + at as u64,
            page: message.page,
            is_content: message.is_content(),
            is_replacing: message.is_replacing(),
            commit: message.commit(),
        }
    }
}

/// Reads message after message; also where the first one is that cannot be read.
fn walk(segment: &[u8], number: u64) -> (Vec<Found>, Option<usize>) {
    let (mut found, mut at) = (Vec::new(), SEGMENT_HEADER_BYTES);
    let numbers = number..=number;
    while at + MESSAGE_HEADER_BYTES_MAX <= SEGMENT_BYTES {
        let Some(message) = Message::read(segment, at, &numbers) else {
            // Between two sound messages it is what its header says.
            let claim = Message::unchecked(segment, at, &numbers)
                .filter(|claim| Message::read(segment, claim.end, &numbers).is_some())
                .map(|claim| Found { is_replacing: false, commit: None, ..Found::new(&claim, at) });
            found.extend(claim);
            search_from(segment, at, &numbers, &mut found);
            return (found, Some(at));
        };
        if message.is_cap() {
            break;
        }
        found.push(Found::new(&message, at));
        at = message.end;
    }
    (found, None)
}

/// Finds the sound messages of a segment without a header.
fn search(segment: &[u8], numbers: RangeInclusive<u64>) -> Vec<Found> {
    let mut found = Vec::new();
    search_from(segment, SEGMENT_HEADER_BYTES, &numbers, &mut found);
    found
}

/// Finds the sound messages behind one that cannot be read, whose own length means nothing.
fn search_from(segment: &[u8], from: usize, numbers: &RangeInclusive<u64>, found: &mut Vec<Found>) {
    let mut at = from;
    while at < segment.len() {
        // What was never written, or was cut off by an earlier start, is mostly all there is.
        if segment[at..].starts_with(&ZEROS) {
            at += ZEROS.len() - MESSAGE_HEADER_BYTES_MAX;
            continue;
        }
        match Message::read(segment, at, numbers) {
            Some(message) => {
                found.push(Found::new(&message, at));
                at = message.end;
            }
            None => at += 1,
        }
    }
}

/// What is known of the part of the log that sled will replay.
#[derive(Debug, Default)]
struct Log {
    acknowledged: u64,
    /// Before this segment, what replaces the content of another one lets that be used again.
    settled: u64,
    /// Where each page was last written whole, or freed, before that.
    replaced: HashMap<u64, u64>,
    /// The first acknowledged commit of each segment.
    commits: BTreeMap<u64, u64>,
    suspects: Vec<Suspect>,
}

/// A segment that cannot be read to its end.
#[derive(Debug)]
struct Suspect {
    at: u64,
    number: u64,
    /// The places of its content, by page.
    content: Vec<(u64, u64)>,
    /// The first acknowledged commit of this segment that lies behind.
    commit: Option<u64>,
}

impl Log {
    /// Adds a segment, with the place in the file that cannot be read, and the segment's number.
    fn add(&mut self, found: Vec<Found>, unreadable: Option<(u64, u64)>) {
        let acknowledged = |commit: &u64| *commit <= self.acknowledged;
        for found in &found {
            if found.is_replacing && found.place / SEGMENT < self.settled {
                let last = self.replaced.entry(found.page).or_default();
                *last = found.place.max(*last);
            }
            if let Some(commit) = found.commit.filter(acknowledged) {
                let first = self.commits.entry(found.place / SEGMENT).or_insert(commit);
                *first = commit.min(*first);
            }
        }
        let Some((at, number)) = unreadable else { return };
        let place = number * SEGMENT + at % SEGMENT;
        let behind = found.iter().filter(|found| found.place > place);
        let commit = behind.filter_map(|found| found.commit.filter(acknowledged)).min();
        let content = found.iter().filter(|found| found.is_content);
        let content = content.map(|found| (found.page, found.place)).collect();
        self.suspects.push(Suspect { at, number, content, commit });
    }

    fn damage(self) -> Option<Damage> {
        let is_in_use = |(page, place): &(u64, u64)| {
            self.replaced.get(page).is_none_or(|replaced| replaced <= place)
        };
        let mut damage = Vec::new();
        for suspect in &self.suspects {
            let mut later = self.commits.range(suspect.number + 1..).map(|(_, commit)| *commit);
            if let Some(commit) = suspect.commit.or_else(|| later.next())
                && suspect.content.iter().any(is_in_use)
            {
                damage.push(Damage { at: suspect.at, commit });
            }
        }
        damage.into_iter().min_by_key(|damage| damage.commit)
    }
}
