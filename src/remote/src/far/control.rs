//! A line that becomes a run's control socket: bytes in, bytes out, and nothing else on it.

use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use runlog::run_dir::Standing;

use super::standing;

pub(super) fn connect(run: &Path) -> Result<UnixStream, String> {
    match standing(run) {
        Standing::Running => {}
        Standing::Queued { why } => return Err(format!("it has not started yet: it waits {why}")),
        Standing::Ended => return Err("it has ended".to_owned()),
        Standing::Lost { reason } => return Err(reason),
    }
    runlog::control::connect_now(&run.join("control.sock")).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "it has no control socket: it is just starting or ending, or its trainer could not make one (its log says so)"
                .to_owned()
        }
        _ => format!("its control socket does not answer: {error}"),
    })
}

/// Until either side closes.
pub(super) fn join(socket: UnixStream, mut input: BufReader<io::Stdin>) -> io::Result<()> {
    let mut to_run = socket.try_clone()?;
    // Ends with the process, which ends when the run closes: there is nothing to join.
    std::thread::Builder::new()
        .name("to run".to_owned())
        .spawn(move || {
            let mut chunk = [0; 16 << 10];
            while let Ok(count @ 1..) = input.read(&mut chunk) {
                if to_run.write_all(&chunk[..count]).is_err() {
                    break;
                }
            }
            // The run answers what it still owes and closes then.
            let _ = to_run.shutdown(Shutdown::Write);
        })?;
    let mut from_run = socket;
    let mut output = io::stdout();
    let mut chunk = [0; 16 << 10];
    loop {
        match from_run.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                output.write_all(&chunk[..count])?;
                output.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
