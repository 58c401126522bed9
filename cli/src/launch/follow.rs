use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::directory::{STDERR, STDOUT};
use super::watch::Changes;
use super::{Error, LaunchDir, OutputWatcher, Status, boot_id};
use crate::lines::{LineSplitter, OutputLine, Stream};

/// The most bytes taken from a stream at once (64 KiB).
const READ_BYTES_MAX: u64 = 64 * 1024;

/// By how many bytes a file is recognised that was truncated and has grown again (32).
const SEEN_BYTES: usize = 32;

/// How far each stream of a launch has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Bytes of standard output.
    pub stdout: u64,
    /// Bytes of standard error.
    pub stderr: u64,
}

impl Offsets {
    /// Moves past a line that has been stored.
    pub fn advance(&mut self, line: &OutputLine) {
        match line.chunk.stream {
            Stream::Stdout => self.stdout = line.end,
            Stream::Stderr => self.stderr = line.end,
        }
    }
}

/// Reads a launch's output, line by line, while it is being written.
///
/// Ends once the launch has a [`Status`] and both streams are read to the lengths it names; or,
/// after [`stop_at_end`](Self::stop_at_end), where the files ended then. Order holds within a stream, not
/// between the two. The lines are those that [`LineSplitter`] makes: they depend on the bytes and
/// on where reading began, on nothing else.
///
/// A command that truncates its own output is read from the beginning of what it writes next, after
/// a chunk that [says so](crate::lines::LineChunk::truncated). It is noticed where something of the
/// stream had been read and is not in the file any more.
///
/// Holds at most about 320 KiB a stream in memory, and nothing is read ahead of the caller beyond
/// that.
#[derive(Debug)]
pub struct OutputFollower {
    dir: LaunchDir,
    changes: Changes,
    sources: [Source; 2],
    /// The source whose turn it is, so that a talkative stream does not starve the other.
    turn: usize,
    status: Option<Status>,
    stop_at_end: bool,
    /// Where the streams end, once that is known.
    ends: Option<[u64; 2]>,
    reading: Option<JoinHandle<Result<Batch, Error>>>,
}

#[derive(Debug)]
struct Source {
    /// None if there is no such file, so that nothing was ever written.
    file: Option<Arc<File>>,
    splitter: LineSplitter,
    at_end: bool,
    /// The last bytes that were read, at most [`SEEN_BYTES`]: they are still in their place unless
    /// the command has truncated the file.
    seen: Vec<u8>,
    /// What is given out before the splitter's next line.
    first: VecDeque<OutputLine>,
}

/// What one look at the folder has shown.
#[derive(Debug)]
struct Batch {
    status: Option<Status>,
    ends: Option<[u64; 2]>,
    reads: [StreamRead; 2],
}

#[derive(Debug)]
enum StreamRead {
    Bytes(Vec<u8>),
    Truncated,
}

impl OutputFollower {
    /// Begins to follow a launch from the given offsets, each 0 or the [end](OutputLine::end) of a
    /// line read before. Blocks on opening two files.
    ///
    /// A launch has its output files from before it is claimed. One that has none never wrote
    /// anything; its output is empty.
    ///
    /// # Errors
    ///
    /// The output files cannot be opened.
    pub fn open(dir: &LaunchDir, from: Offsets, watcher: &OutputWatcher) -> Result<Self, Error> {
        let sources = [
            Source::open(dir, Stream::Stdout, from.stdout)?,
            Source::open(dir, Stream::Stderr, from.stderr)?,
        ];
        Ok(OutputFollower {
            dir: dir.clone(),
            changes: watcher.watch(dir.path()),
            sources,
            turn: 0,
            status: None,
            stop_at_end: false,
            ends: None,
            reading: None,
        })
    }

    /// Ends the output where the files end at the next look: for a launch that has vanished, whose
    /// status will never come. What is written after that look is not waited for, so that a process
    /// that has left the command's group cannot keep the output from ending.
    pub fn stop_at_end(&mut self) {
        self.stop_at_end = true;
    }

    /// Returns the launch's status, once it has been seen: at the latest when the output has ended
    /// by it.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Returns the next line, waiting until the command writes one; `None` at the end of both
    /// streams, and ever after.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the status is corrupt. Lines given out before are good, and
    /// following can begin again after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no line.
    pub async fn next(&mut self) -> Result<Option<OutputLine>, Error> {
        loop {
            if let Some(line) = self.ready() {
                return Ok(Some(line));
            }
            if self.sources.iter().all(|source| source.at_end) {
                return Ok(None);
            }
            let reading = match &mut self.reading {
                Some(reading) => reading,
                None => {
                    self.changes.forget();
                    let look = self.look();
                    self.reading.insert(tokio::task::spawn_blocking(look))
                }
            };
            let batch = match reading.await {
                Ok(batch) => batch,
                Err(error) => Err(Error::io("follow", self.dir.path(), error)),
            };
            self.reading = None;
            if !self.take(batch?) {
                self.changes.wait().await;
            }
        }
    }

    /// Returns a line that has been read already, without waiting: for a caller that stores
    /// several at once.
    pub fn ready(&mut self) -> Option<OutputLine> {
        for _ in 0..2 {
            let source = &mut self.sources[self.turn];
            self.turn = 1 - self.turn;
            if let Some(line) = source.first.pop_front() {
                return Some(line);
            }
            if let Some(line) = source.splitter.next_line(source.at_end) {
                return Some(line);
            }
        }
        None
    }

    /// What to do for the next look, on a thread that may block.
    fn look(&self) -> impl FnOnce() -> Result<Batch, Error> + Send + use<> {
        let dir = self.dir.clone();
        let known = self.status.clone();
        let (stop_at_end, ends) = (self.stop_at_end, self.ends);
        let from = [0, 1].map(|at: usize| {
            let source = &self.sources[at];
            (source.file.clone(), source.splitter.read_to(), source.seen.clone())
        });
        move || {
            // The status first: a stream that is short of the length it names is short for good.
            let status = match known {
                Some(status) => Some(status),
                None => dir.status()?,
            };
            let len = |at: usize| match &from[at].0 {
                Some(file) => file.metadata().map(|metadata| metadata.len()),
                None => Ok(0),
            };
            let failed = |error| Error::io("read the output in", dir.path(), error);
            // Taken once: files may grow for ever.
            let ends = match (ends, &status) {
                (Some(ends), _) => Some(ends),
                (None, Some(status)) => Some([status.stdout_bytes, status.stderr_bytes]),
                (None, None) if stop_at_end => {
                    Some([len(0).map_err(failed)?, len(1).map_err(failed)?])
                }
                (None, None) => None,
            };
            let limits = ends.unwrap_or([u64::MAX; 2]);
            let read = |at: usize| {
                let (Some(file), offset, seen) = &from[at] else {
                    return Ok(StreamRead::Bytes(Vec::new()));
                };
                read_from(&dir, file, *offset, seen, limits[at]).map_err(failed)
            };
            let reads = [read(0)?, read(1)?];
            Ok(Batch { status, ends, reads })
        }
    }

    /// Takes in what a look has shown; returns whether looking again at once may show more.
    fn take(&mut self, batch: Batch) -> bool {
        let is_last = batch.ends.is_some();
        let was_last = self.ends.is_some();
        let mut progress = is_last;
        self.status = batch.status;
        self.ends = batch.ends;
        for (source, read) in self.sources.iter_mut().zip(batch.reads) {
            if source.at_end {
                continue;
            }
            match read {
                StreamRead::Bytes(bytes) => {
                    progress |= !bytes.is_empty();
                    source.at_end = bytes.is_empty() && is_last;
                    source.splitter.push(&bytes);
                    source.see(&bytes);
                }
                StreamRead::Truncated => {
                    progress = true;
                    // A line that will not be ended any more.
                    while let Some(rest) = source.splitter.next_line(true) {
                        source.first.push_back(rest);
                    }
                    let (cut, splitter) = source.splitter.truncated();
                    source.first.push_back(cut);
                    source.splitter = splitter;
                    source.seen.clear();
                    // By somebody who has left the launch, and may do it for ever.
                    source.at_end = was_last;
                }
            }
        }
        progress
    }
}

impl Source {
    fn open(dir: &LaunchDir, stream: Stream, offset: u64) -> Result<Self, Error> {
        let path = dir.file(match stream {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
        });
        let failed = |error| Error::io("open", &path, error);
        let file = match File::open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let seen = match &file {
            Some(file) => read_before(file, offset, SEEN_BYTES).map_err(failed)?,
            None => Vec::new(),
        };
        let mid_line = seen.last().is_some_and(|last| *last != b'\n');
        let splitter = LineSplitter::new(stream, offset, mid_line);
        let (file, first) = (file.map(Arc::new), VecDeque::new());
        Ok(Source { file, splitter, at_end: false, seen, first })
    }

    fn see(&mut self, bytes: &[u8]) {
        self.seen.extend_from_slice(&bytes[bytes.len().saturating_sub(SEEN_BYTES)..]);
        self.seen.drain(..self.seen.len().saturating_sub(SEEN_BYTES));
    }
}

/// The bytes before `offset`, at most `wanted`; nothing where the file does not go so far.
fn read_before(file: &File, offset: u64, wanted: usize) -> io::Result<Vec<u8>> {
    let from = offset.saturating_sub(wanted as u64);
    let mut bytes = vec![0; (offset - from) as usize];
    match file.read_exact_at(&mut bytes, from) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read_from(
    dir: &LaunchDir,
    file: &File,
    offset: u64,
    seen: &[u8],
    limit: u64,
) -> io::Result<StreamRead> {
    let len = file.metadata()?.len();
    let is_cut = len < offset || read_before(file, offset, seen.len())? != seen;
    // After another boot a short file is one whose end was never synced: nothing to read again.
    if is_cut && boot_id().is_ok_and(|boot| boot == dir.boot_id()) {
        return Ok(StreamRead::Truncated);
    }
    let wanted = limit.min(len).saturating_sub(offset).min(READ_BYTES_MAX);
    let mut bytes = vec![0; wanted as usize];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(StreamRead::Bytes(bytes))
}
