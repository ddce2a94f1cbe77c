//! What a trainer is linked with and no system has. Asked here of one that is sent, and there of one that was built there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::SetupError;

/// The libraries that a trainer needs and that no system has: libtorch's and what lies beside it.
pub(crate) fn libraries(trainer: &Path) -> Result<Vec<PathBuf>, SetupError> {
    let told = |reason: String| SetupError::Libraries {
        path: trainer.to_owned(),
        reason,
    };
    let output = Command::new("ldd")
        .arg(trainer)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| told(format!("cannot start ldd: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(told(format!("{} (is LD_LIBRARY_PATH set?)", line.trim())));
    }
    let mut libraries: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| {
            let path = line.split("=>").nth(1)?.split_whitespace().next()?;
            let path = PathBuf::from(path);
            let is_of_the_system = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"]
                .iter()
                .any(|folder| path.starts_with(folder));
            (path.is_absolute() && !is_of_the_system).then_some(path)
        })
        .collect();
    // What says which version it is; a GPU's part, which is loaded by name and not by the linker.
    let folder = libraries
        .iter()
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name == "libtorch_cpu.so")
        })
        .and_then(|path| path.parent().map(Path::to_owned));
    if let Some(folder) = folder {
        for name in [
            "libtorch_cuda.so",
            "libc10_cuda.so",
            "libtorch_cuda_linalg.so",
        ] {
            let path = folder.join(name);
            if path.exists() {
                libraries.push(path);
            }
        }
        for name in ["build-version", "version.py"] {
            let path = folder.parent().map(|parent| parent.join(name));
            libraries.extend(path.filter(|path| path.exists()));
        }
    }
    libraries.sort();
    libraries.dedup();
    Ok(libraries)
}
