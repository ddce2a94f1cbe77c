//! The script of a job. Nothing in it comes from a run but paths, each one word of the shell.

use std::fmt::Write as _;
use std::path::Path;

use crate::scheduler::{Requeue, Slurm};
use crate::ssh::quoted;
use crate::wire::SUPERVISE_COMMAND;

/// What the one process of a job is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    /// lathe's program, as the node sees it.
    pub program: &'a Path,
    pub runs: &'a [&'a Path],
    pub gpus: u32,
    /// Of an array, so many tasks at once; 0: as many as fit.
    pub at_once: u32,
    /// It can go on from a checkpoint.
    pub can_go_on: bool,
}

/// `Err`: what no script can hold.
pub(super) fn script(asked: &Slurm, work: Work<'_>) -> Result<String, String> {
    let mut text = "#!/bin/bash\n".to_owned();
    for option in options(asked, work) {
        let _ = writeln!(text, "#SBATCH {option}");
    }
    text.push_str(
        "# The job's one process is lathe, which watches over the run and hears Slurm's signals itself.\n",
    );
    let word = |path: &Path| {
        path.to_str().and_then(quoted).ok_or_else(|| {
            format!(
                "{} cannot stand in a script: it holds a line break or no text",
                path.display()
            )
        })
    };
    match work.runs {
        [run] => {
            let _ = writeln!(text, "run={}", word(run)?);
        }
        runs => {
            text.push_str("case $SLURM_ARRAY_TASK_ID in\n");
            for (index, run) in runs.iter().enumerate() {
                let _ = writeln!(text, "{index}) run={} ;;", word(run)?);
            }
            text.push_str("esac\n");
        }
    }
    text.push_str("exec >>\"$run/supervisor.log\" 2>&1\n");
    for line in &asked.before {
        text.push_str(line);
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "exec {} {SUPERVISE_COMMAND} \"$run\"",
        word(work.program)?
    );
    Ok(text)
}

fn options(asked: &Slurm, work: Work<'_>) -> Vec<String> {
    let mut options = Vec::new();
    let mut text = |name: &str, value: &Option<String>| {
        options.extend(value.as_ref().map(|value| format!("--{name}={value}")));
    };
    text("partition", &asked.partition);
    text("account", &asked.account);
    text("qos", &asked.qos);
    text("time", &asked.time);
    text("constraint", &asked.constraint);
    text("mem", &asked.memory);
    options.push("--nodes=1".to_owned());
    options.push("--ntasks=1".to_owned());
    options.extend(asked.cpus.map(|count| format!("--cpus-per-task={count}")));
    if work.gpus > 0 {
        let of = asked
            .gpu_type
            .as_ref()
            .map_or_else(String::new, |name| format!("{name}:"));
        options.push(format!("--gres=gpu:{of}{}", work.gpus));
    }
    if work.runs.len() > 1 {
        let at_once = match work.at_once {
            0 => String::new(),
            count => format!("%{count}"),
        };
        options.push(format!("--array=0-{}{at_once}", work.runs.len() - 1));
    }
    let requeues = asked.requeue != Requeue::Never && work.can_go_on;
    options.push(
        if requeues {
            "--requeue"
        } else {
            "--no-requeue"
        }
        .to_owned(),
    );
    options.push("--open-mode=append".to_owned());
    options.push(format!("--signal=B:USR1@{}", asked.warning_s));
    // Last: what is written by hand wins.
    options.extend(asked.options.iter().cloned());
    options
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn work<'a>(runs: &'a [&'a Path]) -> Work<'a> {
        Work {
            program: Path::new("/home/ana/.lathe/current/lathe"),
            runs,
            gpus: 2,
            at_once: 0,
            can_go_on: true,
        }
    }

    #[test]
    fn a_script_says_what_was_asked_for_and_is_the_run_itself() {
        let asked = Slurm {
            partition: Some("gpu".to_owned()),
            account: Some("lab".to_owned()),
            qos: Some("long".to_owned()),
            time: Some("2-12".to_owned()),
            cpus: Some(8),
            memory: Some("64G".to_owned()),
            gpu_type: Some("a100".to_owned()),
            constraint: Some("ib&nvme".to_owned()),
            requeue: Requeue::Always,
            warning_s: 300,
            options: vec!["--nice=100".to_owned(), "--exclude=node[3-4]".to_owned()],
            before: vec!["module load cuda/12.4".to_owned()],
        };
        let run = Path::new("/home/ana/.lathe/runs/2026-it's mine");
        insta::assert_snapshot!("whole", script(&asked, work(&[run])).unwrap());
    }

    #[test]
    fn a_target_that_asks_for_nothing_leaves_all_to_the_cluster() {
        let runs = [Path::new("/l/runs/a")];
        let work = Work {
            gpus: 0,
            can_go_on: false,
            ..work(&runs)
        };
        insta::assert_snapshot!("bare", script(&Slurm::default(), work).unwrap());
    }

    #[test]
    fn several_runs_are_one_array() {
        let runs = [
            Path::new("/l/runs/a"),
            Path::new("/l/runs/b"),
            Path::new("/l/runs/c d"),
        ];
        let work = Work {
            at_once: 2,
            ..work(&runs)
        };
        insta::assert_snapshot!("array", script(&Slurm::default(), work).unwrap());
    }

    #[test]
    fn a_path_with_a_line_break_is_refused() {
        let run = Path::new("/l/runs/a\nrm -rf");
        assert!(script(&Slurm::default(), work(&[run])).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_name_of_a_run_comes_through_the_script_as_one_word(name in r#"[ '"\\$`!;&|<>(){}*?~#\[\]a-c%=]{1,24}"#, other in "[^\0\n\r/]{1,20}") {
            let root = tempfile::tempdir().unwrap();
            // What the job becomes: it tells its arguments.
            let program = root.path().join("it's $(a) program");
            std::fs::write(&program, "#!/bin/sh\nprintf '%s|' \"$@\"\n").unwrap();
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let runs: Vec<PathBuf> = [name, other].iter().enumerate()
                .map(|(index, name)| root.path().join(format!("{index}{name}")))
                .collect();
            for run in &runs {
                std::fs::create_dir(run).unwrap();
            }
            let paths: Vec<&Path> = runs.iter().map(PathBuf::as_path).collect();
            let work = Work { program: &program, ..work(&paths) };
            let text = script(&Slurm::default(), work).unwrap();
            for (index, run) in runs.iter().enumerate() {
                let status = Command::new("bash").arg("-c").arg(&text)
                    .env("SLURM_ARRAY_TASK_ID", index.to_string())
                    .status().unwrap();
                prop_assert!(status.success());
                let said = std::fs::read_to_string(run.join("supervisor.log")).unwrap();
                prop_assert_eq!(said, format!("{SUPERVISE_COMMAND}|{}|", run.display()));
            }
        }
    }
}
