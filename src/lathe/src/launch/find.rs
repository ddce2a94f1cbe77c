//! Where the trainer is: `LATHE_TRAINER`, else beside this program, else in `PATH`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Names the trainer's program file.
const TRAINER_VARIABLE: &str = "LATHE_TRAINER";
const PROGRAM: &str = "lathe-trainer";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainerNotFound {
    #[error(
        "LATHE_TRAINER names {}, which is not a program that can be started; correct the variable or unset it",
        path.display()
    )]
    Variable { path: PathBuf },
    #[error(
        "cannot find lathe-trainer{}; build it with `cargo build --release -p trainer` (it needs libtorch: `just libtorch`), \
         or name it in LATHE_TRAINER",
        searched(beside.as_deref())
    )]
    Nowhere { beside: Option<PathBuf> },
}

fn searched(beside: Option<&Path>) -> String {
    match beside {
        Some(path) => format!(": neither {} nor PATH has it", path.display()),
        None => " in PATH".to_owned(),
    }
}

pub fn find_trainer() -> Result<PathBuf, TrainerNotFound> {
    let here = env::current_exe().ok();
    find_among(
        env::var_os(TRAINER_VARIABLE),
        here.as_deref().and_then(Path::parent),
        env::var_os("PATH").as_deref(),
    )
}

fn find_among(
    variable: Option<OsString>,
    here: Option<&Path>,
    path: Option<&OsStr>,
) -> Result<PathBuf, TrainerNotFound> {
    if let Some(named) = variable.filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        if !is_program(&named) {
            return Err(TrainerNotFound::Variable { path: named });
        }
        return Ok(named);
    }
    let beside = here.map(|folder| folder.join(PROGRAM));
    let in_path = path
        .into_iter()
        .flat_map(env::split_paths)
        .map(|folder| folder.join(PROGRAM));
    beside
        .clone()
        .into_iter()
        .chain(in_path)
        .find(|candidate| is_program(candidate))
        .ok_or(TrainerNotFound::Nowhere { beside })
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program_in(folder: &Path) -> PathBuf {
        let path = folder.join(PROGRAM);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_variable_wins_over_the_neighbour_and_the_neighbour_over_path() {
        let [named, here, path] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let in_path = program_in(path.path());
        let search = Some(path.path().as_os_str());
        assert_eq!(find_among(None, Some(here.path()), search), Ok(in_path));
        let neighbour = program_in(here.path());
        assert_eq!(find_among(None, Some(here.path()), search), Ok(neighbour));
        let variable = program_in(named.path());
        assert_eq!(
            find_among(
                Some(variable.clone().into_os_string()),
                Some(here.path()),
                search
            ),
            Ok(variable)
        );
    }

    #[test]
    fn a_variable_that_names_no_program_is_an_error_and_not_passed_over() {
        let here = tempfile::tempdir().unwrap();
        program_in(here.path());
        let error =
            find_among(Some("/nowhere/trainer".into()), Some(here.path()), None).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("LATHE_TRAINER names /nowhere/trainer"),
            "{error}"
        );
    }

    #[test]
    fn a_file_without_the_execute_bit_is_no_trainer() {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join(PROGRAM), "").unwrap();
        let error = find_among(None, Some(here.path()), None).unwrap_err();
        assert!(error.to_string().contains("just libtorch"), "{error}");
    }
}
