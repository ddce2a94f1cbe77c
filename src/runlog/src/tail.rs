//! Reads `events.jsonl` by byte offset, live or later: bounded reads, a torn last line waits, a corrupt one is reported.
//!
//! Knows bytes and lines, not what the events mean. Offsets are always at the start of a line, so a reader can stop
//! anywhere and go on there, in this process or another.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::event::{Event, EventKind};
use crate::number::{self, Values};

/// How much one [`Tail::read`] may take, so that a huge run never holds its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub events: usize,
    /// Bytes read from the file; a single longer line is still read whole.
    pub bytes: usize,
}

impl Limits {
    /// For opening a run: about a tenth of a second.
    pub const OPENING: Self = Self {
        events: 20_000,
        bytes: 8 << 20,
    };
    /// For following one between two frames.
    pub const LIVE: Self = Self {
        events: 2_000,
        bytes: 1 << 20,
    };
}

/// A line that is no event of any version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Counts from 1 at the start of the file, or of where this reader began.
    pub line: u64,
    /// Byte offset of the line's start.
    pub offset: u64,
    pub reason: String,
}

/// What one read gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    pub events: Vec<Event>,
    /// In file order; the reader went on after each.
    pub bad_lines: Vec<BadLine>,
    /// The limits ended this read: there may be more right now.
    pub has_more: bool,
    /// The file became shorter than what was read already. Reading starts again at 0: fold from an empty state.
    pub restarted: bool,
}

/// A place in an event log.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// Start of the first line not yet given out.
    offset: u64,
    lines: u64,
    bad_lines: u64,
    poll_every: Duration,
}

impl Tail {
    /// Reads `path` from its start. The file need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::from_offset(path, 0)
    }

    /// Goes on at an offset that an earlier reader gave.
    pub fn from_offset(path: impl Into<PathBuf>, offset: u64) -> Self {
        Self {
            path: path.into(),
            file: None,
            offset,
            lines: 0,
            bad_lines: 0,
            poll_every: Duration::from_millis(50),
        }
    }

    /// Where the next read starts: always the start of a line.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Lines that were no events, so far.
    pub fn bad_lines(&self) -> u64 {
        self.bad_lines
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives what is there, up to the limits. Empty when there is nothing new, or no file yet.
    pub fn read(&mut self, limits: Limits) -> io::Result<Batch> {
        let mut batch = Batch::default();
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(batch),
                Err(error) => return Err(error),
            };
        }
        let Some(file) = &self.file else {
            return Ok(batch);
        };
        let size = file.metadata()?.len();
        if size < self.offset {
            self.offset = 0;
            self.lines = 0;
            self.bad_lines = 0;
            batch.restarted = true;
        }
        let mut bytes = Vec::new();
        let mut want = usize::try_from(size - self.offset)
            .unwrap_or(usize::MAX)
            .min(limits.bytes.max(1));
        // A line longer than the limit is read whole: else the reader would never get past it.
        loop {
            let start = bytes.len();
            bytes.resize(want, 0);
            let got = read_at(file, &mut bytes[start..], self.offset + start as u64)?;
            bytes.truncate(start + got);
            let at_end = start + got < want || self.offset + bytes.len() as u64 >= size;
            if at_end || memchr::memchr(b'\n', &bytes[start..]).is_some() {
                break;
            }
            want = bytes.len() * 2;
        }
        let mut used = 0;
        let mut taken = 0;
        while let Some(length) = memchr::memchr(b'\n', &bytes[used..]) {
            if taken >= limits.events.max(1) {
                break;
            }
            taken += 1;
            let line = &bytes[used..used + length];
            self.lines += 1;
            match parse(line) {
                Ok(Some(event)) => batch.events.push(event),
                Ok(None) => {}
                Err(reason) => {
                    self.bad_lines += 1;
                    batch.bad_lines.push(BadLine {
                        line: self.lines,
                        offset: self.offset + used as u64,
                        reason,
                    });
                }
            }
            used += length + 1;
        }
        batch.has_more = memchr::memchr(b'\n', &bytes[used..]).is_some()
            || (used > 0 && self.offset + (bytes.len() as u64) < size);
        self.offset += used as u64;
        Ok(batch)
    }

    /// Waits until there is something to read, up to `timeout`; an empty batch when there was nothing.
    ///
    /// Looks at the file's size every 50 ms: costs one `fstat` each, works on every file system.
    pub fn wait(&mut self, limits: Limits, timeout: Duration) -> io::Result<Batch> {
        let end = Instant::now() + timeout;
        loop {
            let batch = self.read(limits)?;
            let now = Instant::now();
            if batch != Batch::default() || now >= end {
                return Ok(batch);
            }
            std::thread::sleep(self.poll_every.min(end - now));
        }
    }
}

/// Every event of a finished log, and its bad lines. For logs that fit in memory; a live view uses [`Tail::read`].
pub fn read_all(path: &Path) -> io::Result<(Vec<Event>, Vec<BadLine>)> {
    // Here a missing file is an error: the caller says that there is one.
    File::open(path)?;
    let mut tail = Tail::new(path);
    let mut events = Vec::new();
    let mut bad_lines = Vec::new();
    loop {
        let batch = tail.read(Limits::OPENING)?;
        events.extend(batch.events);
        bad_lines.extend(batch.bad_lines);
        if !batch.has_more {
            return Ok((events, bad_lines));
        }
    }
}

/// None: an empty line. Err: why the line is no event.
fn parse(line: &[u8]) -> Result<Option<Event>, String> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    if let Some(event) = step_ended(line) {
        return Ok(Some(event));
    }
    serde_json::from_slice(line)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// Bytes of a line, as the recorder writes it, within which the event's name lies.
const NAME_WITHIN: usize = 96;

/// The event named in a line, by a look at its first bytes: `step_ended`. None where the line is not as the recorder
/// writes it, which says nothing of the line.
pub(crate) fn event_name(line: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b"\"event\":\"";
    // seq and elapsed_ms come before, two numbers and their names.
    let head = &line[..line.len().min(NAME_WITHIN)];
    let start = memchr::memmem::find(head, MARK)? + MARK.len();
    let rest = &line[start..line.len().min(start + 32)];
    Some(&rest[..memchr::memchr(b'"', rest)?])
}

/// A `step_ended` line, in a third of the time: most of a log's bytes are such lines, and a type whose fields are known
/// before is read without keeping them all first. None: the line is another event, or not quite as the recorder writes it.
fn step_ended(line: &[u8]) -> Option<Event> {
    #[derive(Deserialize)]
    struct StepEnded {
        seq: u64,
        #[serde(with = "number::float")]
        elapsed_ms: f64,
        event: StepEndedName,
        step: u64,
        policy_version: u64,
        values: Values,
    }
    #[derive(Deserialize)]
    enum StepEndedName {
        #[serde(rename = "step_ended")]
        StepEnded,
    }
    if event_name(line)? != b"step_ended" {
        return None;
    }
    let read: StepEnded = serde_json::from_slice(line).ok()?;
    let StepEndedName::StepEnded = read.event;
    Some(Event {
        seq: read.seq,
        elapsed_ms: read.elapsed_ms,
        kind: EventKind::StepEnded {
            step: read.step,
            policy_version: read.policy_version,
            values: read.values,
        },
    })
}

/// Up to `length` bytes of a file from `offset`; fewer where it ends, none where there is no file.
pub(crate) fn read_range(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; length];
    let got = read_at(&file, &mut bytes, offset)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Bytes of a file up to and with its last newline.
pub(crate) fn whole_size(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(64 << 10);
        let mut chunk = vec![0; (end - start) as usize];
        let got = read_at(file, &mut chunk, start)?;
        if let Some(position) = chunk[..got].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + position as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The end of a file: whole lines, of which the newest may be torn.
#[derive(Debug, Default)]
pub(crate) struct LastLines {
    pub text: Vec<u8>,
    /// Where in the file they begin; 0: they are all of it.
    pub from: u64,
}

impl LastLines {
    /// Where the newest line that is whole ends.
    pub fn whole_end(&self) -> u64 {
        let end = memchr::memrchr(b'\n', &self.text).map_or(0, |at| at + 1);
        self.from + end as u64
    }
}

/// The whole lines in the last `bytes` of a file; none where there is no file.
pub(crate) fn last_lines(path: &Path, bytes: u64) -> io::Result<LastLines> {
    let size = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LastLines::default()),
        Err(error) => return Err(error),
    };
    let start = size.saturating_sub(bytes);
    let mut text = read_range(path, start, (size - start) as usize)?;
    let mut cut = 0;
    if start > 0 {
        // The first line in the window is probably cut.
        cut = memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1);
        text.drain(..cut);
    }
    Ok(LastLines {
        text,
        from: start + cut as u64,
    })
}

/// The line of a file that `at` lies in, without its newline. It begins at most 96 bytes before, as an event's name does.
pub(crate) fn line_around(path: &Path, at: u64) -> io::Result<Vec<u8>> {
    let start = at.saturating_sub(NAME_WITHIN as u64);
    let before = read_range(path, start, (at - start) as usize)?;
    let first = memchr::memrchr(b'\n', &before).map_or(0, |at| at + 1);
    let start = start + first as u64;
    let mut length = 16 << 10;
    loop {
        let mut text = read_range(path, start, length)?;
        if let Some(end) = memchr::memchr(b'\n', &text) {
            text.truncate(end);
            return Ok(text);
        }
        if text.len() < length {
            return Ok(text);
        }
        length *= 4;
    }
}

/// The whole lines in the last `bytes` of a file, oldest first; one more than fits when a line is longer.
pub(crate) fn last_events(path: &Path, bytes: u64) -> io::Result<Vec<Event>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let end = whole_size(&file)?;
    let mut window = bytes.max(1);
    loop {
        let start = end.saturating_sub(window);
        let mut text = vec![0; (end - start) as usize];
        let got = read_at(&file, &mut text, start)?;
        text.truncate(got);
        let whole = match text.iter().position(|byte| *byte == b'\n') {
            // The first line in the window is probably cut, unless the window is the whole file.
            Some(position) if start > 0 => &text[position + 1..],
            _ => &text[..],
        };
        let events: Vec<Event> = whole
            .split(|byte| *byte == b'\n')
            .filter_map(|line| parse(line).ok().flatten())
            .collect();
        if !events.is_empty() || start == 0 {
            return Ok(events);
        }
        window *= 2;
    }
}

/// Sequence number and time of the last whole event.
pub(crate) fn last_event(path: &Path) -> io::Result<Option<(u64, f64)>> {
    Ok(last_events(path, 64 << 10)?
        .last()
        .map(|event| (event.seq, event.elapsed_ms)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;
    use crate::event::{EventKind, Phase};
    use crate::testing::{any_events, line, lines};

    const ALL: Limits = Limits {
        events: usize::MAX,
        bytes: 1 << 20,
    };

    fn events(count: u64) -> Vec<Event> {
        (0..count)
            .map(|seq| Event {
                seq,
                elapsed_ms: seq as f64,
                kind: EventKind::PhaseChanged {
                    phase: Phase::Train,
                },
            })
            .collect()
    }

    fn log() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        (directory, path)
    }

    #[test]
    fn a_last_line_torn_at_any_byte_waits_until_it_is_whole() {
        let (_directory, path) = log();
        let all = events(3);
        let whole = lines(&all[..2]);
        let last = line(&all[2]);
        for torn in 0..last.len() {
            let mut bytes = whole.clone();
            bytes.extend(&last[..torn]);
            fs::write(&path, &bytes).unwrap();
            let mut tail = Tail::new(&path);
            let batch = tail.read(ALL).unwrap();
            assert_eq!(
                (batch.events.len(), batch.bad_lines.len()),
                (2, 0),
                "torn at {torn}"
            );
            assert_eq!(tail.offset(), whole.len() as u64);
            assert_eq!(last_event(&path).unwrap(), Some((1, 1.0)), "torn at {torn}");
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(&last[torn..]).unwrap();
            assert_eq!(tail.read(ALL).unwrap().events, all[2..], "torn at {torn}");
        }
    }

    #[test]
    fn corrupt_lines_are_reported_with_their_number_and_the_rest_is_read() {
        let (_directory, path) = log();
        let all = events(3);
        let mut bytes = line(&all[0]);
        bytes.extend(b"{\"seq\":1,\"elapsed_ms\"\n\n\xff\xfe\0\n");
        bytes.extend(lines(&all[1..]));
        fs::write(&path, bytes).unwrap();
        let (read, bad_lines) = read_all(&path).unwrap();
        assert_eq!(read, all);
        let places: Vec<u64> = bad_lines.iter().map(|bad| bad.line).collect();
        assert_eq!(places, [2, 4]);
        assert_eq!(bad_lines[0].offset, line(&all[0]).len() as u64);
    }

    #[test]
    fn one_read_gives_no_more_than_its_limits_and_says_that_there_is_more() {
        let (_directory, path) = log();
        let all = events(10);
        fs::write(&path, lines(&all)).unwrap();
        let length = line(&all[0]).len();
        for limits in [
            Limits {
                events: 3,
                bytes: 1 << 20,
            },
            Limits {
                events: 100,
                bytes: 3 * length,
            },
        ] {
            let mut tail = Tail::new(&path);
            let mut sizes = Vec::new();
            let mut read = Vec::new();
            loop {
                let batch = tail.read(limits).unwrap();
                sizes.push(batch.events.len());
                read.extend(batch.events);
                if !batch.has_more {
                    break;
                }
            }
            assert_eq!((sizes, &read), (vec![3, 3, 3, 1], &all));
        }
        let mut tail = Tail::new(&path);
        let tiny = Limits {
            events: 1,
            bytes: 1,
        };
        assert_eq!(
            tail.read(tiny).unwrap().events,
            all[..1],
            "a line longer than the limit is read whole"
        );
    }

    #[test]
    fn a_log_that_became_shorter_is_read_again_from_its_start() {
        let (_directory, path) = log();
        let all = events(5);
        fs::write(&path, lines(&all)).unwrap();
        let mut tail = Tail::new(&path);
        tail.read(ALL).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(line(&all[0]).len() as u64)
            .unwrap();
        let batch = tail.read(ALL).unwrap();
        assert!(batch.restarted);
        assert_eq!(batch.events, all[..1]);
    }

    #[test]
    fn waiting_gives_what_another_thread_writes() {
        let (_directory, path) = log();
        let mut tail = Tail::new(&path);
        assert_eq!(
            tail.wait(ALL, Duration::ZERO).unwrap(),
            Batch::default(),
            "no file yet"
        );
        let all = events(1);
        let bytes = lines(&all);
        let writer = std::thread::spawn({
            let path = path.clone();
            move || fs::write(path, bytes).unwrap()
        });
        let batch = tail.wait(ALL, Duration::from_secs(60)).unwrap();
        writer.join().unwrap();
        assert_eq!(batch.events, all);
    }

    proptest::proptest! {
        /// Of any event, and of steps whose lines are as another writer might put them.
        #[test]
        fn the_short_way_of_reading_a_step_gives_what_the_long_way_gives(events in any_events(6), spaces in 0_usize..3) {
            for event in &events {
                let line = String::from_utf8(line(event)).unwrap();
                let spaced = line.replace("\":", &format!("\":{}", " ".repeat(spaces)));
                let long: Event = serde_json::from_str(&spaced).unwrap();
                let short = parse(spaced.as_bytes()).unwrap().unwrap();
                proptest::prop_assert_eq!(format!("{short:?}"), format!("{long:?}"));
            }
        }
    }

    #[test]
    fn the_last_events_are_found_though_a_line_is_longer_than_the_window() {
        let (_directory, path) = log();
        let mut all = events(3);
        all[2].kind = EventKind::Alarm {
            name: "long".to_owned(),
            step: None,
            message: "x".repeat(10_000),
        };
        fs::write(&path, lines(&all)).unwrap();
        assert_eq!(last_events(&path, 64).unwrap().last(), Some(&all[2]));
    }
}
