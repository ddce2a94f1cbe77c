//! Follows a run here for somebody elsewhere: bytes of its growing files, its small files, how it stands.
//!
//! Bounded: no more than the window is on its way unacknowledged, so a slow line holds this side back and never fills a buffer that
//! a command would have to wait behind. Files are the buffer. Who is silent for a minute is gone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use runlog::disk;
use runlog::run_dir::Standing;

use super::cluster::Look;
use super::{lock, now_ms, say};
use crate::hash;
use crate::wire::{self, Ask, Beat, Have, Say};

/// The files that grow.
pub(crate) const GROWING: [&str; 2] = ["events.jsonl", "log.txt"];
/// The files that are small and replaced. The last says that the run is over, and so comes after everything.
pub(crate) const SMALL: [&str; 2] = ["run.json", "exit.json"];

const CHUNK_BYTES: usize = 48 << 10;
/// Between two looks when nothing is heard: a person sees no delay, the machine no load.
const LOOK_EVERY: Duration = Duration::from_millis(25);
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How the run stands is read from files and /proc.
const STANDING_EVERY: Duration = Duration::from_millis(250);
/// The other side pings every second; after a minute without, it has been cut off and will come again.
const SILENCE: Duration = Duration::from_secs(60);

/// What the listening thread knows.
#[derive(Debug)]
struct Line {
    unacknowledged: u64,
    heard: Instant,
    is_closed: bool,
}

#[derive(Debug)]
struct Shared {
    line: Mutex<Line>,
    /// Something was heard.
    changed: Condvar,
}

type Output = Arc<Mutex<io::Stdout>>;

/// Until the other side closes.
pub(super) fn stream(
    run: &Path,
    have: &[Have],
    window: u64,
    input: BufReader<io::Stdin>,
    output: Output,
) -> io::Result<()> {
    let shared = Arc::new(Shared {
        line: Mutex::new(Line {
            unacknowledged: 0,
            heard: Instant::now(),
            is_closed: false,
        }),
        changed: Condvar::new(),
    });
    listen(&shared, input, Arc::clone(&output))?;
    let mut look = Look::new(run);
    let mut stream = Stream {
        run: run.to_owned(),
        files: GROWING.map(|name| Growing::new(run, name)).into(),
        small: BTreeMap::new(),
        window: window.max(2 * CHUNK_BYTES as u64),
        shared,
        output,
        standing: look.standing(),
        look,
        looked_at: Instant::now(),
        beaten_at: None,
    };
    for file in &mut stream.files {
        let known = have.iter().find(|known| known.name == file.name);
        let (offset, why) = file.begin(known)?;
        let name = file.name.to_owned();
        say(&stream.output, &Say::From { name, offset, why }, b"")?;
    }
    stream.run()
}

/// Hears acknowledgements and pings, on a thread that ends with the process.
fn listen(shared: &Arc<Shared>, mut input: BufReader<io::Stdin>, output: Output) -> io::Result<()> {
    let heard = Arc::clone(shared);
    std::thread::Builder::new()
        .name("listen".to_owned())
        .spawn(move || {
            while let Ok(Some((ask, _))) = wire::receive::<Ask>(&mut input) {
                let mut line = lock(&heard.line);
                line.heard = Instant::now();
                match ask {
                    Ask::Ack { bytes } => {
                        line.unacknowledged = line.unacknowledged.saturating_sub(bytes);
                        heard.changed.notify_all();
                    }
                    Ask::Ping { sent_ms } => {
                        drop(line);
                        let at_ms = now_ms();
                        if say(&output, &Say::Pong { sent_ms, at_ms }, b"").is_err() {
                            break;
                        }
                    }
                    _ => {}
                }
            }
            lock(&heard.line).is_closed = true;
            heard.changed.notify_all();
        })?;
    // A write into a dead line waits for ever; then this ends the process. Nothing here needs an orderly end.
    let watched = Arc::clone(shared);
    std::thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let line = lock(&watched.line);
                if line.is_closed || line.heard.elapsed() > SILENCE {
                    drop(line);
                    // The main thread, if it is not held up, ends first.
                    std::thread::sleep(Duration::from_secs(1));
                    std::process::exit(0);
                }
            }
        })?;
    Ok(())
}

struct Stream {
    run: PathBuf,
    files: Vec<Growing>,
    /// Size and time of each small file as it was sent.
    small: BTreeMap<&'static str, (u64, SystemTime)>,
    window: u64,
    shared: Arc<Shared>,
    output: Output,
    look: Look,
    standing: Standing,
    looked_at: Instant,
    beaten_at: Option<Instant>,
}

impl Stream {
    fn run(&mut self) -> io::Result<()> {
        loop {
            // Asked before the files are read: what was written before the end is then sent before it.
            if self.looked_at.elapsed() >= STANDING_EVERY {
                self.looked_at = Instant::now();
                let now = self.look.standing();
                if now != self.standing {
                    self.standing = now;
                    self.beaten_at = None;
                }
            }
            let is_over = matches!(self.standing, Standing::Ended | Standing::Lost { .. });
            let mut has_sent = false;
            let mut left_bytes = 0;
            for index in 0..self.files.len() {
                let (sent, left) = self.send_some(index, is_over)?;
                has_sent |= sent;
                left_bytes += left;
            }
            self.send_small(SMALL[0])?;
            let is_all = is_over && left_bytes == 0;
            if is_all {
                self.send_small(SMALL[1])?;
            }
            if is_all || self.beaten_at.is_none_or(|at| at.elapsed() >= BEAT_EVERY) {
                self.beaten_at = Some(Instant::now());
                let beat = Beat {
                    at_ms: now_ms(),
                    standing: self.standing.clone(),
                    left_bytes,
                    is_complete: is_all,
                    free_bytes: disk::free_bytes(&self.run),
                };
                say(&self.output, &Say::Beat(Box::new(beat)), b"")?;
            }
            let wait = if is_all {
                BEAT_EVERY
            } else if has_sent {
                Duration::ZERO
            } else {
                LOOK_EVERY
            };
            if self.is_closed_after(wait) {
                return Ok(());
            }
            if !self.run.is_dir() {
                let reason = "its directory was deleted there".to_owned();
                return say(&self.output, &Say::No { reason }, b"");
            }
        }
    }

    fn is_closed_after(&self, wait: Duration) -> bool {
        let line = lock(&self.shared.line);
        if line.is_closed || wait.is_zero() {
            return line.is_closed;
        }
        let (line, _) = self
            .shared
            .changed
            .wait_timeout(line, wait)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        line.is_closed || line.heard.elapsed() > SILENCE
    }

    /// Whether something was sent, and how much is left.
    fn send_some(&mut self, index: usize, is_over: bool) -> io::Result<(bool, u64)> {
        let room = {
            let line = lock(&self.shared.line);
            self.window.saturating_sub(line.unacknowledged)
        };
        let file = &mut self.files[index];
        if let Some(why) = file.restart() {
            let say_from = Say::From {
                name: file.name.to_owned(),
                offset: 0,
                why: Some(why.to_owned()),
            };
            say(&self.output, &say_from, b"")?;
        }
        let size = file.size()?;
        if room < CHUNK_BYTES as u64 {
            return Ok((false, size - file.offset.min(size)));
        }
        let Some((bytes, age_ms)) = file.next(size, is_over)? else {
            // A torn last line waits and is not what is missing.
            return Ok((false, if is_over { size - file.offset } else { 0 }));
        };
        let head = Say::Data {
            name: file.name.to_owned(),
            offset: file.offset,
            read_ms: now_ms(),
            age_ms,
        };
        file.offset += bytes.len() as u64;
        let left = size.saturating_sub(file.offset);
        lock(&self.shared.line).unacknowledged += bytes.len() as u64;
        say(&self.output, &head, &bytes)?;
        Ok((true, left))
    }

    fn send_small(&mut self, name: &'static str) -> io::Result<()> {
        let path = self.run.join(name);
        let Ok(found) = fs::metadata(&path) else {
            return Ok(());
        };
        let stamp = (found.len(), found.modified()?);
        if self.small.get(name) == Some(&stamp) {
            return Ok(());
        }
        let Ok(bytes) = fs::read(&path) else {
            return Ok(());
        };
        if bytes.len() > wire::MOST_BODY_BYTES {
            return Ok(());
        }
        self.small.insert(name, stamp);
        let name = name.to_owned();
        say(&self.output, &Say::File { name }, &bytes)
    }
}

/// One growing file.
#[derive(Debug)]
struct Growing {
    path: PathBuf,
    name: &'static str,
    /// Of lines: a line that is not whole yet is not sent.
    is_of_lines: bool,
    file: Option<File>,
    offset: u64,
}

impl Growing {
    fn new(run: &Path, name: &'static str) -> Self {
        Self {
            path: run.join(name),
            name,
            is_of_lines: Path::new(name)
                .extension()
                .is_some_and(|ext| ext == "jsonl"),
            file: None,
            offset: 0,
        }
    }

    fn open(&mut self) -> io::Result<Option<&File>> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(self.file.as_ref())
    }

    fn size(&mut self) -> io::Result<u64> {
        match self.open()? {
            Some(file) => Ok(file.metadata()?.len()),
            None => Ok(0),
        }
    }

    /// Where sending begins: where the other side is, if it has the beginning of this very file.
    fn begin(&mut self, known: Option<&Have>) -> io::Result<(u64, Option<String>)> {
        let Some(known) = known.filter(|known| known.size > 0) else {
            return Ok((0, None));
        };
        let size = self.size()?;
        let why = if known.size > size {
            format!(
                "it is shorter there ({size} bytes) than what is here ({})",
                known.size
            )
        } else {
            let tail_bytes = known.tail_bytes.min(known.size).min(4 << 20);
            let is_same = match self.open()? {
                Some(file) => hash::of_range(file, known.size, tail_bytes)? == known.tail_hash,
                None => false,
            };
            if is_same {
                self.offset = known.size;
                return Ok((self.offset, None));
            }
            "it holds something else there than what is here".to_owned()
        };
        Ok((0, Some(why)))
    }

    /// Why it must be sent anew, if it must: it was cut below what was sent, or replaced.
    fn restart(&mut self) -> Option<&'static str> {
        let file = self.file.as_ref()?;
        let ours = file.metadata().ok()?;
        let is_replaced = fs::metadata(&self.path).is_ok_and(|named| named.ino() != ours.ino());
        let why = if is_replaced {
            self.file = None;
            "it was replaced there"
        } else if ours.len() < self.offset {
            "it was cut there"
        } else {
            return None;
        };
        self.offset = 0;
        Some(why)
    }

    /// The next bytes with how long ago the file was written; None: nothing new. `is_over`: nobody will finish a torn line.
    fn next(&mut self, size: u64, is_over: bool) -> io::Result<Option<(Vec<u8>, u64)>> {
        let (offset, is_of_lines) = (self.offset, self.is_of_lines);
        let Some(file) = self.open()? else {
            return Ok(None);
        };
        if size <= offset {
            return Ok(None);
        }
        let written = file.metadata()?.modified()?;
        let mut want = (size - offset).min(CHUNK_BYTES as u64) as usize;
        let mut bytes = vec![0; want];
        file.read_exact_at(&mut bytes, offset)?;
        if is_of_lines {
            loop {
                if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
                    bytes.truncate(end + 1);
                    break;
                }
                let is_all = want as u64 == size - offset;
                // A line longer than a frame goes in parts.
                if (is_all && is_over) || want >= wire::MOST_BODY_BYTES {
                    break;
                }
                if is_all {
                    return Ok(None);
                }
                let more = (want * 2)
                    .min(wire::MOST_BODY_BYTES)
                    .min((size - offset) as usize);
                bytes.resize(more, 0);
                file.read_exact_at(&mut bytes[want..], offset + want as u64)?;
                want = more;
            }
        }
        let age = SystemTime::now()
            .duration_since(written)
            .unwrap_or_default();
        Ok(Some((bytes, age.as_millis() as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(text: &[u8]) -> (tempfile::TempDir, Growing) {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join("events.jsonl"), text).unwrap();
        let file = Growing::new(run.path(), "events.jsonl");
        (run, file)
    }

    fn next(file: &mut Growing, is_over: bool) -> Option<Vec<u8>> {
        let size = file.size().unwrap();
        file.next(size, is_over).unwrap().map(|(bytes, _)| bytes)
    }

    #[test]
    fn a_line_is_sent_when_it_is_whole_or_when_nobody_will_finish_it() {
        let (run, mut file) = growing(b"{1}\n{2}\n{3");
        assert_eq!(next(&mut file, false).unwrap(), b"{1}\n{2}\n");
        file.offset = 8;
        assert_eq!(next(&mut file, false), None);
        assert_eq!(next(&mut file, true).unwrap(), b"{3");
        let long = "x".repeat(3 * CHUNK_BYTES) + "\n{4}\n";
        fs::write(run.path().join("events.jsonl"), &long).unwrap();
        file.offset = 0;
        let bytes = next(&mut file, false).unwrap();
        assert!(long.as_bytes().starts_with(&bytes) && bytes.ends_with(b"\n"));
    }

    #[test]
    fn sending_goes_on_only_behind_the_beginning_of_the_same_file() {
        let (run, mut file) = growing(b"{1}\n{2}\n{3}\n");
        let have = |size: u64, text: &[u8]| Have {
            name: "events.jsonl".to_owned(),
            size,
            tail_bytes: text.len() as u64,
            tail_hash: hash::of_bytes(text),
        };
        assert_eq!(file.begin(Some(&have(8, b"{2}\n"))).unwrap(), (8, None));
        let (offset, why) = file.begin(Some(&have(8, b"{9}\n"))).unwrap();
        assert!(offset == 0 && why.unwrap().contains("something else"));
        let (offset, why) = file.begin(Some(&have(99, b"{9}\n"))).unwrap();
        assert!(offset == 0 && why.unwrap().contains("shorter there (12 bytes)"));
        assert_eq!(file.begin(None).unwrap(), (0, None));

        file.offset = 12;
        assert_eq!(file.restart(), None);
        fs::write(run.path().join("events.jsonl"), "{1}\n").unwrap();
        assert_eq!(file.restart(), Some("it was cut there"));
        fs::write(run.path().join("new"), "{1}\n").unwrap();
        fs::rename(run.path().join("new"), run.path().join("events.jsonl")).unwrap();
        assert_eq!(file.restart(), Some("it was replaced there"));
    }
}
