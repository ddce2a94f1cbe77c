//! The socket file: named through an open directory, so that the length of its path does not matter.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A file of a directory under a name that fits a socket's address while the directory is open.
struct Named {
    path: PathBuf,
    _directory: Option<File>,
}

fn named(path: &Path) -> io::Result<Named> {
    // Room for the address's closing zero.
    const MOST_BYTES: usize = 107;
    if path.as_os_str().len() <= MOST_BYTES {
        return Ok(Named {
            path: path.to_owned(),
            _directory: None,
        });
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::PATH | OFlags::DIRECTORY).bits().cast_signed())
        .open(path.parent().unwrap_or(Path::new(".")))?;
    Ok(Named {
        path: Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(name),
        _directory: Some(directory),
    })
}

/// Listens at `path`, mode 0600, in place of whatever socket a dead run left there. For the run's one writer only.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    // Bound aside and renamed: nobody ever meets a socket of another mode, or none, under the real name.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    if let Err(error) = fs::remove_file(&aside)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(&named(&aside)?.path)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&aside, Permissions::from_mode(0o600))?;
    fs::rename(&aside, path)?;
    Ok(listener)
}

/// Connects without ever waiting: a process that does not accept (it is suspended, say) gives `WouldBlock`.
pub fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let named = named(path)?;
    let socket: OwnedFd = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    connect(&socket, &SocketAddrUnix::new(&named.path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_length_is_listened_at_and_found() {
        let root = tempfile::tempdir().unwrap();
        for depth in [0, 10, 90] {
            let folder = root.path().join("a-rather-deep-folder/".repeat(depth));
            fs::create_dir_all(&folder).unwrap();
            let path = folder.join("control.sock");
            let listener = listen(&path).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            connect_now(&path).unwrap();
            listener.accept().unwrap();
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing aside");
        }
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("control.sock");
        drop(listen(&path).unwrap());
        let refused = connect_now(&path).unwrap_err().kind();
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        let _listener = listen(&path).unwrap();
        connect_now(&path).unwrap();
    }
}
