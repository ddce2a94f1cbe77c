//! OpenMP workers that sleep between parallel regions instead of spinning on a core somebody else could use.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set by us in the second start, so that there is never a third.
const MARK: &str = "LATHE_OPENMP";

/// Makes idle `OpenMP` workers sleep. Call it first thing in `main`.
///
/// Two threads, a small parallel region every 2 ms: 1.4 CPU seconds in 3 s, against 0.13 when workers sleep.
///
/// libgomp reads `OMP_WAIT_POLICY` and `GOMP_SPINCOUNT` when the loader maps it, which is before `main`, and has no call to
/// change them later. So where neither is set, this program starts itself again with both (same process id, same arguments);
/// it returns in the second start, and at once if the variables are there already: a parent that sets them saves the restart.
pub fn ensure_passive_openmp() -> io::Result<()> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    if is_set(MARK) || is_set("OMP_WAIT_POLICY") || is_set("GOMP_SPINCOUNT") {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg0(name.as_deref().unwrap_or(OsStr::new("lathe-trainer")))
        .args(arguments)
        .env(MARK, "passive")
        .env("OMP_WAIT_POLICY", "passive")
        .env("GOMP_SPINCOUNT", "0");
    // Returns only if it failed.
    Err(command.exec())
}
