//! Runs on other machines from the command line: starting there, following, stopping, fetching from there.

mod setup;
mod targets;
mod there;

use std::ffi::OsStr;
use std::path::Path;

use jiff::Timestamp;
use remote::near::launch::ShipError;
use remote::near::pull::{self, PullError};
use remote::targets::TargetError;
use remote::wire::Ask;
use remote::{Keeper, Link, LinkError, Target};
use runlog::exit_code;
use runlog::run_dir::{Mirror, Origin, RunDir, Standing};
use runlog::state::{self, Liveness, glance};
use serde_json::json;

use super::arguments::RunsPlace;
use super::run::refused;
use super::{Failure, Output, experiment_file, report, run, runs};
use crate::headless::{End, Follow, format};
use crate::launch::{self, ElsewhereError, Order};
use crate::terminal::{Role, Terminal};
use crate::tui::pages::launch::sweep::{self, Combine};

pub use targets::{examine, target_command, targets};
pub use there::{answer, join, supervise};

/// How long the first sign of life there may take after the run has begun: loading libtorch from a cold network disk.
const FIRST_SIGN_PATIENCE: std::time::Duration = std::time::Duration::from_secs(180);

/// A scheduler with a free machine looks at its queue within seconds: a run that waits longer is told of.
const QUEUE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);
/// How long the last bytes of a run that has ended may take: its trainer still closes its files.
const LAST_BYTES_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// Between two words of files that are fetched.
const TOLD_EVERY: std::time::Duration = std::time::Duration::from_millis(500);
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

/// Of a copy of a run that goes on, as far as is known: that nothing is heard of it or kept of it, since when, and why.
pub(super) fn cut(run_dir: &RunDir) -> Option<String> {
    let mirror = Mirror::read(run_dir)?;
    let (_, reason) = mirror.link.stuck()?;
    matches!(mirror.standing, Standing::Running | Standing::Queued { .. })
        .then(|| format!("{}: {reason}", mirror.link.words(Timestamp::now())))
}

/// What keeps a living run from being written down where it runs.
pub(super) fn trouble(run_dir: &RunDir, liveness: &Liveness) -> Option<String> {
    let mirror = run_dir.origin().and_then(|_| Mirror::read(run_dir));
    state::trouble(run_dir, liveness, mirror.as_ref()).map(|trouble| trouble.words)
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
    runs::waits_for_room(run_dir, out)?;
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
    // Of many small files not each is told.
    let mut told_at: Option<std::time::Instant> = None;
    for under in under {
        let pulled = pull::pull(
            &mut link,
            &run,
            &under,
            run_dir.path(),
            &mut |name, bytes| {
                if told_at.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
                    told_at = Some(std::time::Instant::now());
                    eprintln!("fetching {name} ({})", format::bytes(bytes));
                }
            },
        )
        .map_err(|error| match error {
            PullError::Link(error) => error.into(),
            other => Failure::input(other.to_string()),
        })?;
        out.line(&format!(
            "{}: {} of {} fetched, {} of {}",
            run_dir.path().join(&under).display(),
            format::bytes(pulled.bytes),
            format::bytes(pulled.all_bytes),
            pulled.files,
            format::plural(pulled.all_files, "file")
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
