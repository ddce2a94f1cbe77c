//! What crosses the line: a greeting, then frames, each a line of JSON and as many bytes as it says.
//!
//! ```text
//!  lathe-far 1 0.1.0⏎              whatever a login script printed before it is passed over
//!  {"bytes":5,"head":{…}}⏎hello    a frame; one that is cut anywhere is none
//! ```
//! Nothing that a person named is ever part of a command line: it stands in a frame.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read, Write};

use runlog::run_dir::{Exit, Standing};
use runlog::state::Glance;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::scheduler::{ClusterFacts, Scheduler};

/// Raised when both sides would misunderstand each other. A new field or message that may be left out does not raise it.
pub const PROTOCOL: u32 = 1;
/// The hidden command of `lathe` that answers over there.
pub const FAR_COMMAND: &str = "__far";
/// The hidden command that watches over a run there.
pub const SUPERVISE_COMMAND: &str = "__supervise";
/// The hidden command that joins its input and output with the control socket of a run of its machine.
pub const JOIN_COMMAND: &str = "__join";

/// The hidden command of `lathe` that watches over a run of verl: as a verb, there lathe itself is the trainer.
pub const VERL_VERB: &str = "__verl";

const MAGIC: &str = "lathe-far ";
/// Of a frame's line: a list of a thousand files fits.
const MOST_HEAD_BYTES: u64 = 8 << 20;
/// Of a frame's body.
pub const MOST_BODY_BYTES: usize = 4 << 20;
/// Of what a login script may print before the greeting.
const MOST_NOISE_BYTES: u64 = 64 << 10;

/// One file by what it holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Blob {
    /// XXH3, 128 bits, hexadecimal: tells files apart and finds broken ones. Against somebody in between there is ssh.
    pub hash: String,
    pub size: u64,
}

/// A file of a run's project folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Below the project folder; never absolute, no `..`.
    pub path: String,
    pub blob: Blob,
    #[serde(default)]
    pub is_program: bool,
}

/// Which GPUs a run takes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gpus {
    /// Whatever the environment there says.
    #[default]
    AsIs,
    None,
    /// So many free ones, as soon as there are.
    Free(u32),
    /// These, as nvidia-smi numbers them.
    These(Vec<u32>),
}

/// What a run gets over there, each time it starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Means {
    pub gpus: Gpus,
    /// Runs of ours that may run there at once; 0: as many as are asked for.
    #[serde(default)]
    pub at_once: u32,
    /// For the trainer. Handed on in memory only: secrets may be among it.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The trainer's program, if not beside lathe.
    #[serde(default)]
    pub trainer: Option<String>,
    /// Where its libraries are, if not beside it.
    #[serde(default)]
    pub libraries: Option<String>,
}

/// A run to be started over there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// The directory's name, the same on both sides.
    pub name: String,
    /// `run`, `sft`, `reward-train`, or [`VERL_VERB`].
    pub verb: String,
    /// As in the run's `run.json`, without its origin.
    pub info: serde_json::Value,
    pub experiment_yaml: String,
    pub files: Vec<Sent>,
    /// Models that lie there already, as the experiment names them.
    #[serde(default)]
    pub models: Vec<String>,
    /// Folder in which those are looked for.
    #[serde(default)]
    pub models_folder: Option<String>,
    #[serde(flatten)]
    pub means: Means,
}

impl Begin {
    /// lathe there starts verl.
    pub fn is_verl(&self) -> bool {
        self.verb == VERL_VERB
    }
}

/// A run there that is over, and is to go on in its directory from its newest whole checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Again {
    pub run: String,
    /// With edits; None: as it lies there.
    #[serde(default)]
    pub experiment_yaml: Option<String>,
    /// The keys of those edits, in full.
    #[serde(default)]
    pub given: Vec<String>,
    /// Steps to be trained in all, where its experiment says so.
    #[serde(default)]
    pub total_steps: Option<u64>,
    #[serde(flatten)]
    pub means: Means,
    /// What gives it a machine this time; None: the machine that is asked.
    #[serde(default)]
    pub scheduler: Option<Box<Scheduler>>,
}

/// Why a run does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotResumed {
    /// It lives, or somebody else has it go on.
    Busy,
    /// Every step is trained.
    NothingLeft,
    #[serde(other)]
    Unfit,
}

/// How much of a file is here, so that the rest can come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Have {
    /// `events.jsonl` or `log.txt`.
    pub name: String,
    pub size: u64,
    /// Of the last bytes before `size`: whether it is the same file.
    pub tail_bytes: u64,
    pub tail_hash: String,
}

/// What opens another's door. Never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// From here to there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// First of all. `folder`: where lathe keeps its things there, relative to the home directory.
    Open {
        protocol: u32,
        folder: String,
        /// Ray's, for this conversation. Kept in memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<Token>,
    },
    Facts {
        /// Start the trainer, to see whether it finds its libraries.
        tries_trainer: bool,
        #[serde(default)]
        trainer: Option<String>,
        #[serde(default)]
        libraries: Option<String>,
    },
    /// Which of these are not there, and how much of each is.
    Missing {
        blobs: Vec<Blob>,
    },
    /// Bytes of a file follow, from `offset`.
    Put {
        blob: Blob,
        offset: u64,
    },
    /// Makes programs of stored files: `programs/VERSION/…`, and `current` lead there.
    Install {
        version: String,
        files: Vec<Sent>,
    },
    /// Makes programs of what was built there, with what their trainer is linked with.
    InstallBuilt {
        /// Where they lie, below lathe's folder.
        programs: String,
    },
    Begin(Box<Begin>),
    /// Has runs started by a scheduler, several of them as one array where it knows such. Not a field of `Begin`: an older
    /// program would pass over it and start them on its own machine.
    Submit {
        begins: Vec<Begin>,
        scheduler: Box<Scheduler>,
    },
    /// Has a run that is over go on.
    Resume(Box<Again>),
    /// What there is of a scheduler.
    Cluster {
        scheduler: Box<Scheduler>,
    },
    /// Follow a run from there on; answered until the line is closed.
    Stream {
        run: String,
        have: Vec<Have>,
        /// Bytes that may be on their way unacknowledged.
        window: u64,
    },
    Ack {
        bytes: u64,
    },
    /// Every second: who hears none for a while ends.
    Ping {
        sent_ms: u64,
    },
    /// From here on the line is the run's control socket.
    Control {
        run: String,
    },
    /// The files below a path of the run's directory.
    List {
        run: String,
        under: String,
    },
    Get {
        run: String,
        path: String,
        offset: u64,
        /// Its pieces may be compressed.
        #[serde(default)]
        packs: bool,
    },
    /// Ends the run's process: first as Ctrl-C does, by force when it does not listen.
    End {
        run: String,
        is_forced: bool,
    },
    /// The runs there.
    Runs,
    /// What of the newest runs there is news since this question was last asked in this conversation; asked again at once while there
    /// is more.
    Census {
        /// Runs that are told of, newest first.
        most: u32,
        /// Those that are known here from an earlier conversation: their experiments need not come.
        #[serde(default)]
        known: Vec<String>,
    },
    /// Of a newer program.
    #[serde(other)]
    Unknown,
}

/// From there to here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Say {
    /// It cannot be done: why, and what to do.
    No {
        reason: String,
    },
    Opened {
        version: String,
        host: String,
        /// It takes pieces of files that are compressed.
        #[serde(default)]
        packs: bool,
    },
    Facts(Box<Facts>),
    /// Bytes of each that are there; whole files are left out.
    Missing {
        partly: Vec<(Blob, u64)>,
    },
    Stored {
        blob: Blob,
    },
    Installed {
        folder: String,
    },
    Begun {
        path: String,
        supervisor: u32,
    },
    Submitted {
        /// The directory of each run.
        paths: Vec<String>,
        /// The scheduler's name of each.
        jobs: Vec<String>,
    },
    /// It goes on; of a scheduler's job its name there.
    Resumed {
        job: Option<String>,
    },
    /// Nothing has changed.
    NotResumed {
        why: NotResumed,
        reason: String,
    },
    Cluster(Box<ClusterFacts>),
    /// A file begins here: where the other end asked for, or at 0 because it is another file now.
    From {
        name: String,
        offset: u64,
        #[serde(default)]
        why: Option<String>,
    },
    /// Bytes of a growing file.
    Data {
        name: String,
        offset: u64,
        /// When they were read, by the clock there, and how long they had been written by then.
        read_ms: u64,
        age_ms: u64,
    },
    /// A whole small file: `run.json`, `exit.json`.
    File {
        name: String,
    },
    /// How it stands; every second, and at each change.
    Beat(Box<Beat>),
    Pong {
        sent_ms: u64,
        at_ms: u64,
    },
    /// The line is the control socket now.
    Joined,
    Listing {
        files: Vec<(String, Blob)>,
    },
    /// Bytes of a file that was asked for; `left` more come.
    Chunk {
        left: u64,
        /// The body is one frame of zstd, of so many bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packed_from: Option<u64>,
    },
    Ending {
        pid: u32,
    },
    Runs {
        runs: Vec<RunThere>,
    },
    Census {
        news: Vec<RunSeen>,
        /// Names that were known and are no runs there any more.
        gone: Vec<String>,
        is_more: bool,
    },
    #[serde(other)]
    Unknown,
}

/// How a followed run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// By the clock there.
    pub at_ms: u64,
    pub standing: Standing,
    /// Written and not sent yet.
    pub left_bytes: u64,
    /// Everything was sent, and nothing more will come.
    pub is_complete: bool,
    /// On the disk of the run.
    pub free_bytes: Option<u64>,
}

/// A run that lies there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunThere {
    pub name: String,
    pub standing: Standing,
    pub exit: Option<Exit>,
}

/// What a list shows of a run that lies there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSeen {
    pub name: String,
    /// Its `run.json`.
    pub info: serde_json::Value,
    /// None: it was known, or cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment_yaml: Option<String>,
    pub standing: Standing,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// None: its log cannot be read there.
    pub glance: Option<Glance>,
}

/// What there is on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    pub version: String,
    pub protocol: u32,
    /// Of lathe's program file there.
    pub program: String,
    pub program_hash: String,
    /// It was built there, from the source.
    #[serde(default)]
    pub is_built_there: bool,
    pub host: String,
    pub os: String,
    pub arch: String,
    pub glibc: Option<String>,
    /// Its clock, since 1970.
    pub at_ms: u64,
    pub cores: u32,
    pub memory_bytes: Option<u64>,
    /// Where lathe keeps its things, in full, and the disk it is on.
    pub folder: String,
    pub free_bytes: Option<u64>,
    pub size_bytes: Option<u64>,
    pub gpus: Vec<Gpu>,
    /// Why nothing is known of GPUs.
    pub gpus_problem: Option<String>,
    pub trainer: TrainerFacts,
    /// Runs outlive the connection by systemd, else by a session of their own.
    pub has_user_systemd: bool,
    /// Runs would not outlive the session that starts them: why, and what to do.
    #[serde(default)]
    pub session_problem: Option<String>,
    pub running: Vec<RunThere>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrainerFacts {
    pub path: Option<String>,
    /// What it calls itself.
    pub version: Option<String>,
    /// libtorch's, from beside its library.
    pub libtorch: Option<String>,
    pub libraries: Option<String>,
    pub problem: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gpu {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub memory_mib: u64,
    pub used_mib: u64,
    pub busy_percent: Option<u32>,
    pub processes: Vec<GpuProcess>,
    /// The run of ours that holds it.
    pub held_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuProcess {
    pub pid: u32,
    pub user: String,
    pub name: String,
    pub used_mib: u64,
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    bytes: usize,
    head: T,
}

/// Writes the greeting.
pub fn greet(out: &mut impl Write, version: &str) -> io::Result<()> {
    // On a line of its own, whatever was printed before.
    writeln!(out, "\n{MAGIC}{PROTOCOL} {version}")?;
    out.flush()
}

/// Passes over noise up to the greeting: protocol and version.
pub fn await_greeting(input: &mut impl BufRead) -> io::Result<(u32, String)> {
    let mut left = MOST_NOISE_BYTES;
    let mut line = Vec::new();
    while left > 0 {
        line.clear();
        let count = input.by_ref().take(left).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= count as u64;
        let text = String::from_utf8_lossy(&line);
        let Some(rest) = text.trim().strip_prefix(MAGIC) else {
            continue;
        };
        let (protocol, version) = rest.split_once(' ').unwrap_or((rest, "?"));
        let protocol = protocol.parse().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "a greeting without a number")
        })?;
        return Ok((protocol, version.to_owned()));
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "the login there prints so much that lathe's greeting was not found",
    ))
}

/// Writes one frame and has it sent.
pub fn send(out: &mut impl Write, head: &impl Serialize, body: &[u8]) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Line {
        bytes: body.len(),
        head,
    })?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.write_all(body)?;
    out.flush()
}

/// The next frame. None: closed, between two frames; a frame that is cut is an error.
pub fn receive<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut line = Vec::new();
    let count = input
        .by_ref()
        .take(MOST_HEAD_BYTES)
        .read_until(b'\n', &mut line)?;
    if count == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let Line { bytes, head } = serde_json::from_slice(&line)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if bytes > MOST_BODY_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {bytes} bytes"),
        ));
    }
    let mut body = vec![0; bytes];
    input.read_exact(&mut body)?;
    Ok(Some((head, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_found_behind_what_a_login_prints() {
        let mut text = b"Welcome to gpu1!\nlast login: yesterday\nno newline".to_vec();
        greet(&mut text, "0.1.0").unwrap();
        send(&mut text, &Ask::Runs, b"").unwrap();
        let mut input = &text[..];
        assert_eq!(await_greeting(&mut input).unwrap(), (1, "0.1.0".to_owned()));
        assert_eq!(receive::<Ask>(&mut input).unwrap().unwrap().0, Ask::Runs);
        let noise = "x".repeat(1 << 20);
        assert!(await_greeting(&mut noise.as_bytes()).is_err());
    }

    #[test]
    fn a_frame_that_is_cut_at_any_byte_is_no_frame() {
        let mut whole = Vec::new();
        let head = Say::File {
            name: "run.json".to_owned(),
        };
        send(&mut whole, &head, b"{}\n\0\xff").unwrap();
        for cut in 1..whole.len() {
            let result = receive::<Say>(&mut &whole[..cut]);
            let kind = result.expect_err("it is cut").kind();
            assert_eq!(kind, io::ErrorKind::UnexpectedEof, "at {cut}");
        }
        assert!(receive::<Say>(&mut &whole[..0]).unwrap().is_none());
        let (read, body) = receive::<Say>(&mut &whole[..]).unwrap().unwrap();
        assert_eq!((read, body), (head, b"{}\n\0\xff".to_vec()));
    }

    #[test]
    fn a_body_larger_than_any_we_send_is_refused_before_it_is_kept() {
        let text = format!(
            "{{\"bytes\":{},\"head\":{{\"say\":\"joined\"}}}}\n",
            1_u64 << 40
        );
        let error = receive::<Say>(&mut text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_start_is_written_as_every_program_of_this_protocol_reads_it() {
        let text = serde_json::json!({
            "run": "toy",
            "experiment_yaml": null,
            "given": [],
            "total_steps": null,
            "gpus": {"free": 2},
            "at_once": 3,
            "environment": {"PORT": "80"},
            "trainer": "/opt/trainer",
            "libraries": null,
            "scheduler": null,
        });
        let again: Again = serde_json::from_value(text.clone()).unwrap();
        let means = Means {
            gpus: Gpus::Free(2),
            at_once: 3,
            environment: [("PORT".to_owned(), "80".to_owned())].into(),
            trainer: Some("/opt/trainer".to_owned()),
            libraries: None,
        };
        assert_eq!(again.means, means);
        assert_eq!(serde_json::to_value(&again).unwrap(), text);
        // What an older one leaves out.
        let again: Again =
            serde_json::from_value(serde_json::json!({"run": "toy", "gpus": "as_is"})).unwrap();
        assert_eq!(again.means, Means::default());
    }

    #[test]
    fn what_a_newer_program_says_is_unknown_and_no_error() {
        let mut text = Vec::new();
        send(
            &mut text,
            &serde_json::json!({"say": "sing", "song": "la"}),
            b"",
        )
        .unwrap();
        let (say, _) = receive::<Say>(&mut &text[..]).unwrap().unwrap();
        assert_eq!(say, Say::Unknown);
    }
}
