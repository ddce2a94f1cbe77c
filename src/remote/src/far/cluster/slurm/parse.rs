//! What Slurm's commands print, as values. Pure.

use crate::scheduler::PartFacts;

/// A job, as `scontrol -o show job` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Shown {
    /// The number that `srun --jobid` takes: of a task of an array another than its name.
    pub number: String,
    /// `PENDING`, `RUNNING`, … the first word, without flags.
    pub state: String,
    pub reason: String,
    pub partition: String,
    pub node: String,
    pub restarts: u32,
    pub code: i32,
    pub signal: i32,
    pub start: Option<String>,
    pub end: Option<String>,
    pub time_limit: Option<String>,
    pub is_preempted: bool,
}

/// `scontrol -o show job`; of an array the first line.
pub(super) fn shown(text: &str) -> Option<Shown> {
    let line = text.lines().find(|line| line.contains("JobState="))?;
    // A job's name is ours and holds no space; what others write (comments) comes behind what is read here.
    let field = |name: &str| {
        line.split_ascii_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .filter(|value| !matches!(*value, "(null)" | "None" | "N/A" | "Unknown" | ""))
            .map(str::to_owned)
    };
    let (code, signal) = exit_code(&field("ExitCode").unwrap_or_default());
    Some(Shown {
        number: field("JobId").unwrap_or_default(),
        state: field("JobState")?,
        reason: field("Reason").unwrap_or_default(),
        partition: field("Partition").unwrap_or_default(),
        node: field("NodeList").unwrap_or_default(),
        restarts: field("Restarts")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        code,
        signal,
        start: field("StartTime"),
        end: field("EndTime"),
        time_limit: field("TimeLimit"),
        is_preempted: field("PreemptTime").is_some(),
    })
}

/// `5:0`: code and signal.
fn exit_code(text: &str) -> (i32, i32) {
    let (code, signal) = text.split_once(':').unwrap_or((text, "0"));
    (code.parse().unwrap_or(0), signal.parse().unwrap_or(0))
}

/// `sacct -X -n -P -o State,ExitCode,NodeList`: the last start of the job.
pub(super) fn accounted(text: &str) -> Option<Shown> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let mut fields = line.split('|').map(str::trim);
    // `CANCELLED by 1000`.
    let state = fields.next()?.split_ascii_whitespace().next()?.to_owned();
    let (code, signal) = exit_code(fields.next().unwrap_or(""));
    Some(Shown {
        state,
        code,
        signal,
        node: fields.next().unwrap_or("").to_owned(),
        ..Shown::default()
    })
}

/// The place of a job among those that wait, by lines of `squeue`, the next to start first. Tasks of an array stand in one line.
pub(super) fn place(queue: &str, job: &str) -> Option<(usize, usize)> {
    let array = job.split('_').next().unwrap_or(job);
    let lines: Vec<&str> = queue
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let is_ours = |line: &&str| *line == job || line.split('_').next() == Some(array);
    let place = lines.iter().position(is_ours)?;
    Some((place + 1, lines.len()))
}

/// `sbatch --parsable`: `12`, or `12;cluster`.
pub(super) fn submitted(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let id = line.trim().split(';').next()?;
    let is_number = !id.is_empty() && id.chars().all(|c| c.is_ascii_digit());
    is_number.then(|| id.to_owned())
}

/// How many GPUs a list of generic resources names: `gpu:a100:4(S:0-1),shard:8`, `gpu:2(IDX:0-1)`, `(null)`.
pub(super) fn gpus_of(list: &str) -> u32 {
    // Commas in brackets list indices.
    let mut depth = 0;
    let plain: String = list
        .chars()
        .filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => {
                    depth -= 1;
                    return false;
                }
                _ => {}
            }
            depth <= 0
        })
        .collect();
    plain
        .split(',')
        .filter_map(|resource| {
            let mut parts = resource.trim().split(':');
            (parts.next()? == "gpu").then(|| {
                parts
                    .next_back()
                    .map_or(1, |count| count.parse().unwrap_or(1))
            })
        })
        .sum()
}

/// The columns that [`parts`] reads.
pub(super) const NODE_COLUMNS: &str = "NodeList:|,PartitionName:|,StateCompact:|,Gres:|,GresUsed:|,CPUsState:|,Time:|,Available:|,Partition:|";

/// Partitions, from a line a node and partition.
pub(super) fn parts(text: &str) -> Vec<PartFacts> {
    let mut parts: Vec<PartFacts> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [
            _,
            name,
            state,
            gres,
            used,
            cpus,
            time,
            available,
            starred,
            ..,
        ] = fields[..]
        else {
            continue;
        };
        if name.is_empty() {
            continue;
        }
        let index = parts
            .iter()
            .position(|part| part.name == name)
            .unwrap_or_else(|| {
                parts.push(PartFacts {
                    name: name.to_owned(),
                    is_default: starred.ends_with('*'),
                    is_up: available == "up",
                    time_limit: Some(time.to_owned()).filter(|time| time != "infinite"),
                    ..PartFacts::default()
                });
                parts.len() - 1
            });
        let part = &mut parts[index];
        part.nodes += 1;
        // Flags behind: `idle*` does not answer, `mix~` sleeps.
        let plain = state.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_usable = matches!(plain, "idle" | "mix" | "alloc" | "comp" | "resv" | "plnd")
            && !state.ends_with('*');
        if !is_usable {
            part.unusable_nodes += 1;
            continue;
        }
        part.idle_nodes += u32::from(plain == "idle");
        part.gpus += gpus_of(gres);
        part.used_gpus += gpus_of(used);
        let counts: Vec<u32> = cpus
            .split('/')
            .filter_map(|count| count.parse().ok())
            .collect();
        if let [allocated, _, _, total] = counts[..] {
            part.used_cpus += allocated;
            part.cpus += total;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Slurm 22.05 printed it.
    const PENDING: &str = "JobId=3 ArrayJobId=3 ArrayTaskId=2 JobName=sbatch UserId=root(0) GroupId=root(0) MCS_label=N/A \
        Priority=4294901757 Nice=0 Account=(null) QOS=(null) JobState=PENDING Reason=JobArrayTaskLimit Dependency=(null) Requeue=1 \
        Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:10:00 TimeMin=N/A EligibleTime=Unknown \
        StartTime=Unknown EndTime=Unknown Partition=low NodeList= NumNodes=1-1 Comment=JobState=RUNNING ";
    const PREEMPTED: &str = "JobId=1 JobName=x JobState=RUNNING Reason=None Requeue=1 Restarts=0 ExitCode=0:15 TimeLimit=00:10:00 \
        StartTime=2026-12-01T01:02:49 EndTime=2026-12-01T01:03:12 PreemptEligibleTime=2026-12-01T01:02:49 \
        PreemptTime=2026-12-01T01:02:52 Partition=low NodeList=node1 BatchHost=node1\n";

    #[test]
    fn a_job_is_read_from_its_one_line() {
        let waiting = shown(PENDING).unwrap();
        assert_eq!(
            (waiting.state.as_str(), waiting.reason.as_str()),
            ("PENDING", "JobArrayTaskLimit")
        );
        assert_eq!((waiting.node.as_str(), waiting.start), ("", None));
        assert!(!waiting.is_preempted);
        let ending = shown(PREEMPTED).unwrap();
        assert!(ending.is_preempted);
        assert_eq!(
            (ending.code, ending.signal, ending.node.as_str()),
            (0, 15, "node1")
        );
        assert_eq!(
            shown("slurm_load_jobs error: Invalid job id specified"),
            None
        );
    }

    #[test]
    fn the_last_start_of_a_job_counts_in_the_accounts() {
        let text = "PREEMPTED|0:0|node1\nCANCELLED by 1000|0:15|node2\n";
        let found = accounted(text).unwrap();
        assert_eq!(
            (found.state.as_str(), found.signal, found.node.as_str()),
            ("CANCELLED", 15, "node2")
        );
        assert_eq!(accounted("\n"), None);
    }

    #[test]
    fn a_place_in_the_queue_counts_arrays_as_one() {
        let queue = "7\n3_[1-3%1]\n9_4\n12\n";
        assert_eq!(place(queue, "12"), Some((4, 4)));
        assert_eq!(place(queue, "3_2"), Some((2, 4)));
        assert_eq!(place(queue, "99"), None);
    }

    #[test]
    fn an_id_is_a_number() {
        assert_eq!(submitted("12\n").as_deref(), Some("12"));
        assert_eq!(
            submitted("a message of the day\n12;west\n").as_deref(),
            Some("12")
        );
        assert_eq!(submitted("Submitted batch job 12"), None);
        assert_eq!(submitted(""), None);
    }

    #[test]
    fn gpus_are_counted_in_every_way_they_are_written() {
        for (list, count) in [
            ("gpu:2", 2),
            ("gpu:a100:4(S:0-1),shard:8", 4),
            ("gpu:2(IDX:0,1)", 2),
            ("gpu:a100:3(IDX:0-2),gpu:v100:1(IDX:3)", 4),
            ("gpu", 1),
            ("(null)", 0),
            ("", 0),
            ("craynetwork:4", 0),
        ] {
            assert_eq!(gpus_of(list), count, "{list}");
        }
    }

    #[test]
    fn partitions_add_up_over_their_nodes() {
        let text = "n1|low|mix|gpu:4|gpu:1(IDX:0)|2/2/0/4|1:00:00|up|low*|\nn2|low|idle|gpu:4|gpu:0|0/4/0/4|1:00:00|up|low*|\n\
                    n3|low|drain|gpu:4|gpu:0|0/0/4/4|1:00:00|up|low*|\nn4|low|idle*|gpu:4|gpu:0|0/4/0/4|1:00:00|up|low*|\n\
                    n1|high|mix|gpu:4|gpu:1|2/2/0/4|infinite|down|high|\nnonsense\n";
        let parts = parts(text);
        assert_eq!(parts.len(), 2);
        let low = &parts[0];
        assert!(low.is_default && low.is_up && !parts[1].is_default && !parts[1].is_up);
        assert_eq!((low.nodes, low.idle_nodes, low.unusable_nodes), (4, 1, 2));
        assert_eq!(
            (low.gpus, low.used_gpus, low.cpus, low.used_cpus),
            (8, 1, 8, 2)
        );
        assert_eq!(
            (low.time_limit.as_deref(), parts[1].time_limit.as_deref()),
            (Some("1:00:00"), None)
        );
    }
}
