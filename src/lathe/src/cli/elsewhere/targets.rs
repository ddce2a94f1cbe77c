//! Targets from the command line: which there are, how they are, what lies there.

use std::path::Path;

use remote::doctor::{self, Diagnosis, Grade, Ours};
use remote::targets::TargetKind;
use remote::wire::{Ask, Gpus, Say};
use remote::{Link, Target, far, hash};
use runlog::exit_code;
use runlog::run_dir::{self, ROOT_VARIABLE, RunDir, Standing};
use serde_json::json;

use super::{setup, target, there};
use crate::cli::arguments::{RunsPlace, TargetCommand};
use crate::cli::{Failure, Output, run};
use crate::launch;
use crate::terminal::{Role, Terminal};

/// `lathe targets`
pub fn targets(json: bool, out: &mut Output, terminal: Terminal) -> Result<i32, Failure> {
    let targets = launch::targets();
    for complaint in &targets.complaints {
        eprintln!("{} {complaint}", terminal.paint_stderr(Role::Bad, "error:"));
    }
    let rows: Vec<&Target> = targets.all().collect();
    if json {
        for target in rows {
            out.json(&json!({
                "target": target.name, "kind": target.kind.word(), "host": target.host,
                "folder": target.folder, "gpus": gpus_words(target), "at_once": target.at_once,
                "models": target.models,
                "partition": target.slurm.partition,
                "address": (target.kind == TargetKind::Ray).then_some(&target.ray.address),
                "file": target.written.as_ref().map(|(file, _)| file),
                "line": target.written.as_ref().map(|(_, line)| line),
            }))?;
        }
    } else if rows.is_empty() {
        if !targets.complaints.is_empty() {
            return Ok(exit_code::USAGE);
        }
        let files: Vec<String> = targets
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        eprintln!(
            "no targets in {}; any host that `ssh` knows is one: lathe doctor HOST",
            files.join(" or ")
        );
    } else {
        let width =
            |of: fn(&Target) -> usize| rows.iter().map(|target| of(target)).max().unwrap_or(0);
        let names = width(|target| target.name.len()).max(6);
        let hosts = width(|target| target.host.len()).max(4);
        let has_asks = rows.iter().any(|target| !asks_words(target).is_empty());
        let header = format!(
            "{:names$}  {:5}  {:hosts$}  {:12}  AT ONCE{}",
            "TARGET",
            "KIND",
            "HOST",
            "GPUS",
            if has_asks { "  ASKS FOR" } else { "" }
        );
        out.line(&terminal.paint(Role::Muted, &header))?;
        for target in rows {
            let at_once = match target.at_once {
                0 => "-".to_owned(),
                count => count.to_string(),
            };
            let host = match target.kind {
                TargetKind::Local => "-",
                _ if target.is_here() => "here",
                _ => &target.host,
            };
            let asks = asks_words(target);
            let row = format!(
                "{:names$}  {:5}  {host:hosts$}  {:12}  {at_once:7}  {asks}",
                target.name,
                target.kind.word(),
                gpus_words(target)
            );
            out.line(row.trim_end())?;
        }
    }
    let has_errors = !targets.complaints.is_empty();
    Ok(if has_errors {
        exit_code::USAGE
    } else {
        exit_code::OK
    })
}

/// What a job asks its scheduler for.
fn asks_words(target: &Target) -> String {
    let slurm = &target.slurm;
    match target.kind {
        TargetKind::Local | TargetKind::Ssh => String::new(),
        TargetKind::Ray => target.ray.address.clone(),
        TargetKind::Slurm => {
            let named = [
                ("partition", &slurm.partition),
                ("time", &slurm.time),
                ("memory", &slurm.memory),
            ];
            let words: Vec<String> = named
                .iter()
                .filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)))
                .collect();
            words.join(", ")
        }
    }
}

fn gpus_words(target: &Target) -> String {
    match &target.gpus {
        Gpus::Free(count) if target.kind.has_scheduler() => {
            let of = target
                .slurm
                .gpu_type
                .as_ref()
                .map_or_else(String::new, |name| format!(" {name}"));
            format!("{count}{of}")
        }
        Gpus::AsIs => "as it is".to_owned(),
        Gpus::None => "none".to_owned(),
        Gpus::Free(1) => "one free".to_owned(),
        Gpus::Free(count) => format!("{count} free"),
        Gpus::These(these) => {
            let these: Vec<String> = these.iter().map(ToString::to_string).collect();
            these.join(",")
        }
    }
}

fn ours() -> Ours {
    Ours {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program_hash: hash::blob_of(Path::new("/proc/self/exe"))
            .map(|blob| blob.hash)
            .unwrap_or_default(),
    }
}

/// `lathe doctor TARGET`
pub fn examine(
    name: &str,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let target = target(name, terminal)?;
    let diagnosis = if target.kind.is_elsewhere() {
        doctor::examine(&target, &ours())
    } else {
        let runs = run_dir::root(None, std::env::var_os(ROOT_VARIABLE).as_deref());
        doctor::examine_this(&target, far::own_facts(there::here(), &runs))
    };
    if json {
        out.json(&diagnosis)?;
    } else {
        tell(&diagnosis, out, terminal)?;
    }
    Ok(match (diagnosis.is_reached(), diagnosis.worst()) {
        (false, _) => exit_code::UNREACHABLE,
        (true, Grade::Bad) => exit_code::INPUT,
        (true, Grade::Good | Grade::Caution) => exit_code::OK,
    })
}

fn tell(diagnosis: &Diagnosis, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    for finding in &diagnosis.findings {
        let (role, word) = match finding.grade {
            Grade::Good => (Role::Good, "ok"),
            Grade::Caution => (Role::Caution, "note"),
            Grade::Bad => (Role::Bad, "bad"),
        };
        out.line(&format!(
            "{}  {:8} {}",
            terminal.paint(role, &format!("{word:4}")),
            finding.about,
            finding.what
        ))?;
        if let Some(to_do) = &finding.to_do {
            out.line(&format!("{:15}{} {to_do}", "", terminal.glyph("→", "->")))?;
        }
    }
    Ok(())
}

/// `lathe target setup|login|runs TARGET`
pub fn target_command(
    command: &TargetCommand,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    match command {
        TargetCommand::Setup {
            target: name,
            build,
            source,
        } => {
            let target = target(name, terminal)?;
            let done = setup::set_up(&target, *build, source.as_deref())?;
            setup::tell(&target, &done, out)
        }
        TargetCommand::Login { target: name } => login(&target(name, terminal)?),
        TargetCommand::Adopt {
            target: name,
            run,
            place,
        } => adopt(&target(name, terminal)?, run, place, out),
        TargetCommand::Runs { target: name, json } => {
            runs_there(&target(name, terminal)?, *json, out)
        }
    }
}

/// On this terminal, with whatever questions there are.
fn login(target: &Target) -> Result<i32, Failure> {
    if target.is_here() {
        return Err(Failure::usage(format!(
            "{} is spoken to from this machine: there is nothing to log in to",
            target.name
        )));
    }
    let status = target.ssh().login().status().map_err(|error| {
        Failure::unexpected(format!("cannot start ssh: {error}; is OpenSSH installed?"))
    })?;
    Ok(if status.success() {
        exit_code::OK
    } else {
        exit_code::UNREACHABLE
    })
}

fn runs_there(target: &Target, json: bool, out: &mut Output) -> Result<i32, Failure> {
    let mut link = Link::open(target)?;
    let Say::Runs { runs } = link.ask(&Ask::Runs)? else {
        return Err(Failure::unexpected(format!(
            "{} did not say which runs it has",
            target.name
        )));
    };
    for run in runs {
        let (word, why) = match &run.standing {
            Standing::Running => ("running", String::new()),
            Standing::Queued { why } => ("queued", why.clone()),
            Standing::Lost { reason } => ("lost", reason.clone()),
            Standing::Ended => (
                "ended",
                run.exit
                    .as_ref()
                    .map_or_else(String::new, |exit| exit.reason.clone()),
            ),
        };
        if json {
            out.json(&json!({"run": run.name, "standing": word, "reason": why, "exit": run.exit}))?;
        } else {
            out.line(format!("{word:8}  {}  {why}", run.name).trim_end())?;
        }
    }
    Ok(exit_code::OK)
}

/// `20261201-061724-NAME-eb69e040`: the name.
fn experiment_of(run: &str) -> Option<&str> {
    let (_, rest) = run.split_once('-')?;
    let (_, rest) = rest.split_once('-')?;
    rest.rsplit_once('-').map(|(name, _)| name)
}

/// A copy of a run that lies there and was started from elsewhere.
fn adopt(
    target: &Target,
    argument: &str,
    place: &RunsPlace,
    out: &mut Output,
) -> Result<i32, Failure> {
    let mut link = Link::open(target)?;
    let Say::Runs { runs } = link.ask(&Ask::Runs)? else {
        return Err(Failure::unexpected(format!(
            "{} did not say which runs it has",
            target.name
        )));
    };
    // Newest first.
    let named = runs
        .iter()
        .map(|run| run.name.as_str())
        .find(|name| experiment_of(name) == Some(argument));
    let id_of = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    let fits: Vec<&str> = runs
        .iter()
        .map(|run| run.name.as_str())
        .filter(|name| name.starts_with(argument) || id_of(name).starts_with(argument))
        .collect();
    let name = match (named, &fits[..]) {
        (Some(name), _) | (None, &[name]) => name.to_owned(),
        (None, []) => {
            return Err(Failure::usage(format!(
                "no run on {} matches `{argument}`; see `lathe target runs {}`",
                target.name, target.name
            )));
        }
        (None, _) => {
            return Err(Failure::usage(format!(
                "`{argument}` fits {} runs on {}: {}; give more of the id",
                fits.len(),
                target.name,
                fits.join(", ")
            )));
        }
    };
    let root = run::root(place);
    if let Ok(known) = RunDir::open(&root.join(&name)) {
        return Err(Failure::input(format!(
            "{} is here already; watch it: lathe watch {}",
            known.path().display(),
            known.info().id
        )));
    }
    let run_dir = launch::adopt(&mut link, target, &name, &root)
        .map_err(|error| Failure::input(error.to_string()))?;
    out.line(&format!(
        "{} is the copy of a run on {}; watch it: lathe watch {}",
        run_dir.path().display(),
        target.name,
        run_dir.info().id
    ))?;
    Ok(exit_code::OK)
}
