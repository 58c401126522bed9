//! How sled 0.34 writes its log.

use std::ops::RangeInclusive;

use super::super::open::{COUNT_KEY, SEGMENT_BYTES};

/// The header of a segment: checksum, its place in the log, and how much of the log was stable.
pub(super) const SEGMENT_HEADER_BYTES: usize = 20;
/// What is left of a segment below this size stays unused.
pub(super) const MESSAGE_HEADER_BYTES_MAX: usize = 32;
pub(super) const SEGMENT: u64 = SEGMENT_BYTES as u64;

/// Kinds of messages.
const CAP: u8 = 2;
const LINK: u8 = 10;
const KINDS: RangeInclusive<u8> = 1..=11;
/// What stands for all that was written of its page before: the page is free, or written whole.
const REPLACING: RangeInclusive<u8> = 4..=9;
/// The content of a page, or a change of it.
const CONTENT: RangeInclusive<u8> = 8..=11;

/// The header of a segment, if it is sound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    /// Which segment of the log it is, in the order written.
    pub(super) number: u64,
    /// Up to where the log was stable when the segment was begun.
    pub(super) stable: u64,
}

impl Header {
    pub(super) fn read(header: &[u8; SEGMENT_HEADER_BYTES]) -> Option<Self> {
        let (checksum, body) = header.split_first_chunk()?;
        let (place, stable) = body.split_first_chunk()?;
        let place = i64::from_le_bytes(*place) ^ i64::MAX;
        let stable = i64::from_le_bytes(stable.try_into().ok()?) ^ i64::MAX;
        let sound = crc32fast::hash(body) ^ u32::MAX == u32::from_le_bytes(*checksum);
        let place = u64::try_from(place).ok().filter(|_| sound)?;
        // -1 is none.
        let stable = u64::try_from(stable).unwrap_or(0);
        place.is_multiple_of(SEGMENT).then_some(Self { number: place / SEGMENT, stable })
    }
}

/// One message of the log.
#[derive(Debug)]
pub(super) struct Message<'a> {
    kind: u8,
    pub(super) segment: u64,
    pub(super) page: u64,
    body: &'a [u8],
    pub(super) end: usize,
}

impl<'a> Message<'a> {
    /// Reads the message at a place of a segment, if there is a sound one with one of these
    /// numbers.
    pub(super) fn read(bytes: &'a [u8], at: usize, numbers: &RangeInclusive<u64>) -> Option<Self> {
        let found = Self::unchecked(bytes, at, numbers)?;
        let (checksum, header) = bytes[at..found.end - found.body.len()].split_first_chunk()?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(found.body);
        hasher.update(header);
        (hasher.finalize() ^ u32::MAX == u32::from_le_bytes(*checksum)).then_some(found)
    }

    /// What the header at a place says, whether or not the checksum holds.
    pub(super) fn unchecked(
        bytes: &'a [u8],
        at: usize,
        numbers: &RangeInclusive<u64>,
    ) -> Option<Self> {
        let message = bytes.get(at..)?;
        let (_checksum, rest) = message.split_first_chunk::<{ size_of::<u32>() }>()?;
        let (kind, mut rest) = rest.split_first()?;
        if !KINDS.contains(kind) {
            return None;
        }
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let segment = varint(&mut rest)?;
        let page = varint(&mut rest)?;
        if !numbers.contains(&segment) {
            return None;
        }
        let body = rest.get(..length)?;
        let end = at + message.len() - rest.len() + length;
        Some(Self { kind: *kind, segment, page, body, end })
    }

    /// Whether the rest of the segment is unused.
    pub(super) fn is_cap(&self) -> bool {
        self.kind == CAP
    }

    pub(super) fn is_replacing(&self) -> bool {
        REPLACING.contains(&self.kind)
    }

    pub(super) fn is_content(&self) -> bool {
        CONTENT.contains(&self.kind)
    }

    /// The number of the commit, if it is the message that counts it.
    pub(super) fn commit(&self) -> Option<u64> {
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
