//! Output lines as chunks.
//!
//! A chunk keeps the bytes of its line, **its LF included**: the chunks of one stream, put one
//! after the other, are exactly what the command wrote. So a last line without LF gains none, and
//! a reader that wants bare lines strips one LF at most.

mod encode;
mod split;

pub use encode::ChunkError;
pub use split::{LineSplitter, OutputLine};

/// The most bytes an encoded chunk may have (256 KiB).
///
/// A line whose chunk would be larger is cut into parts, each marked [`LineChunk::partial`].
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// One of a command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Returns the stream's name in chunks: `stdout` or `stderr`.
    pub fn as_str(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// What one chunk of a run says: a line of output, or a part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChunk {
    /// Where the command wrote it.
    pub stream: Stream,
    /// The bytes as written. Ends with LF, except for a part that is not the line's last, and for
    /// a last line that the command did not end.
    pub bytes: Vec<u8>,
    /// Whether this is a part of a line too long for one chunk. All parts are marked, the last
    /// one too; the line ends with the part that ends with LF, or with the stream.
    pub partial: bool,
    /// Whether the command has cut this stream off, so that what it had written before and nobody
    /// had read is lost. Such a chunk holds no bytes; what follows is read from the beginning of
    /// what the command wrote next.
    pub truncated: bool,
}

impl LineChunk {
    /// Tells people what a [`truncated`](Self::truncated) chunk means.
    pub(crate) fn truncation(&self) -> String {
        let stream = self.stream.as_str();
        format!("the command has truncated its own {stream}; what was not read yet is lost")
    }
}
