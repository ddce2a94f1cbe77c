//! `lathe doctor TARGET`: what is there, what is missing, and for each thing that is not as it should be, what to do.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::far::now_ms;
use crate::near::link::{Link, LinkError};
use crate::near::mirror::Clocks;
use crate::scheduler::{ClusterFacts, PartFacts};
use crate::targets::{Target, TargetKind};
use crate::wire::{Ask, Facts, Gpu, Say};

/// A clock that is off by more confuses certificates, tokens and people.
const MOST_SKEW_MS: u64 = 2_000;
/// A checkpoint of a small model with its optimizer, a few times over.
const ENOUGH_BYTES: u64 = 5 << 30;
/// How often the clocks are compared.
const PINGS: u32 = 3;
/// Each command of a scheduler's that does not answer takes its time.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    Good,
    Caution,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `line`, or `machine` of this one; `version`, `gpus`, `disk`, `trainer`, `session`, `clock`, `runs`; of a cluster `slurm` or `ray`, `parts`, `history`.
    pub about: &'static str,
    pub grade: Grade,
    pub what: String,
    /// What to do, where there is something to do.
    pub to_do: Option<String>,
}

impl Finding {
    fn good(about: &'static str, what: impl Into<String>) -> Self {
        Self {
            about,
            grade: Grade::Good,
            what: what.into(),
            to_do: None,
        }
    }

    fn bad(
        grade: Grade,
        about: &'static str,
        what: impl Into<String>,
        to_do: impl Into<String>,
    ) -> Self {
        Self {
            about,
            grade,
            what: what.into(),
            to_do: Some(to_do.into()),
        }
    }
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    pub target: String,
    pub host: String,
    pub findings: Vec<Finding>,
    /// None: it could not be asked.
    pub facts: Option<Facts>,
    /// Of its scheduler, where it has one.
    pub cluster: Option<ClusterFacts>,
    /// By how much its clock is ahead, and how exactly that is known.
    pub clock_ahead_ms: Option<(i64, u64)>,
    pub connect_ms: Option<u64>,
}

impl Diagnosis {
    pub fn worst(&self) -> Grade {
        self.findings
            .iter()
            .map(|finding| finding.grade)
            .max()
            .unwrap_or(Grade::Good)
    }

    pub fn is_reached(&self) -> bool {
        self.facts.is_some()
    }
}

/// What this side is.
#[derive(Debug, Clone)]
pub struct Ours {
    pub version: String,
    pub program_hash: String,
}

/// Looks at a target. Never fails: what cannot be reached is a finding.
pub fn examine(target: &Target, ours: &Ours) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        target: target.name.clone(),
        host: target.host.clone(),
        findings: Vec::new(),
        facts: None,
        cluster: None,
        clock_ahead_ms: None,
        connect_ms: None,
    };
    let start = Instant::now();
    let asked = Link::open(target).and_then(|mut link| {
        diagnosis.connect_ms = Some(start.elapsed().as_millis() as u64);
        ask(&mut link, target)
    });
    match asked {
        Ok((facts, cluster, clocks)) => {
            diagnosis.clock_ahead_ms = clocks.ahead_ms();
            diagnosis.cluster = cluster;
            diagnosis.findings = judge(target, ours, &facts, &diagnosis);
            diagnosis.facts = Some(facts);
        }
        Err(error) => diagnosis.findings.push(unreached(&error)),
    }
    diagnosis
}

/// Looks at the machine that this runs on, by what it knows of itself: [`crate::far::own_facts`].
pub fn examine_this(target: &Target, facts: Facts) -> Diagnosis {
    let mut findings = vec![Finding::good(
        "machine",
        format!(
            "{}: {} {}, {} cores{}, lathe {}",
            facts.host,
            facts.os,
            facts.arch,
            facts.cores,
            facts.memory_bytes.map_or_else(String::new, |bytes| format!(
                ", {} of memory",
                gigabytes(bytes)
            )),
            facts.version
        ),
    )];
    findings.push(match &facts.trainer.problem {
        Some(problem) if facts.trainer.path.is_some() => Finding::bad(
            Grade::Bad,
            "trainer",
            problem.clone(),
            "fetch libtorch with `just libtorch` and build again, or set LIBTORCH and LD_LIBRARY_PATH to yours",
        ),
        Some(problem) => {
            let build = "build it beside lathe (`just build`), or name it in LATHE_TRAINER";
            let (what, to_do) = problem.split_once("; ").unwrap_or((problem, build));
            Finding::bad(Grade::Bad, "trainer", what, to_do)
        }
        None => trainer(target, &facts),
    });
    findings.extend(gpus(&facts));
    findings.push(match disk(&facts) {
        short @ Finding {
            grade: Grade::Caution,
            ..
        } => Finding {
            to_do: Some(
                "free some, or put runs elsewhere: --runs or LATHE_RUNS; checkpoints are large"
                    .to_owned(),
            ),
            ..short
        },
        enough => enough,
    });
    findings.push(match &facts.session_problem {
        Some(problem) => {
            let (what, to_do) = problem.split_once(": ").unwrap_or((problem, ""));
            Finding::bad(Grade::Caution, "session", what, to_do)
        }
        None => Finding::good(
            "session",
            "runs outlive this terminal and its login, in sessions of their own",
        ),
    });
    findings.extend(runs(&facts));
    Diagnosis {
        target: target.name.clone(),
        host: facts.host.clone(),
        findings,
        facts: Some(facts),
        cluster: None,
        clock_ahead_ms: None,
        connect_ms: None,
    }
}

type Asked = (Facts, Option<ClusterFacts>, Clocks);

fn ask(link: &mut Link, target: &Target) -> Result<Asked, LinkError> {
    let mut clocks = Clocks::default();
    for _ in 0..PINGS {
        if let Say::Pong { sent_ms, at_ms } = link.ask(&Ask::Ping { sent_ms: now_ms() })? {
            clocks.take(sent_ms, at_ms, now_ms());
        }
    }
    let facts = Ask::Facts {
        tries_trainer: true,
        trainer: target.trainer.clone(),
        libraries: target.libtorch.clone(),
    };
    let facts = match link.ask(&facts)? {
        Say::Facts(facts) => *facts,
        other => return Err(link.garbled(&format!("{other:?}"))),
    };
    let cluster = match target.scheduler() {
        None => None,
        Some(scheduler) => {
            let scheduler = Box::new(scheduler);
            match link.ask_within(&Ask::Cluster { scheduler }, CLUSTER_PATIENCE)? {
                Say::Cluster(cluster) => Some(*cluster),
                other => return Err(link.garbled(&format!("{other:?}"))),
            }
        }
    };
    Ok((facts, cluster, clocks))
}

/// The error says what to do itself; it is cut where that begins.
fn unreached(error: &LinkError) -> Finding {
    let text = error.to_string();
    let (what, to_do) = match text.split_once("; ") {
        Some((what, to_do)) => (what.to_owned(), Some(to_do.to_owned())),
        None => (text, None),
    };
    Finding {
        about: "line",
        grade: Grade::Bad,
        what,
        to_do,
    }
}

fn judge(target: &Target, ours: &Ours, facts: &Facts, diagnosis: &Diagnosis) -> Vec<Finding> {
    let name = &target.name;
    let mut findings = vec![Finding::good(
        "line",
        format!(
            "{} answers after {} ms ({} {}, {} cores)",
            facts.host,
            diagnosis.connect_ms.unwrap_or(0),
            facts.os,
            facts.arch,
            facts.cores
        ),
    )];
    findings.push(if facts.version != ours.version {
        Finding::bad(
            Grade::Caution,
            "version",
            format!("lathe {} there, {} here", facts.version, ours.version),
            format!("put the same on both sides: lathe target setup {name}"),
        )
    } else if facts.is_built_there {
        Finding::good(
            "version",
            format!("lathe {} on both sides, built there", facts.version),
        )
    } else if facts.program_hash != ours.program_hash && target.program.is_none() {
        Finding::bad(
            Grade::Caution,
            "version",
            format!("lathe {} on both sides, in different builds", facts.version),
            format!("lathe target setup {name} puts this build there"),
        )
    } else {
        Finding::good("version", format!("lathe {} on both sides", facts.version))
    });
    findings.push(trainer(target, facts));
    match &diagnosis.cluster {
        None => findings.extend(gpus(facts)),
        Some(found) => findings.extend(cluster(target, found)),
    }
    findings.push(disk(facts));
    if target.kind == TargetKind::Ssh {
        findings.push(session(facts));
    }
    findings.push(clock(diagnosis));
    findings.extend(runs(facts));
    findings
}

fn runs(facts: &Facts) -> Option<Finding> {
    let names: Vec<&str> = facts.running.iter().map(|run| run.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let words = format!("{} going or waiting: {}", names.len(), names.join(", "));
        Finding::good("runs", words)
    })
}

/// What there is of its scheduler. The GPUs of the machine that is spoken to are nobody's business then.
fn cluster(target: &Target, facts: &ClusterFacts) -> Vec<Finding> {
    let about = target.kind.word();
    if let Some(problem) = &facts.problem {
        let (what, to_do) = match problem
            .split_once(": ")
            .filter(|_| problem.starts_with("there is no"))
        {
            Some((what, to_do)) => (what.to_owned(), Some(to_do.to_owned())),
            None => match problem.split_once("; ") {
                Some((what, to_do)) => (what.to_owned(), Some(to_do.to_owned())),
                None => (problem.clone(), None),
            },
        };
        return vec![Finding {
            about,
            grade: Grade::Bad,
            what,
            to_do,
        }];
    }
    let version = facts
        .version
        .as_deref()
        .unwrap_or("a version it does not tell");
    let mut findings = vec![Finding::good(about, format!("{version} answers"))];
    let wanted: Vec<&str> = target
        .slurm
        .partition
        .iter()
        .flat_map(|names| names.split(','))
        .collect();
    for name in &wanted {
        if !facts.parts.iter().any(|part| part.name == *name) {
            let names: Vec<&str> = facts.parts.iter().map(|part| part.name.as_str()).collect();
            findings.push(Finding::bad(
                Grade::Bad,
                "parts",
                format!("there is no partition {name}"),
                format!(
                    "set `partition` in targets.yaml to one of {}",
                    names.join(", ")
                ),
            ));
        }
    }
    let is_ours = |part: &PartFacts| {
        if wanted.is_empty() {
            part.is_default
        } else {
            wanted.contains(&part.name.as_str())
        }
    };
    findings.extend(
        facts
            .parts
            .iter()
            .map(|part| part_finding(target, part, is_ours(part))),
    );
    if target.kind == TargetKind::Slurm {
        findings.push(match &facts.history {
            Some(_) => Finding::good("history", "sacct tells how jobs ended"),
            None => Finding::good(
                "history",
                "no accounting here (sacct): how a job ended is known for the minutes that Slurm remembers it, and by what lathe itself \
                 writes beside the run",
            ),
        });
    }
    findings
}

fn part_finding(target: &Target, part: &PartFacts, is_ours: bool) -> Finding {
    let mut words = Vec::new();
    let unusable = match part.unusable_nodes {
        0 => String::new(),
        count => format!(", {count} down or drained"),
    };
    match target.kind {
        TargetKind::Slurm => words.push(format!(
            "{} of {} nodes idle{unusable}",
            part.idle_nodes, part.nodes
        )),
        _ => words.push(format!("{} nodes", part.nodes)),
    }
    if part.gpus > 0 {
        words.push(format!(
            "{} of {} GPUs free",
            part.gpus - part.used_gpus.min(part.gpus),
            part.gpus
        ));
    } else {
        words.push("no GPUs".to_owned());
    }
    words.push(format!(
        "{} of {} processors free",
        part.cpus - part.used_cpus.min(part.cpus),
        part.cpus
    ));
    if let Some(limit) = &part.time_limit {
        words.push(format!("at most {limit}"));
    }
    let mark = if is_ours && target.kind == TargetKind::Slurm {
        " (for these runs)"
    } else {
        ""
    };
    let what = match target.kind {
        TargetKind::Slurm => format!("partition {}{mark}: {}", part.name, words.join(", ")),
        _ => words.join(", "),
    };
    if !is_ours || (part.is_up && part.unusable_nodes < part.nodes.max(1)) {
        return Finding::good("parts", what);
    }
    let why = if part.is_up {
        "none of its nodes can be used"
    } else {
        "it is closed"
    };
    Finding::bad(
        Grade::Caution,
        "parts",
        format!("{what}; {why}"),
        "runs wait until it is open again; name another as `partition` in targets.yaml, or ask who runs the cluster",
    )
}

fn trainer(target: &Target, facts: &Facts) -> Finding {
    let trainer = &facts.trainer;
    let name = &target.name;
    if let Some(problem) = &trainer.problem {
        let to_do = if trainer.path.is_some() {
            format!(
                "its libraries are missing there: lathe target setup {name} copies them, or name their folder as `libtorch` in targets.yaml"
            )
        } else {
            format!("lathe target setup {name} copies it, or name it as `trainer` in targets.yaml")
        };
        return Finding::bad(Grade::Bad, "trainer", problem.clone(), to_do);
    }
    let version = trainer.version.as_deref().unwrap_or("?");
    let libtorch = match &trainer.libtorch {
        Some(version) => format!("libtorch {version}"),
        None => "libtorch of an unknown version".to_owned(),
    };
    if version != facts.version {
        return Finding::bad(
            Grade::Caution,
            "trainer",
            format!("lathe-trainer {version} beside lathe {}", facts.version),
            format!("lathe target setup {name} puts both there together"),
        );
    }
    Finding::good(
        "trainer",
        format!("lathe-trainer {version} starts, {libtorch}"),
    )
}

fn gpus(facts: &Facts) -> Vec<Finding> {
    if let Some(problem) = &facts.gpus_problem {
        return vec![Finding::bad(
            Grade::Caution,
            "gpus",
            problem.clone(),
            "runs train on its processors; with a GPU, install the driver so that nvidia-smi works",
        )];
    }
    let mut findings: Vec<Finding> = facts.gpus.iter().map(gpu).collect();
    if findings.is_empty() {
        findings.push(Finding::good("gpus", "none"));
    } else if !findings.iter().any(|finding| finding.grade == Grade::Good) {
        findings.push(Finding::bad(
            Grade::Caution,
            "gpus",
            "none is free",
            "a run with gpus: auto waits for one",
        ));
    }
    findings
}

fn gpu(gpu: &Gpu) -> Finding {
    let what = format!(
        "GPU {} {}: {} of {} MiB used",
        gpu.index, gpu.name, gpu.used_mib, gpu.memory_mib
    );
    if let Some(run) = &gpu.held_by {
        return Finding {
            about: "gpus",
            grade: Grade::Caution,
            what: format!("{what}, held by {run}"),
            to_do: None,
        };
    }
    if gpu.processes.is_empty() {
        return Finding::good("gpus", format!("{what}, free"));
    }
    let users: Vec<String> = gpu
        .processes
        .iter()
        .map(|process| {
            format!(
                "{} ({}, {} MiB)",
                process.user, process.name, process.used_mib
            )
        })
        .collect();
    Finding {
        about: "gpus",
        grade: Grade::Caution,
        what: format!("{what}, by {}", users.join(", ")),
        to_do: None,
    }
}

fn disk(facts: &Facts) -> Finding {
    let Some(free) = facts.free_bytes else {
        return Finding::bad(
            Grade::Caution,
            "disk",
            format!("how much room {} has cannot be told", facts.folder),
            "look at it by hand: df",
        );
    };
    let what = format!(
        "{} free of {} at {}",
        gigabytes(free),
        gigabytes(facts.size_bytes.unwrap_or(0)),
        facts.folder
    );
    if free < ENOUGH_BYTES {
        return Finding::bad(
            Grade::Caution,
            "disk",
            what,
            "free some, or name a `folder` on a larger disk in targets.yaml: checkpoints are large",
        );
    }
    Finding::good("disk", what)
}

/// Whether runs outlive the session that starts them.
fn session(facts: &Facts) -> Finding {
    if let Some(problem) = &facts.session_problem {
        let (what, to_do) = problem.split_once(": ").unwrap_or((problem, ""));
        return Finding::bad(Grade::Bad, "session", what, to_do);
    }
    let how = if facts.has_user_systemd {
        "as units of your systemd there"
    } else {
        "in sessions of their own"
    };
    Finding::good("session", format!("runs outlive your login, {how}"))
}

fn clock(diagnosis: &Diagnosis) -> Finding {
    let Some((ahead_ms, exact_ms)) = diagnosis.clock_ahead_ms else {
        return Finding::good("clock", "not compared");
    };
    let word = if ahead_ms >= 0 { "ahead" } else { "behind" };
    let what = format!(
        "its clock is {:.1} s {word} (to {:.1} s)",
        ahead_ms.unsigned_abs() as f64 / 1e3,
        exact_ms as f64 / 1e3
    );
    if ahead_ms.unsigned_abs() > MOST_SKEW_MS + exact_ms {
        return Finding::bad(
            Grade::Caution,
            "clock",
            what,
            "have one of the two set by NTP; lags are right all the same, times of day are not",
        );
    }
    Finding::good("clock", what)
}

/// `52.3 GB`, and of little room `8 MB`.
fn gigabytes(bytes: u64) -> String {
    if bytes < 1_000_000_000 {
        format!("{} MB", bytes / 1_000_000)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{GpuProcess, TrainerFacts};

    fn diagnosis(facts: &Facts, ahead_ms: i64) -> Diagnosis {
        let target = Target::host("gpu1");
        let ours = Ours {
            version: "0.1.0".to_owned(),
            program_hash: "aa".to_owned(),
        };
        let mut diagnosis = Diagnosis {
            target: "gpu1".to_owned(),
            host: "gpu1".to_owned(),
            findings: Vec::new(),
            facts: None,
            cluster: None,
            clock_ahead_ms: Some((ahead_ms, 20)),
            connect_ms: Some(40),
        };
        diagnosis.findings = judge(&target, &ours, facts, &diagnosis);
        diagnosis
    }

    #[test]
    fn this_machine_is_looked_at_without_a_line_a_version_or_a_clock() {
        let target = Target::local();
        let about = |facts: Facts| -> Vec<(&str, Grade, Option<String>)> {
            let findings = examine_this(&target, facts).findings;
            let told = |found: Finding| (found.about, found.grade, found.to_do);
            findings.into_iter().map(told).collect()
        };
        let names: Vec<&str> = about(healthy()).iter().map(|found| found.0).collect();
        assert_eq!(names[..2], ["machine", "trainer"]);
        for elsewhere in ["line", "version", "clock"] {
            assert!(!names.contains(&elsewhere), "{names:?}");
        }
        let mut poor = healthy();
        poor.free_bytes = Some(1_000_000_000);
        poor.trainer.path = None;
        poor.trainer.problem = Some("there is no lathe-trainer; build it".to_owned());
        poor.session_problem = Some("it ends when you log out: let it linger".to_owned());
        let found = about(poor);
        let of = |name: &str| found.iter().find(|found| found.0 == name).unwrap();
        assert_eq!(of("trainer").1, Grade::Bad);
        assert_eq!(of("trainer").2.as_deref(), Some("build it"));
        assert!(of("disk").2.as_deref().unwrap().contains("LATHE_RUNS"));
        assert_eq!(of("session").2.as_deref(), Some("let it linger"));
    }

    fn healthy() -> Facts {
        Facts {
            version: "0.1.0".to_owned(),
            program_hash: "aa".to_owned(),
            host: "gpu1".to_owned(),
            free_bytes: Some(900_000_000_000),
            size_bytes: Some(1_000_000_000_000),
            gpus: vec![Gpu {
                name: "H100".to_owned(),
                memory_mib: 81_559,
                ..Gpu::default()
            }],
            trainer: TrainerFacts {
                path: Some("/x".to_owned()),
                version: Some("0.1.0".to_owned()),
                libtorch: Some("2.13.0".to_owned()),
                ..TrainerFacts::default()
            },
            ..Facts::default()
        }
    }

    #[test]
    fn a_healthy_machine_has_nothing_to_do() {
        let diagnosis = diagnosis(&healthy(), 300);
        assert_eq!(diagnosis.worst(), Grade::Good, "{:#?}", diagnosis.findings);
        assert!(
            diagnosis
                .findings
                .iter()
                .all(|finding| finding.to_do.is_none())
        );
    }

    #[test]
    fn a_cluster_tells_its_partitions_and_what_is_wrong_with_the_one_that_is_wanted() {
        let mut target = Target::host("lab");
        target.kind = TargetKind::Slurm;
        target.slurm.partition = Some("gpu".to_owned());
        let part = |name: &str| PartFacts {
            name: name.to_owned(),
            is_up: true,
            nodes: 4,
            idle_nodes: 1,
            unusable_nodes: 1,
            gpus: 12,
            used_gpus: 5,
            cpus: 96,
            used_cpus: 40,
            time_limit: Some("2-00:00:00".to_owned()),
            ..PartFacts::default()
        };
        let facts = ClusterFacts {
            version: Some("slurm-wlm 22.05.8".to_owned()),
            parts: vec![part("cpu"), part("gpu")],
            ..ClusterFacts::default()
        };
        let findings = cluster(&target, &facts);
        let ours = findings
            .iter()
            .find(|finding| finding.what.starts_with("partition gpu"))
            .unwrap();
        assert_eq!(
            ours.what,
            "partition gpu (for these runs): 1 of 4 nodes idle, 1 down or drained, 7 of 12 GPUs free, 56 of 96 processors free, at \
             most 2-00:00:00"
        );
        assert!(findings.iter().all(|finding| finding.grade == Grade::Good));
        target.slurm.partition = Some("gpus".to_owned());
        let findings = cluster(&target, &facts);
        let missing = findings
            .iter()
            .find(|finding| finding.grade == Grade::Bad)
            .unwrap();
        assert_eq!(missing.what, "there is no partition gpus");
        assert!(missing.to_do.as_ref().unwrap().contains("one of cpu, gpu"));
    }

    #[test]
    fn whatever_is_wrong_has_its_finding_and_what_to_do_about_it() {
        let mut facts = healthy();
        facts.program_hash = "bb".to_owned();
        facts.free_bytes = Some(1_000_000_000);
        facts.session_problem = Some("all ends: run `loginctl enable-linger`".to_owned());
        facts.trainer.problem = Some("it does not start: libtorch_cpu.so".to_owned());
        facts.gpus[0].processes.push(GpuProcess {
            pid: 1,
            user: "bo".to_owned(),
            name: "python3".to_owned(),
            used_mib: 70_000,
        });
        let diagnosis = diagnosis(&facts, -95_000);
        assert_eq!(diagnosis.worst(), Grade::Bad);
        let to_do = |about: &str| {
            diagnosis
                .findings
                .iter()
                .filter(|finding| finding.about == about)
                .filter_map(|finding| finding.to_do.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(to_do("version").contains("lathe target setup gpu1"));
        assert!(to_do("trainer").contains("`libtorch` in targets.yaml"));
        assert!(to_do("disk").contains("`folder`"));
        assert_eq!(to_do("session"), "run `loginctl enable-linger`");
        assert!(to_do("clock").contains("NTP"));
        assert!(to_do("gpus").contains("waits for one"));
        let users = diagnosis
            .findings
            .iter()
            .any(|finding| finding.what.contains("by bo (python3, 70000 MiB)"));
        assert!(users, "{:#?}", diagnosis.findings);
    }
}
