//! `lathe man [DIR]`: man pages from the tables that also make help, footer and README: clap's commands and the key bindings.

use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use roff::{Roff, bold, roman};
use runlog::exit_code;

use super::{Cli, Failure, Output};
use crate::tui::bindings::{self, Context};
use crate::tui::pages::PageId;

/// The page of `lathe` on standard output; with a folder `lathe.1` and one page a command in it.
pub fn man(directory: Option<&Path>, out: &mut Output) -> Result<i32, Failure> {
    let command = command();
    let Some(directory) = directory else {
        out.bytes(&page(&command))?;
        return Ok(exit_code::OK);
    };
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.join(format!("{name}.1"));
        std::fs::write(&path, bytes).map_err(|error| {
            Failure::unexpected(format!("cannot write {}: {error}", path.display()))
        })
    };
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::unexpected(format!("cannot make {}: {error}", directory.display()))
    })?;
    write("lathe", &page(&command))?;
    let mut count = 1;
    for of_command in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("lathe-{}", of_command.get_name());
        let man = Man::new(of_command.clone());
        write(&name, &rendered(|bytes| man.render(bytes)))?;
        count += 1;
    }
    out.line(&format!("{count} pages in {}", directory.display()))?;
    Ok(exit_code::OK)
}

/// Complete with the version, which `lathe --version` says in its own words.
fn command() -> clap::Command {
    let mut command = Cli::command().version(env!("CARGO_PKG_VERSION"));
    command.build();
    command
}

/// The page of the program: its commands, then every key of the workbench.
fn page(command: &clap::Command) -> Vec<u8> {
    let man = Man::new(command.clone());
    rendered(|bytes| {
        man.render_title(bytes)?;
        man.render_name_section(bytes)?;
        man.render_synopsis_section(bytes)?;
        man.render_description_section(bytes)?;
        man.render_options_section(bytes)?;
        man.render_subcommands_section(bytes)?;
        keys().to_writer(bytes)?;
        man.render_extra_section(bytes)?;
        man.render_version_section(bytes)
    })
}

fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    render(&mut bytes).expect("writing to memory does not fail");
    bytes
}

/// A section with the table of bindings, a part each page.
fn keys() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["KEYS OF THE WORKBENCH"]);
    roff.text([roman(
        "Every key can be set anew in the settings file, by the name in brackets.",
    )]);
    for context in std::iter::once(Context::Global).chain(PageId::ALL.map(Context::Page)) {
        roff.control("SS", [context.title()]);
        for binding in bindings::all()
            .iter()
            .filter(|binding| binding.context == context)
        {
            let keys = if binding.keys.is_empty() {
                "(palette)".to_owned()
            } else {
                binding.keys.join(", ")
            };
            roff.control("TP", []);
            roff.text([bold(keys)]);
            roff.text([roman(format!("{} [{}]", binding.help, binding.id))]);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_man_page_has_every_command_that_is_shown_and_every_key() {
        let command = command();
        let page = String::from_utf8(page(&command)).unwrap();
        // roff writes a hyphen as `\-`.
        let escaped = |text: &str| text.replace('-', "\\-");
        for of_command in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = format!("lathe-{}(1)", of_command.get_name());
            assert!(page.contains(&escaped(&name)), "no {name}");
        }
        for binding in bindings::all() {
            let id = format!("[{}]", binding.id);
            assert!(page.contains(&escaped(&id)), "no {id}");
        }
        assert!(page.contains("Exit codes"), "the extra help is there");
    }
}
