//! How long to wait before a line that was cut is tried again: in proportion to how long it has been cut, and no longer once this
//! machine's network has changed (the cable is in again, the laptop woke, the VPN is up).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

const SHORTEST: Duration = Duration::from_millis(500);
pub(super) const LONGEST: Duration = Duration::from_secs(20);
/// A line that was away for a minute is found again within six seconds more, besides the time that connecting takes.
const SHARE: u32 = 10;

/// The waits of one cut. Each is by chance up to a third longer or shorter, so that many watchers do not come back at once.
#[derive(Debug, Default)]
pub(super) struct Waits {
    began: Option<Instant>,
}

impl Waits {
    pub fn next(&mut self, now: Instant) -> Duration {
        let began = *self.began.get_or_insert(now);
        let wait = (now.duration_since(began) / SHARE).clamp(SHORTEST, LONGEST);
        let mut random = [0_u8; 2];
        // Without chance it is the plain wait.
        let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        let share = f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX);
        wait.mul_f64(2.0 / 3.0 + share * 2.0 / 3.0)
    }
}

/// Counts how often this machine's links, addresses and routes have changed since this was first asked; another number than
/// before means that what could not be reached may be reached now. Stays 0 where the kernel does not tell.
pub(super) fn network_changes() -> u64 {
    static CHANGES: AtomicU64 = AtomicU64::new(0);
    static WATCH: OnceLock<()> = OnceLock::new();
    WATCH.get_or_init(|| {
        let Ok(socket) = changes_socket() else {
            return;
        };
        // Without the thread the waits end by themselves.
        let _ = std::thread::Builder::new()
            .name("network".to_owned())
            .spawn(move || {
                let mut message = vec![0_u8; 32 << 10];
                loop {
                    match recv(&socket, &mut message[..], RecvFlags::empty()) {
                        // What was lost for want of room was a change too.
                        Ok(_) | Err(rustix::io::Errno::NOBUFS) => {
                            CHANGES.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => return,
                    }
                }
            });
    });
    CHANGES.load(Ordering::Relaxed)
}

/// Hears of links, addresses and routes of both families; see rtnetlink(7).
fn changes_socket() -> rustix::io::Result<rustix::fd::OwnedFd> {
    const RTMGRP_LINK: u32 = 0x1;
    const RTMGRP_IPV4_IFADDR: u32 = 0x10;
    const RTMGRP_IPV4_ROUTE: u32 = 0x40;
    const RTMGRP_IPV6_IFADDR: u32 = 0x100;
    const RTMGRP_IPV6_ROUTE: u32 = 0x400;
    let groups = RTMGRP_LINK
        | RTMGRP_IPV4_IFADDR
        | RTMGRP_IPV4_ROUTE
        | RTMGRP_IPV6_IFADDR
        | RTMGRP_IPV6_ROUTE;
    // NETLINK_ROUTE is protocol 0, which is none given.
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_tenth_of_what_the_cut_has_lasted_and_neither_short_nor_long() {
        let began = Instant::now();
        let mut waits = Waits::default();
        for (cut_s, wait_s) in [(0, 0.5), (4, 0.5), (30, 3.0), (90, 9.0), (86_400, 20.0)] {
            for _ in 0..20 {
                let wait = waits.next(began + Duration::from_secs(cut_s));
                let share = wait.as_secs_f64() / wait_s;
                assert!((0.66..1.34).contains(&share), "{cut_s} s: {wait:?}");
            }
        }
    }

    /// Runs this test once more in a network of its own, which it may change.
    #[test]
    fn a_link_that_goes_up_is_noticed() {
        const INSIDE: &str = "LATHE_TEST_IN_ITS_OWN_NETWORK";
        let own = |program: &str, arguments: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--map-root-user", "--net", program]);
            command.args(arguments).env(INSIDE, "1");
            command.output()
        };
        if std::env::var_os(INSIDE).is_none() {
            if !own("ip", &["link"]).is_ok_and(|ran| ran.status.success()) {
                eprintln!("skipped: no network of its own can be made here (unshare, ip)");
                return;
            }
            let program = std::env::current_exe().unwrap();
            let name = "near::waits::tests::a_link_that_goes_up_is_noticed";
            let ran = own(program.to_str().unwrap(), &["--exact", name]).unwrap();
            let words = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success(), "{words}");
            assert!(words.contains("1 passed"), "{words}");
            return;
        }
        assert_eq!(network_changes(), 0);
        let up = std::process::Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(30);
        while network_changes() == 0 {
            assert!(Instant::now() < deadline, "nothing was heard");
            std::thread::yield_now();
        }
    }
}
