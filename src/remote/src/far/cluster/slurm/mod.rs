//! Slurm, by its own commands on this machine: sbatch, scontrol, squeue, scancel, sacct, sinfo, srun.

mod parse;
mod script;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::command::{Failed, output};
use super::{JobEnd, JobState};
use crate::scheduler::{ClusterFacts, PartFacts, Slurm};
use crate::wire::{Gpus, JOIN_COMMAND};

pub(crate) use parse::Shown;

/// Words of an error that say: Slurm does not know the job (any more).
const NO_SUCH_JOB: &str = "Invalid job id";

fn slurm(program: &str) -> Command {
    let mut command = Command::new(program);
    // Formats of the user's own would change what is read.
    for name in [
        "SLURM_TIME_FORMAT",
        "SQUEUE_FORMAT",
        "SQUEUE_SORT",
        "SQUEUE_STATES",
        "SINFO_FORMAT",
        "SACCT_FORMAT",
    ] {
        command.env_remove(name);
    }
    command
}

/// What Slurm is to run.
#[derive(Debug)]
pub(super) struct Submission<'a> {
    pub asked: &'a Slurm,
    pub program: &'a Path,
    pub runs: &'a [&'a Path],
    pub gpus: &'a Gpus,
    pub at_once: u32,
    pub can_go_on: bool,
    pub name: &'a str,
    /// Handed on in memory, and kept by Slurm's controller as it keeps every job's environment.
    pub environment: &'a BTreeMap<String, String>,
}

/// Puts runs into the queue and gives the job of each.
pub(super) fn submit(submission: &Submission<'_>) -> Result<Vec<String>, String> {
    let [first, ..] = submission.runs else {
        return Err("no run is given".to_owned());
    };
    let work = script::Work {
        program: submission.program,
        runs: submission.runs,
        gpus: gpus(submission.asked, submission.gpus)?,
        at_once: submission.at_once,
        can_go_on: submission.can_go_on,
    };
    let text = script::script(submission.asked, work)?;
    for run in submission.runs {
        runlog::run_dir::write_renamed(&run.join("job.sh"), text.as_bytes())
            .map_err(|error| error.to_string())?;
    }
    let mut command = slurm("sbatch");
    // A job of an outer job would inherit that one's shape.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if ["SLURM_", "SBATCH_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
            && !is_of_place(&text)
        {
            command.env_remove(name);
        }
    }
    let is_one = submission.runs.len() == 1;
    command
        .arg("--parsable")
        .arg(format!("--job-name={}", plain(submission.name)))
        // `%` in the name of a file means something; a relative one is looked for in the folder.
        .arg(if is_one {
            "--output=supervisor.log"
        } else {
            "--output=job-%a.log"
        })
        .arg("--chdir")
        .arg(first)
        .envs(submission.environment);
    let printed = output(command, &text).map_err(|failed| refused(&failed, submission.asked))?;
    let id = parse::submitted(&printed).ok_or_else(|| {
        format!(
            "sbatch did not say the number of the job, but: {}",
            printed.trim()
        )
    })?;
    Ok(if is_one {
        vec![id]
    } else {
        (0..submission.runs.len())
            .map(|index| format!("{id}_{index}"))
            .collect()
    })
}

/// Which cluster it is about stays as the user set it.
fn is_of_place(name: &str) -> bool {
    matches!(name, "SLURM_CONF" | "SLURM_CLUSTERS" | "SBATCH_CLUSTERS")
}

/// For Slurm's lists, where a name with spaces would be read as several words.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect()
}

/// sbatch's own words, and what to do where they do not say it.
fn refused(failed: &Failed, asked: &Slurm) -> String {
    let words = failed.told("sbatch");
    let text = words.to_lowercase();
    let to_do = [
        (&["invalid partition"][..], "`partition` in targets.yaml names none of this cluster's: lathe doctor lists them"),
        (&["invalid account", "account/partition combination"], "set `account` in targets.yaml to one of yours (sacctmgr show assoc user=$USER), with a partition that it may use"),
        (&["invalid qos"], "set `qos` in targets.yaml to one that your account may use, or leave it out"),
        (&["generic resource", "gres"], "that partition has no such GPUs: set `gpus` and `gpu_type` in targets.yaml to what lathe doctor lists"),
        (&["time limit", "invalid time"], "lower `time` in targets.yaml: lathe doctor lists the limits of partitions"),
        (&["memory specification", "memory"], "lower `memory` in targets.yaml"),
        (&["node configuration is not available", "nodes required"], "no node has as many GPUs, processors or as much memory: lower `gpus`, `cpus` or `memory` in targets.yaml"),
        (&["unable to contact", "socket timed out", "unable to resolve"], "Slurm's controller does not answer: try again, or ask who runs it (scontrol ping)"),
        (&["limit"], "a limit of your account or partition stands against it: ask for less in targets.yaml, or wait until your other jobs have ended"),
    ]
    .into_iter()
    .find(|(marks, _)| marks.iter().any(|mark| text.contains(mark)))
    .map(|(_, to_do)| to_do);
    match (failed, to_do) {
        (Failed::Said(_), Some(to_do)) => {
            let asked_for = asked
                .partition
                .as_deref()
                .map_or_else(String::new, |name| format!(" (partition {name})"));
            format!("{words}; {to_do}{asked_for}")
        }
        _ => words,
    }
}

/// How many GPUs to ask for: one where nothing is said and there are any.
fn gpus(asked: &Slurm, wanted: &Gpus) -> Result<u32, String> {
    let count = match wanted {
        Gpus::AsIs | Gpus::None => return Ok(0),
        Gpus::These(_) => {
            return Err(
                "Slurm chooses which GPUs a job gets: give a number as `gpus` in targets.yaml"
                    .to_owned(),
            );
        }
        Gpus::Free(count) => *count,
    };
    let Ok(parts) = nodes() else {
        // sbatch says what is wrong.
        return Ok(count);
    };
    let of_ours = parts.iter().filter(|part| match &asked.partition {
        Some(names) => names.split(',').any(|name| name == part.name),
        None => part.is_default || parts.len() == 1,
    });
    let has_any = of_ours.clone().any(|part| part.gpus > 0);
    // Nodes that are down count nothing: then the queue decides.
    let is_known = of_ours.clone().any(|part| part.unusable_nodes < part.nodes);
    Ok(if count == 1 && is_known && !has_any {
        0
    } else {
        count
    })
}

fn nodes() -> Result<Vec<PartFacts>, Failed> {
    let mut command = slurm("sinfo");
    command.args(["-h", "-N", "-O", parse::NODE_COLUMNS]);
    output(command, "").map(|text| parse::parts(&text))
}

/// The job as the controller knows it; None: it does not.
pub(in super::super) fn show(job: &str) -> Result<Option<Shown>, Failed> {
    let mut command = slurm("scontrol");
    command.args(["-o", "show", "job", job]);
    match output(command, "") {
        Ok(text) => Ok(parse::shown(&text)),
        Err(Failed::Said(words)) if words.contains(NO_SUCH_JOB) => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// How a job stands.
pub(super) fn state(job: &str) -> JobState {
    let shown = match show(job) {
        Ok(Some(shown)) => shown,
        Ok(None) => match account(job) {
            Some(shown) => shown,
            None => return JobState::Forgotten,
        },
        Err(failed) => {
            return JobState::Unknown {
                reason: failed.told("scontrol"),
            };
        }
    };
    let place = (shown.state == "PENDING")
        .then(|| place(&shown, job))
        .flatten();
    judged(&shown, job, place)
}

/// By the accounts, where there are any.
fn account(job: &str) -> Option<Shown> {
    let mut command = slurm("sacct");
    command.args([
        "-X",
        "-n",
        "-P",
        "-D",
        "-o",
        "State,ExitCode,NodeList",
        "-j",
        job,
    ]);
    parse::accounted(&output(command, "").ok()?)
}

/// Where it stands among those that wait for the same partition.
fn place(shown: &Shown, job: &str) -> Option<(usize, usize)> {
    let mut command = slurm("squeue");
    command.args(["-h", "--states=PENDING", "--sort=-p,i", "-o", "%i"]);
    if !shown.partition.is_empty() {
        command.arg(format!("--partition={}", shown.partition));
    }
    parse::place(&output(command, "").ok()?, job)
}

fn judged(shown: &Shown, job: &str, place: Option<(usize, usize)>) -> JobState {
    let node = &shown.node;
    match shown.state.as_str() {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT"
        | "RESV_DEL_HOLD" => JobState::Waits {
            why: waits(shown, job, place),
        },
        "CONFIGURING" => JobState::Waits {
            why: format!("for {node} to boot (Slurm's job {job})"),
        },
        "SUSPENDED" | "STOPPED" => JobState::Waits {
            why: format!("suspended by Slurm on {node} (job {job})"),
        },
        "RUNNING" | "COMPLETING" | "STAGE_OUT" | "SIGNALING" | "RESIZING" => JobState::Runs,
        state => JobState::Ended(ended(state, shown, job)),
    }
}

/// `in Slurm's queue: Resources, place 3 of 9, …`
fn waits(shown: &Shown, job: &str, place: Option<(usize, usize)>) -> String {
    let reason = if shown.reason.is_empty() {
        "not looked at yet"
    } else {
        &shown.reason
    };
    let again = match shown.restarts {
        0 => String::new(),
        count => format!(" again (restart {count})"),
    };
    let mut why = format!("in Slurm's queue{again} as job {job}: {reason}");
    if let Some(hint) = hint(reason) {
        why.push_str(" (");
        why.push_str(hint);
        why.push(')');
    }
    if let Some((place, of)) = place {
        // Writing to a text cannot fail.
        let _ = write!(why, ", place {place} of {of}");
    }
    if let Some(start) = &shown.start {
        let _ = write!(why, ", expected to start {}", start.replace('T', " "));
    }
    why
}

/// What a reason means that does not pass by itself, and what to do.
fn hint(reason: &str) -> Option<&'static str> {
    let hint = match reason {
        "PartitionTimeLimit" => "it will not start: lower `time` in targets.yaml",
        "PartitionConfig" | "PartitionNodeLimit" => {
            "it asks for more than the partition allows: lower `time`, `cpus` or `gpus`"
        }
        "JobHeldUser" => "held: scontrol release lets it go",
        "JobHeldAdmin" => "held by who runs the cluster: ask them",
        "InvalidAccount" | "InvalidQOS" => {
            "it will not start: set `account` and `qos` in targets.yaml"
        }
        "BadConstraints" => "no node is like that: look at `constraint` and `gpu_type`",
        "ReqNodeNotAvail" | "NodeDown" => "its nodes are down, drained or reserved",
        "PartitionDown" | "PartitionInactive" => "the partition is closed",
        "BeginTime" => "Slurm waits a while before it starts a job again",
        "JobArrayTaskLimit" => "as many of the sweep run as `at_once` allows",
        "AssocGrpGRES" | "QOSMaxGRESPerUser" | "QOSMaxJobsPerUserLimit" | "AssocMaxJobsLimit" => {
            "a limit of your account: it starts when your other jobs have ended"
        }
        _ => return None,
    };
    Some(hint)
}

fn ended(state: &str, shown: &Shown, job: &str) -> JobEnd {
    let on = if shown.node.is_empty() {
        String::new()
    } else {
        format!(" on {}", shown.node)
    };
    let limit = shown
        .time_limit
        .as_ref()
        .map_or_else(String::new, |limit| format!(" of {limit}"));
    let go_on = "start from its newest checkpoint: lathe run EXPERIMENT --from RUN --on TARGET";
    let reason = match state {
        "OUT_OF_MEMORY" => format!(
            "Slurm killed its job {job}{on} because it used more memory than it had (OUT_OF_MEMORY): give it more with `memory` in \
             targets.yaml, or make the batch or the model smaller"
        ),
        "TIMEOUT" => format!(
            "Slurm ended its job {job}{on} at its time limit{limit} (TIMEOUT): give it more with `time` in targets.yaml, or have it \
             go on in another job with `requeue: always`; or {go_on}"
        ),
        "DEADLINE" => format!("Slurm ended its job {job}{on} at its deadline (DEADLINE); {go_on}"),
        "PREEMPTED" => format!(
            "another job took the place of its job {job}{on} (PREEMPTED), and it was not put into the queue again: that is what \
             `requeue: preempted` in targets.yaml is for, where the cluster allows it; {go_on}"
        ),
        "NODE_FAIL" | "BOOT_FAIL" => format!(
            "its node failed{on} (Slurm's job {job}: {state}), and it was not put into the queue again; {go_on}"
        ),
        "CANCELLED" | "REVOKED" => {
            format!("its job {job}{on} was cancelled (scancel; Slurm says {state}); {go_on}")
        }
        "COMPLETED" => format!(
            "its job {job}{on} is over by Slurm's word, and the run left none: its disk may be full, or not be shared with this machine"
        ),
        _ => format!(
            "its job {job} failed{on} (Slurm says {state}, exit code {}), and the run left no word; see supervisor.log beside it, and \
             whether the node sees its directory and lathe's program",
            shown.code
        ),
    };
    JobEnd {
        reason,
        code: (shown.signal == 0 && state != "OUT_OF_MEMORY").then_some(shown.code),
        signal: match (shown.signal, state) {
            (0, "OUT_OF_MEMORY") => Some(9),
            (0, _) => None,
            (signal, _) => Some(signal),
        },
        is_out_of_memory: state == "OUT_OF_MEMORY",
    }
}

/// Takes it out of the queue, or ends it.
pub(super) fn cancel(job: &str) -> Result<(), String> {
    let mut command = slurm("scancel");
    command.arg(job);
    output(command, "")
        .map(drop)
        .map_err(|failed| failed.told("scancel"))
}

/// As Ctrl-C does: to the job's one process, which is lathe.
pub(super) fn interrupt(job: &str) -> Result<(), String> {
    let mut command = slurm("scancel");
    command.args(["--signal=INT", "--batch", job]);
    output(command, "")
        .map(drop)
        .map_err(|failed| failed.told("scancel"))
}

/// Puts the job that asks into the queue again.
pub(in super::super) fn requeue(job: &str) -> Result<(), String> {
    let mut command = slurm("scontrol");
    command.args(["requeue", job]);
    output(command, "")
        .map(drop)
        .map_err(|failed| failed.told("scontrol requeue"))
}

/// A process on the job's node, which joins its input and output with the run's control socket.
pub(in super::super) fn join(number: &str, program: &Path, run: &Path) -> Result<Child, String> {
    slurm("srun")
        .args([
            "--overlap",
            "--quiet",
            "--nodes=1",
            "--ntasks=1",
            "--unbuffered",
        ])
        .arg(format!("--jobid={number}"))
        .arg("--chdir=/")
        .arg("--")
        .arg(program)
        .arg(JOIN_COMMAND)
        .arg(run)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("srun cannot be started: {error}"))
}

/// What `lathe doctor` tells.
pub(super) fn facts() -> ClusterFacts {
    let mut command = slurm("sbatch");
    command.arg("--version");
    let version = match output(command, "") {
        Ok(text) => text.trim().to_owned(),
        Err(failed) => {
            return ClusterFacts {
                problem: Some(failed.told("sbatch")),
                ..ClusterFacts::default()
            };
        }
    };
    let mut facts = ClusterFacts {
        version: Some(version),
        ..ClusterFacts::default()
    };
    match nodes() {
        Ok(parts) => facts.parts = parts,
        Err(failed) => {
            facts.problem = Some(failed.told("sinfo"));
            return facts;
        }
    }
    let mut command = slurm("sacct");
    command.args(["-X", "-n", "-P", "-o", "JobID", "-S", "now-1minutes"]);
    facts.history = output(command, "").is_ok().then(|| "sacct".to_owned());
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(state: &str) -> Shown {
        Shown {
            state: state.to_owned(),
            node: "n1".to_owned(),
            ..Shown::default()
        }
    }

    #[test]
    fn a_waiting_job_says_why_where_it_stands_and_when() {
        let mut job = shown("PENDING");
        job.reason = "Resources".to_owned();
        job.start = Some("2026-12-01T14:20:00".to_owned());
        assert_eq!(
            judged(&job, "12", Some((3, 9))),
            JobState::Waits {
                why: "in Slurm's queue as job 12: Resources, place 3 of 9, expected to start 2026-12-01 14:20:00".to_owned()
            }
        );
        job.reason = "PartitionTimeLimit".to_owned();
        job.restarts = 2;
        job.start = None;
        assert_eq!(
            judged(&job, "12", None),
            JobState::Waits {
                why: "in Slurm's queue again (restart 2) as job 12: PartitionTimeLimit (it will not start: lower `time` in \
                      targets.yaml)"
                    .to_owned()
            }
        );
    }

    #[test]
    fn each_end_of_a_job_is_named_with_what_to_do() {
        for (state, word, to_do) in [
            ("OUT_OF_MEMORY", "more memory than it had", "`memory`"),
            ("TIMEOUT", "time limit", "`requeue: always`"),
            (
                "PREEMPTED",
                "another job took the place",
                "`requeue: preempted`",
            ),
            ("NODE_FAIL", "its node failed", "--from RUN"),
            ("CANCELLED", "scancel", "--from RUN"),
            ("FAILED", "failed on n1", "supervisor.log"),
            ("SOMETHING_NEW", "SOMETHING_NEW", "supervisor.log"),
        ] {
            let JobState::Ended(end) = judged(&shown(state), "12", None) else {
                panic!("{state} is an end");
            };
            assert!(
                end.reason.contains(word) && end.reason.contains(to_do),
                "{}",
                end.reason
            );
            assert_eq!(end.is_out_of_memory, state == "OUT_OF_MEMORY");
        }
        for state in ["RUNNING", "COMPLETING"] {
            assert_eq!(judged(&shown(state), "12", None), JobState::Runs);
        }
        for state in ["SUSPENDED", "CONFIGURING", "REQUEUE_HOLD"] {
            assert!(
                matches!(judged(&shown(state), "12", None), JobState::Waits { .. }),
                "{state}"
            );
        }
    }

    #[test]
    fn what_sbatch_says_comes_through_word_by_word_with_what_to_do() {
        let told = |words: &str| refused(&Failed::Said(words.to_owned()), &Slurm::default());
        let text = told(
            "sbatch: error: invalid partition specified: none; sbatch: error: Batch job submission failed: Invalid partition name specified",
        );
        assert!(
            text.starts_with("sbatch says: sbatch: error: invalid partition specified: none;"),
            "{text}"
        );
        assert!(text.contains("`partition` in targets.yaml"), "{text}");
        assert!(
            told("Batch job submission failed: Requested node configuration is not available")
                .contains("lower `gpus`")
        );
        assert_eq!(told("something new"), "sbatch says: something new");
    }

    #[test]
    fn a_job_s_name_is_one_word() {
        assert_eq!(plain("2026 a=b'c\n"), "2026-a-b-c-");
    }
}
