//! Windows of `log.txt` by offset: however long it is, a job reads some thousand lines and no more. Knows bytes and lines.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::clean::clean;
use super::line::{Line, Severity};

/// Bytes of one read. A line longer than this comes in pieces.
const CHUNK: u64 = 64 << 10;
/// Lines of one answer.
pub const WANTED: usize = 1000;
/// Bytes that one answer looks through for lines of a level.
const MOST_SCANNED: u64 = 16 << 20;

/// Consecutive lines of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// Offset of the first byte that was looked at, always the start of a line (or piece).
    pub start: u64,
    /// Where to go on; the last line may be written on, and then starts here.
    pub end: u64,
    /// Of the file.
    pub size: u64,
    pub lines: Vec<Line>,
}

/// Whole lines of `from..to`, which starts a line; the last one may lack its end when the file ends there.
struct Chunk {
    lines: Vec<(u64, Vec<u8>)>,
    /// After the last whole line.
    end: u64,
}

fn read_chunk(file: &File, from: u64, to: u64, size: u64) -> io::Result<Chunk> {
    let mut bytes = vec![0; (to - from) as usize];
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], from + got as u64)? {
            0 => break,
            count => got += count,
        }
    }
    bytes.truncate(got);
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        lines.push((from + at as u64, bytes[at..at + length].to_vec()));
        at += length + 1;
    }
    let mut end = from + at as u64;
    if at < bytes.len() {
        let is_last = from + got as u64 >= size;
        // The file's open end is shown and read again; a piece of an endless line is taken as a line.
        if is_last || at == 0 {
            lines.push((end, bytes[at..].to_vec()));
        }
        if at == 0 && (!is_last || got as u64 >= CHUNK) {
            end = from + got as u64;
        }
    }
    Ok(Chunk { lines, end })
}

/// The start of the line that `at` lies in, or a place within [`CHUNK`] of it.
fn line_start(file: &File, at: u64) -> io::Result<u64> {
    let from = at.saturating_sub(CHUNK);
    let mut bytes = vec![0; (at - from) as usize];
    file.read_exact_at(&mut bytes, from)?;
    Ok(match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(newline) => from + newline as u64 + 1,
        None => from,
    })
}

fn made(offset: u64, bytes: &[u8], least: Severity) -> Option<Line> {
    let text = clean(bytes);
    let severity = Severity::guess(&text);
    (severity >= least).then_some(Line {
        id: offset,
        elapsed_ms: None,
        severity,
        source: String::new(),
        text,
    })
}

/// Lines from an offset on.
pub fn forward(path: &Path, from: u64, least: Severity) -> io::Result<Window> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = from.min(size);
    let mut window = Window {
        start: from,
        end: from,
        size,
        lines: Vec::new(),
    };
    while window.end < size && window.lines.len() < WANTED && window.end - from < MOST_SCANNED {
        let before = window.end;
        let to = (window.end + CHUNK).min(size);
        let chunk = read_chunk(&file, window.end, to, size)?;
        for (offset, bytes) in chunk.lines {
            window.lines.extend(made(offset, &bytes, least));
        }
        window.end = chunk.end;
        if window.end == before || to == size {
            break;
        }
    }
    Ok(window)
}

/// Lines before an offset, which starts a line.
pub fn backward(path: &Path, to: u64, least: Severity) -> io::Result<Window> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let to = to.min(size);
    let mut window = Window {
        start: to,
        end: to,
        size,
        lines: Vec::new(),
    };
    let mut parts: Vec<Vec<Line>> = Vec::new();
    let mut found = 0;
    while window.start > 0 && found < WANTED && to - window.start < MOST_SCANNED {
        let start =
            line_start(&file, window.start.saturating_sub(CHUNK / 2))?.min(window.start - 1);
        let chunk = read_chunk(&file, start, window.start, size)?;
        let lines: Vec<Line> = chunk
            .lines
            .iter()
            .filter_map(|(offset, bytes)| made(*offset, bytes, least))
            .collect();
        found += lines.len();
        parts.push(lines);
        window.start = start;
    }
    window.lines = parts.into_iter().rev().flatten().collect();
    Ok(window)
}

/// The last lines.
pub fn tail(path: &Path, least: Severity) -> io::Result<Window> {
    let size = File::open(path)?.metadata()?.len();
    let mut window = backward(path, size, least)?;
    // What is written on must be read again from its start.
    let file = File::open(path)?;
    let last = line_start(&file, size)?;
    window.end = last.max(window.start);
    if size - window.end >= CHUNK {
        window.end = size;
    }
    Ok(window)
}

/// Lines before and after a line.
pub fn around(path: &Path, offset: u64, least: Severity) -> io::Result<Window> {
    let before = backward(path, offset, least)?;
    let mut window = forward(path, offset, least)?;
    window.start = before.start;
    let mut lines = before.lines;
    lines.append(&mut window.lines);
    window.lines = lines;
    Ok(window)
}

/// Where a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The start of the line it begins after (or before).
    pub from: u64,
    pub is_forward: bool,
}

/// The line that matches next, around the end of the file if need be: its offset, and whether it went around.
pub fn find(
    path: &Path,
    pattern: &str,
    search: Search,
    least: Severity,
) -> io::Result<Option<(u64, bool)>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = search.from.min(size);
    // What may match: small letters find all, as in the rest of the workbench.
    let is_exact = pattern.chars().any(char::is_uppercase);
    let wanted = if is_exact {
        pattern.as_bytes().to_vec()
    } else {
        pattern.to_lowercase().into_bytes()
    };
    let is_match = |bytes: &[u8]| {
        let may = if is_exact || !pattern.is_ascii() {
            !pattern.is_ascii() || contains(bytes, &wanted)
        } else {
            contains(&bytes.to_ascii_lowercase(), &wanted)
        };
        // Escape sequences may stand within a word, and carriage returns may have hidden it.
        (may || bytes.contains(&0x1b))
            && made(0, bytes, least)
                .is_some_and(|line| crate::tui::widgets::text::finds(&line.text, pattern))
    };
    let mut best = None;
    let mut at = 0;
    while at < size {
        let to = (at + 4 * CHUNK).min(size);
        let chunk = read_chunk(&file, at, to, size)?;
        // A chunk without a match is passed by at once.
        for (offset, bytes) in &chunk.lines {
            let is_after = *offset > from;
            let is_better = match (search.is_forward, best) {
                // The first after `from`, else the first of all.
                (_, None) => true,
                (true, Some(known)) => known <= from && is_after,
                // The last before it, else the last of all.
                (false, Some(known)) => *offset < from || known >= from,
            };
            if is_better && *offset != from && is_match(bytes) {
                best = Some(*offset);
                if search.is_forward && is_after {
                    return Ok(Some((*offset, false)));
                }
            }
        }
        if !search.is_forward && at >= from && best.is_some_and(|best| best < from) {
            break;
        }
        if chunk.end == at {
            break;
        }
        at = chunk.end;
    }
    Ok(best.map(|best| (best, search.is_forward == (best < from))))
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    match wanted {
        [] => true,
        [first, rest @ ..] => {
            let mut from = 0;
            while let Some(at) = bytes[from..].iter().position(|byte| byte == first) {
                if bytes[from + at + 1..].starts_with(rest) {
                    return true;
                }
                from += at + 1;
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn write(text: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.txt");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    /// Every line, read forward or backward window by window.
    fn all(path: &Path, is_forward: bool, least: Severity) -> Vec<(u64, String)> {
        let mut lines = Vec::new();
        let size = std::fs::metadata(path).unwrap().len();
        let mut at = if is_forward { 0 } else { size };
        for _ in 0..1000 {
            let window = if is_forward {
                forward(path, at, least).unwrap()
            } else {
                backward(path, at, least).unwrap()
            };
            let found: Vec<_> = window
                .lines
                .iter()
                .map(|line| (line.id, line.text.clone()))
                .collect();
            if is_forward {
                // The open last line was given before, too.
                lines.retain(|(offset, _)| *offset < at);
                lines.extend(found);
                if window.end == at || window.end == size {
                    break;
                }
                at = window.end;
            } else {
                lines.splice(0..0, found);
                at = window.start;
                if at == 0 {
                    break;
                }
            }
        }
        lines
    }

    #[test]
    fn windows_join_to_the_whole_file_in_either_direction() {
        let mut text = String::new();
        for line in 0..60_000 {
            let level = if line % 5000 == 17 { "ERROR" } else { "INFO" };
            let _ = writeln!(text, "{level} line {line} {}", "x".repeat(line % 90));
        }
        let (_folder, path) = write(text.as_bytes());
        let expected: Vec<String> = text
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        for is_forward in [true, false] {
            let lines = all(&path, is_forward, Severity::Debug);
            assert_eq!(lines.len(), expected.len());
            assert!(lines.iter().map(|(_, text)| text).eq(&expected));
            assert!(lines.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let errors = all(&path, is_forward, Severity::Error);
            assert_eq!(errors.len(), 12);
        }
        let window = forward(&path, 0, Severity::Debug).unwrap();
        assert!(window.lines.len() < 10 * WANTED, "a window is bounded");
    }

    #[test]
    fn a_file_of_one_endless_line_is_read_in_pieces() {
        let (_folder, path) = write(&b"progress 12%\r".repeat(200_000));
        for is_forward in [true, false] {
            let lines = all(&path, is_forward, Severity::Debug);
            assert!((20..90).contains(&lines.len()), "{}", lines.len());
        }
        let window = tail(&path, Severity::Debug).unwrap();
        assert_eq!(window.size, 2_600_000);
    }

    #[test]
    fn an_open_last_line_is_shown_and_read_again() {
        let (_folder, path) = write(b"one\ntwo 50%");
        let window = tail(&path, Severity::Debug).unwrap();
        assert_eq!(window.lines.last().unwrap().text, "two 50%");
        assert_eq!(window.end, 4);
        std::fs::write(&path, "one\ntwo 50%\rtwo 90%\nthree\n").unwrap();
        let more = forward(&path, window.end, Severity::Debug).unwrap();
        let texts: Vec<&str> = more.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["two 90%", "three"]);
        assert_eq!(more.end, more.size);
        assert!(tail(&path.with_extension("gone"), Severity::Debug).is_err());
        std::fs::write(&path, "").unwrap();
        assert_eq!(tail(&path, Severity::Debug).unwrap(), Window::default());
    }

    proptest! {
        #[test]
        fn small_files_of_any_bytes_join_too(text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..300)) {
            let (_folder, path) = write(&text);
            let there = all(&path, true, Severity::Debug);
            let back = all(&path, false, Severity::Debug);
            prop_assert_eq!(&there, &back);
        }

        #[test]
        fn a_search_finds_what_a_look_at_every_line_finds(
            lines in prop::collection::vec("[abX]{0,3}", 1..20), start in 0_usize..20, is_forward: bool
        ) {
            let (_folder, path) = write(lines.join("\n").as_bytes());
            let mut offsets = Vec::new();
            let mut at = 0;
            for line in &lines {
                offsets.push(at);
                at += line.len() as u64 + 1;
            }
            let start = start % lines.len();
            let count = lines.len();
            let expected = (1..count)
                .map(|by| if is_forward { (start + by) % count } else { (start + count - by) % count })
                .find(|line| lines[*line].to_lowercase().contains("xa"))
                .map(|line| (offsets[line], if is_forward { line < start } else { line > start }));
            let search = Search { from: offsets[start], is_forward };
            prop_assert_eq!(find(&path, "xa", search, Severity::Debug).unwrap(), expected);
        }
    }
}
