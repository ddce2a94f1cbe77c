//! The command line: what can be said, and which function answers. Commands print to `Output` and give an exit code.
//!
//! ```text
//!  arguments ─► Cli (clap) ─► cli::{workbench, run, reward, check, data, eval, winrate, model, bandit, runs, import, ctl, elsewhere, keys, metrics} ─► exit code of runlog::exit_code
//! ```
//! Expected failures are [`Failure`] values with their exit code; only `main` prints them.

mod arguments;
mod bandit;
mod check;
mod checkpoints;
mod ctl;
mod data;
mod elsewhere;
mod eval;
mod experiment_file;
mod export;
mod failure;
mod import;
mod keys;
mod man;
mod metrics;
mod model;
mod output;
mod plain;
mod report;
mod resume;
mod reward;
mod run;
mod runs;
mod winrate;
mod workbench;

use clap::CommandFactory;
use clap_complete::Shell;
use runlog::exit_code;

pub use arguments::{Cli, Command};
use arguments::{CtlCommand, RewardCommand, TargetCommand};
pub use failure::Failure;
pub use output::Output;

use crate::launch::{self, Job};
use crate::terminal::Terminal;

/// Carries out one command line.
pub fn execute(cli: Cli, out: &mut Output, terminal: Terminal) -> Result<i32, Failure> {
    if cli.version {
        return version(out);
    }
    let terminal = Terminal {
        plain: cli.workbench.plain,
        ..terminal
    };
    let Some(command) = cli.command else {
        return workbench::project(&cli.workbench, &cli.place, out, terminal);
    };
    if cli.place.runs.is_some() {
        return Err(Failure::usage(
            "--runs before a command is that of the workbench: put it behind the command"
                .to_owned(),
        ));
    }
    if cli.workbench.read_only
        && let Some(what) = changes(&command)
    {
        return Err(Failure::usage(format!(
            "--read-only changes nothing, and so it does not {what}"
        )));
    }
    match command {
        Command::Watch { run, place } => {
            workbench::watch(&run, &place, &cli.workbench, out, terminal)
        }
        Command::Replay {
            run,
            speed,
            from,
            place,
        } => workbench::replay(&run, &place, (from, speed), &cli.workbench, terminal),
        Command::Bindings { filter, markdown } => {
            workbench::bindings(filter.as_deref(), markdown, out, terminal)
        }
        Command::Run {
            arguments,
            resume: Some(resumed),
            ..
        } => resume::run(&resumed, &arguments, out, terminal),
        Command::Run {
            arguments, from, ..
        } => run::run(Job::Run, &arguments, from.as_deref(), out, terminal),
        Command::Sft(arguments) => run::run(Job::Sft, &arguments, None, out, terminal),
        Command::Reward {
            command: RewardCommand::Train(arguments),
        } => run::run(Job::Reward, &arguments, None, out, terminal),
        Command::Check(arguments) => check::check(&arguments, out, terminal),
        Command::Data { command } => data::data(&command, out, terminal),
        Command::Eval(arguments) => eval::eval(&arguments, out, terminal),
        Command::Winrate(arguments) => winrate::winrate(&arguments, out, terminal),
        Command::Model { command } => model::model(&command, out),
        Command::Bandit { command } => bandit::bandit(&command, out, terminal),
        Command::Follow { run, place, form } => run::follow(&run, &place, form, out, terminal),
        Command::Import(arguments) => import::import(&arguments, out, terminal),
        Command::Export(arguments) => export::export(&arguments, &cli.workbench, out),
        Command::Checkpoints(arguments) => {
            checkpoints::checkpoints(&arguments, cli.workbench.read_only, out, terminal)
        }
        Command::Stop { run, place } => runs::stop(&place, &run, out),
        Command::Ctl(arguments) => ctl::ctl(&arguments, out, terminal),
        Command::Runs(arguments) => runs::runs(&arguments, out, terminal),
        Command::Targets { json } => elsewhere::targets(json, out, terminal),
        Command::Doctor { target, json } => elsewhere::examine(&target, json, out, terminal),
        Command::Target { command } => elsewhere::target_command(&command, out, terminal),
        Command::Pull {
            run,
            checkpoint,
            place,
        } => elsewhere::pull(&run, checkpoint.as_deref(), &place, out, terminal),
        Command::Far => Ok(elsewhere::answer()),
        Command::Supervise { run } => Ok(elsewhere::supervise(&run)),
        Command::Join { run } => Ok(elsewhere::join(&run)),
        Command::Keys { filter, json } => keys::keys(filter.as_deref(), json, out, terminal),
        Command::Metrics {
            filter,
            markdown,
            json,
        } => metrics::metrics(filter.as_deref(), markdown, json, out, terminal),
        Command::Completions { shell } => completions(shell, out),
        Command::Man { directory } => man::man(directory.as_deref(), out),
        Command::Verl { run_dir } => launch::supervise(&run_dir).map_err(Failure::input),
        Command::Leash { arguments } => launch::hold(&arguments).map_err(Failure::unexpected),
        Command::Leashed { parent, arguments } => Ok(launch::become_leashed(parent, &arguments)),
        Command::ExecTrainer { arguments } => {
            let error = launch::exec_trainer(&arguments);
            let program = arguments.first().cloned().unwrap_or_default();
            eprintln!("cannot start {}: {error}", program.to_string_lossy());
            Ok(launch::NOT_STARTED)
        }
    }
}

/// What a command changes, as it is refused to who wants nothing changed; `export` and `checkpoints` say so themselves.
fn changes(command: &Command) -> Option<&'static str> {
    match command {
        Command::Run { arguments, .. }
        | Command::Sft(arguments)
        | Command::Reward {
            command: RewardCommand::Train(arguments),
        } => (!arguments.dry_run).then_some("start a run"),
        Command::Import(_) => Some("import a run"),
        Command::Stop { .. } => Some("stop a run"),
        Command::Pull { .. } => Some("fetch files"),
        Command::Ctl(arguments) => {
            let only_asks = matches!(
                arguments.command,
                CtlCommand::Status | CtlCommand::Knobs | CtlCommand::Guards
            ) || (arguments.command == CtlCommand::Arm
                && arguments.values.is_empty());
            (!only_asks).then_some("give a run commands")
        }
        Command::Target { command } => match command {
            TargetCommand::Setup { .. } => Some("set a target up"),
            TargetCommand::Adopt { .. } => Some("make a copy of a run"),
            TargetCommand::Login { .. } | TargetCommand::Runs { .. } => None,
        },
        _ => None,
    }
}

fn completions(shell: Shell, out: &mut Output) -> Result<i32, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lathe", &mut script);
    out.bytes(&script)?;
    Ok(exit_code::OK)
}

fn version(out: &mut Output) -> Result<i32, Failure> {
    let trainer = match launch::find_trainer() {
        Ok(path) => path.display().to_string(),
        Err(error) => format!("not found ({error})"),
    };
    out.line(&format!("lathe {}", env!("CARGO_PKG_VERSION")))?;
    out.line(&format!(
        "  run directory format  {}",
        runlog::run_dir::FORMAT_VERSION
    ))?;
    out.line("  key vocabulary        verl 0.9.1")?;
    out.line(&format!("  lathe-trainer         {trainer}"))?;
    Ok(exit_code::OK)
}
