//! Runs on other machines from the command line: targets, their health, setting one up, starting there, fetching from there.

mod setup;

use std::ffi::OsStr;
use std::path::Path;

use remote::doctor::{self, Diagnosis, Grade, Ours};
use remote::far::{self, Here};
use remote::near::launch::ShipError;
use remote::near::pull::{self, PullError};
use remote::targets::{TargetError, TargetKind};
use remote::wire::{Ask, Gpus, Say};
use remote::{Keeper, Link, LinkError, Target, hash};
use runlog::exit_code;
use runlog::run_dir::{Mirror, Origin, RunDir, Standing};
use runlog::state::{Liveness, glance};
use serde_json::json;

use super::arguments::{RunsPlace, TargetCommand};
use super::run::refused;
use super::{Failure, Output, experiment_file, report, run, runs};
use crate::headless::{End, Follow, format};
use crate::launch::{self, ElsewhereError, Ending, Order};
use crate::terminal::{Role, Terminal};
use crate::tui::pages::launch::sweep::{self, Combine};

/// How long the first sign of life there may take after the run has begun: loading libtorch from a cold network disk.
const FIRST_SIGN_PATIENCE: std::time::Duration = std::time::Duration::from_secs(180);

/// A scheduler with a free machine looks at its queue within seconds: a run that waits longer is told of.
const QUEUE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);
/// How long the last bytes of a run that has ended may take: its trainer still closes its files.
const LAST_BYTES_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// How long `lathe runs` waits for news of the runs of other machines.
const NEWS_PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let code = match &error {
            LinkError::Refused { .. } => exit_code::INPUT,
            _ => exit_code::UNREACHABLE,
        };
        Self::told(code, error.to_string())
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        Self::usage(error.to_string())
    }
}

/// What answers on this machine when another asks.
pub fn here() -> Here {
    Here {
        version: env!("CARGO_PKG_VERSION"),
        find_trainer: || launch::find_trainer().map_err(|error| error.to_string()),
        exec_command: launch::EXEC_COMMAND,
        explain,
    }
}

fn explain(code: Option<i32>, signal: Option<i32>, log: &Path) -> (String, Vec<String>) {
    let ending = Ending {
        code,
        signal,
        log_lines: launch::last_lines(log, 12).unwrap_or_default(),
    };
    let reason = match code {
        Some(0) => "it ended by itself".to_owned(),
        Some(code) if code != launch::NOT_STARTED => {
            format!("the trainer ended with exit code {code}")
        }
        _ => ending.explanation(),
    };
    (reason, ending.log_lines)
}

/// `lathe __far`
pub fn answer() -> i32 {
    match far::serve(here()) {
        Ok(()) => exit_code::OK,
        // The line was cut: whoever asked will come again.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit_code::OK,
        Err(error) => {
            eprintln!("lathe: {error}");
            exit_code::UNEXPECTED
        }
    }
}

/// `lathe __supervise RUN`
pub fn supervise(run: &Path) -> i32 {
    match far::supervise(here(), run) {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("lathe: {reason}");
            exit_code::UNEXPECTED
        }
    }
}

/// `lathe __join RUN`
pub fn join(run: &Path) -> i32 {
    match far::join_here(run) {
        Ok(()) => exit_code::OK,
        Err(reason) => {
            eprintln!("lathe: {reason}");
            exit_code::UNREACHABLE
        }
    }
}

/// The target that a name means.
pub fn target(name: &str, terminal: Terminal) -> Result<Target, Failure> {
    let targets = launch::targets();
    for complaint in &targets.complaints {
        eprintln!(
            "{} {complaint}",
            terminal.paint_stderr(Role::Caution, "warning:")
        );
    }
    Ok(targets.find(name)?)
}

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
    if !target.kind.is_elsewhere() {
        return Err(Failure::usage(
            "this machine needs no line; `lathe check EXPERIMENT` looks at it",
        ));
    }
    let diagnosis = doctor::examine(&target, &ours());
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
            let done = if *build {
                setup::build(&target, source.as_deref())?
            } else {
                setup::send(&target)?
            };
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
    let id_of = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    let fits: Vec<&str> = runs
        .iter()
        .map(|run| run.name.as_str())
        .filter(|name| name.starts_with(argument) || id_of(name).starts_with(argument))
        .collect();
    let name = match fits[..] {
        [name] => name.to_owned(),
        [] => {
            return Err(Failure::usage(format!(
                "no run on {} matches `{argument}`; see `lathe target runs {}`",
                target.name, target.name
            )));
        }
        _ => {
            return Err(Failure::usage(format!(
                "`{argument}` fits {} runs on {}: {}; give more of the id",
                fits.len(),
                target.name,
                fits.join(", ")
            )));
        }
    };
    let run_dir = launch::adopt(&mut link, target, &name, &run::root(place))
        .map_err(|error| Failure::input(error.to_string()))?;
    out.line(&format!(
        "{} is the copy of a run on {}; watch it: lathe watch {}",
        run_dir.path().display(),
        target.name,
        run_dir.info().id
    ))?;
    Ok(exit_code::OK)
}

/// `lathe run EXPERIMENT --on TARGET`
pub(super) fn run_elsewhere(
    order: Order,
    target: Target,
    form: super::arguments::Form,
    is_detached: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let mut overrides = order.overrides.clone();
    overrides.extend(order.name.as_deref().map(launch::name_override));
    // Tells the complaints.
    experiment_file::load_for_run(&order.experiment, &overrides, terminal)?;
    let told = |error: ElsewhereError| failed(error, terminal);
    let job = order.job;
    let prepared = launch::prepare_elsewhere(order, target).map_err(told)?;
    let begun = prepared
        .start(&mut |name, bytes| {
            eprintln!("sending {name} ({})", format::bytes(bytes));
        })
        .map_err(told)?;
    if begun.shipped.files > 0 {
        eprintln!(
            "sent {} in {}; {} were there already",
            format::bytes(begun.shipped.bytes),
            format::plural(begun.shipped.files, "file"),
            format::bytes(begun.shipped.all_bytes - begun.shipped.bytes)
        );
    }
    let run_dir = begun.run_dir;
    let follow = Follow::new(&run_dir.events_path())
        .map_err(|error| Failure::unexpected(format!("cannot take over signals: {error}")))?;
    let keeper = keep(&run_dir)?;
    if is_detached {
        return detach(&run_dir, &prepared.target, form.json, out);
    }
    let rollouts = (job == launch::Job::Run)
        .then(|| experiment_file::rollouts_per_step(&prepared.loaded.experiment));
    let followed = run::watch(&run_dir, form, rollouts, out, terminal, |view| {
        follow.other(&run_dir, view)
    })?;
    finish(&run_dir, keeper, &followed, form.json, out, terminal)
}

/// `lathe run EXPERIMENT --on TARGET --dry-run`: the command there on the output, what would go along beside it.
pub(super) fn dry_run(
    order: Order,
    target: Target,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let prepared =
        launch::prepare_elsewhere(order, target).map_err(|error| failed(error, terminal))?;
    let words = prepared.words();
    if let Some((command, rest)) = words.split_first() {
        out.line(command)?;
        for line in rest {
            eprintln!("{line}");
        }
    }
    Ok(exit_code::OK)
}

/// `lathe run EXPERIMENT --on TARGET --sweep`: a run for each combination of values, started together and left there.
pub(super) fn sweep(
    order: &Order,
    target: &Target,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    if !target.kind.is_elsewhere() {
        return Err(Failure::usage(
            "--sweep starts runs on another machine; on this one page Launch of the workbench queues them",
        ));
    }
    let plan = sweep::plan(&order.overrides, Combine::Grid).map_err(Failure::usage)?;
    let Some(first) = plan.first() else {
        return Err(Failure::usage("the sweep makes no run"));
    };
    // Tells the complaints, of the first for all.
    let loaded = experiment_file::load_for_run(&order.experiment, &first.overrides, terminal)?;
    let base = order
        .name
        .clone()
        .unwrap_or_else(|| loaded.experiment.trainer.experiment_name.clone());
    let orders = plan
        .iter()
        .map(|planned| Order {
            overrides: planned.overrides.clone(),
            name: Some(sweep::run_name(&base, &planned.label)),
            ..order.clone()
        })
        .collect();
    let started =
        launch::start_together(orders, &target.name).map_err(|error| failed(error, terminal))?;
    for run_dir in &started {
        if json {
            out.json(&json!({
                "event": "detached", "run": run_dir.name(), "run_dir": report::absolute(run_dir.path()),
                "target": target.name,
            }))?;
        } else {
            out.line(&format!(
                "run {} on {}",
                run_dir.path().display(),
                target.name
            ))?;
        }
    }
    if !json {
        out.line(
            "how they stand: lathe runs    watch one: lathe watch RUN    stop one: lathe stop RUN",
        )?;
    }
    Ok(exit_code::OK)
}

/// As [`report::print`], with what the other machine says of a trainer that died.
pub(super) fn finish(
    run_dir: &RunDir,
    keeper: Option<Keeper>,
    followed: &crate::headless::Followed,
    json: bool,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    // The run has ended, and its last lines and its exit are still on their way.
    if let Some(keeper) = keeper
        && !matches!(followed.end, End::Left(_))
    {
        keeper.wait_until_complete(LAST_BYTES_PATIENCE);
    }
    let code = report::print(run_dir, followed, json, out, terminal)?;
    if let End::Recorded(ended) = &followed.end
        && ended.status == runlog::event::RunStatus::Stopped
        && let Some(exit) = runlog::run_dir::Exit::read(run_dir.path())
        && !exit.reason.starts_with("the trainer ended")
    {
        // Whoever stopped it is known there.
        eprintln!("{}: {}", exit.host, exit.reason);
    }
    if let End::Gone { .. } = followed.end
        && let Some(exit) = runlog::run_dir::Exit::read(run_dir.path())
        && !exit.last_words.is_empty()
    {
        eprintln!(
            "last lines of its log on {}:\n{}",
            exit.host,
            exit.last_words.join("\n")
        );
    }
    Ok(code)
}

/// The copy of a run of another machine is kept while this lives.
pub(super) fn keep(run_dir: &RunDir) -> Result<Option<Keeper>, Failure> {
    launch::keep_copy(run_dir).map_err(Failure::usage)
}

/// What a run of another machine waits for there, when it was last heard of.
pub(super) fn waits(run_dir: &RunDir) -> Option<String> {
    match Mirror::read(run_dir)?.standing {
        Standing::Queued { why } => Some(why),
        _ => None,
    }
}

/// Brings the copies in a runs directory up to date, as far as their machines answer soon.
pub(super) fn refresh(runs: &[RunDir]) {
    let keepers: Vec<Keeper> = runs
        .iter()
        .filter_map(|run_dir| launch::keep_copy(run_dir).ok().flatten())
        .collect();
    let deadline = std::time::Instant::now() + NEWS_PATIENCE;
    for keeper in &keepers {
        keeper.wait_for_news(deadline.saturating_duration_since(std::time::Instant::now()));
    }
}

fn failed(error: ElsewhereError, terminal: Terminal) -> Failure {
    match error {
        ElsewhereError::Start(error) => refused(error, None, terminal),
        ElsewhereError::Target(error) => error.into(),
        ElsewhereError::Link(error) | ElsewhereError::Ship(ShipError::Link(error)) => error.into(),
        ElsewhereError::RunDir(error) => error.into(),
        error @ (ElsewhereError::Ship(_)
        | ElsewhereError::Pull(_)
        | ElsewhereError::Copy { .. }) => Failure::input(error.to_string()),
    }
}

/// Waits until the run shows that it lives there, waits for its turn, or does not live.
pub(super) fn detach(
    run_dir: &RunDir,
    target: &Target,
    json: bool,
    out: &mut Output,
) -> Result<i32, Failure> {
    let queue_patience = if target.kind.has_scheduler() {
        QUEUE_PATIENCE
    } else {
        std::time::Duration::ZERO
    };
    let start = std::time::Instant::now();
    let words = loop {
        let now = std::time::SystemTime::now();
        let glance =
            glance(run_dir, now).map_err(|error| Failure::unexpected(error.to_string()))?;
        let mirror = Mirror::read(run_dir);
        match (&glance.liveness, mirror.map(|mirror| mirror.standing)) {
            (Liveness::PresumedDead { reason }, _) => {
                let words = runlog::run_dir::Exit::read(run_dir.path())
                    .map(|exit| exit.last_words.join("\n"))
                    .unwrap_or_default();
                let text = format!("{reason}\n{words}");
                return Err(Failure::told(exit_code::RUN_FAILED, text.trim()));
            }
            (Liveness::Failed { reason }, _) => {
                return Err(Failure::told(exit_code::RUN_FAILED, reason.clone()));
            }
            (_, Some(Standing::Queued { why }))
                if why != "to begin" && start.elapsed() >= queue_patience =>
            {
                break format!("it waits {why}");
            }
            _ if glance.total_steps > 0 && !Mirror::is_before_going_on(run_dir) => {
                break "it runs".to_owned();
            }
            _ if start.elapsed() > FIRST_SIGN_PATIENCE => break "it is still loading".to_owned(),
            _ => std::thread::sleep(std::time::Duration::from_millis(100)),
        }
    };
    let host = run_dir.origin().and_then(Origin::target).unwrap_or("?");
    if json {
        out.json(&json!({
            "event": "detached", "run": run_dir.name(), "run_dir": report::absolute(run_dir.path()),
            "target": host, "standing": words,
        }))?;
        return Ok(exit_code::OK);
    }
    out.line(&format!(
        "run {} on {host}: {words}",
        run_dir.path().display()
    ))?;
    let id = &run_dir.info().id;
    out.line(&format!(
        "watch it: lathe watch {id}    stop it: lathe stop {id}"
    ))?;
    Ok(exit_code::OK)
}

/// `lathe stop RUN` of a run of another machine.
pub(super) fn stop(run_dir: &RunDir, out: &mut Output) -> Result<i32, Failure> {
    let Some(Origin::Target { target: name, path }) = run_dir.origin() else {
        return Err(Failure::usage("it is no run of another machine"));
    };
    let targets = launch::targets();
    // Over its socket first, so that the log says who; one that has none, or waits, hears its supervisor.
    let who = runlog::control::Client::name("lathe stop");
    let asked = remote::near::control::connect(run_dir, &who, &targets)
        .and_then(|mut client| client.ask(runlog::control::Command::Stop));
    if !matches!(asked, Ok((_, runlog::control::Answer::Accepted { .. }))) {
        let target = targets.find(name)?;
        let mut link = Link::open(&target)?;
        let run = Path::new(path).file_name().unwrap_or_default();
        link.ask(&Ask::End {
            run: run.to_string_lossy().into_owned(),
            is_forced: false,
        })?;
    }
    out.line(&format!(
        "{} on {name} stops after this step, saving a checkpoint; watch it: lathe follow {}",
        run_dir.name(),
        run_dir.info().id
    ))?;
    Ok(exit_code::OK)
}

/// `lathe pull RUN`
pub fn pull(
    argument: &OsStr,
    checkpoint: Option<&str>,
    place: &RunsPlace,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    let run_dir = runs::find(place, argument)?;
    let Some(Origin::Target { target: name, path }) = run_dir.origin() else {
        return Err(Failure::usage(format!(
            "{} lies here already: it is no run of another machine",
            run_dir.name()
        )));
    };
    let target = target(name, terminal)?;
    let run = Path::new(path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut link = Link::open(&target)?;
    let under: Vec<String> = match checkpoint {
        None => vec!["rollouts".to_owned()],
        Some("all") => vec!["checkpoints".to_owned()],
        Some("latest") => vec![format!("checkpoints/{}", newest(&run_dir)?)],
        Some(step) => {
            let number = step.trim_start_matches("step-").parse().map_err(|_| {
                Failure::usage(format!(
                    "`{step}` is no checkpoint; expected a step such as 120, latest, or all"
                ))
            })?;
            vec![format!(
                "checkpoints/{}",
                runlog::run_dir::step_name(number)
            )]
        }
    };
    for under in under {
        let pulled = pull::pull(
            &mut link,
            &run,
            &under,
            run_dir.path(),
            &mut |name, bytes| {
                eprintln!("fetching {name} ({})", format::bytes(bytes));
            },
        )
        .map_err(|error| match error {
            PullError::Link(error) => error.into(),
            other => Failure::input(other.to_string()),
        })?;
        out.line(&format!(
            "{}: {} of {} fetched",
            run_dir.path().join(&under).display(),
            format::bytes(pulled.bytes),
            format::bytes(pulled.all_bytes)
        ))?;
    }
    Ok(exit_code::OK)
}

/// By what its events say was saved.
fn newest(run_dir: &RunDir) -> Result<String, Failure> {
    let (state, _) = crate::headless::read(run_dir).map_err(|error| {
        Failure::unexpected(format!("cannot read {}: {error}", run_dir.path().display()))
    })?;
    state
        .checkpoints
        .last()
        .map(|saved| runlog::run_dir::step_name(saved.step))
        .ok_or_else(|| Failure::usage(format!("{} has saved no checkpoint", run_dir.name())))
}
