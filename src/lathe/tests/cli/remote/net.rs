//! A link of the tests' own, that can be cut, and can be slow and lose packets.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fake_trainer::wait_until;

/// 200 ms there and back.
const SLOW_MS: &str = "100";
/// One packet of so many is lost each way.
pub const LOST_ONE_OF: u64 = 100;

/// A pair of linked interfaces, one of them in a namespace. A slow link is two pairs, whose inner ends a relay joins in a namespace
/// between.
pub struct Net {
    pub name: String,
    here: String,
    pub address: String,
    /// Of a slow one: the namespace between, and what joins its two links.
    between: Option<(String, Option<Child>)>,
}

pub fn quiet(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn ip(arguments: &[&str]) -> bool {
    quiet("ip", arguments)
}

/// Names that no other test's link has.
struct Names {
    far: String,
    between: String,
    here: String,
    there: String,
    subnet: String,
}

impl Names {
    fn new() -> Self {
        // Tests of one process, or of many, side by side.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() * 4 + MADE.fetch_add(1, Ordering::Relaxed) % 4;
        Self {
            far: format!("lathe{number}"),
            between: format!("lathe{number}m"),
            here: format!("la{number}"),
            there: format!("lb{number}"),
            subnet: format!("10.{}.{}", 128 + (number >> 8) % 100, number % 256),
        }
    }

    /// Addresses both ends and lets them be used.
    fn address(&self) -> bool {
        let (our, their) = (
            format!("{}.1/30", self.subnet),
            format!("{}.2/30", self.subnet),
        );
        let (far, here, there) = (&self.far, &self.here, &self.there);
        ip(&["addr", "add", &our, "dev", here])
            && ip(&["link", "set", here, "up"])
            && ip(&["-n", far, "addr", "add", &their, "dev", there])
            && ip(&["-n", far, "link", "set", there, "up"])
            && ip(&["-n", far, "link", "set", "lo", "up"])
    }

    fn net(self, between: Option<(String, Option<Child>)>) -> Net {
        Net {
            name: self.far,
            here: self.here,
            address: format!("{}.2", self.subnet),
            between,
        }
    }
}

fn no_right<T>() -> Option<T> {
    eprintln!(
        "skipped: no right to make a network namespace here (root, CAP_NET_ADMIN), or no `ip`"
    );
    None
}

impl Net {
    /// None: skipped, and said why.
    pub fn new() -> Option<Self> {
        let names = Names::new();
        let (far, here, there) = (&names.far, &names.here, &names.there);
        let is_made = ip(&["netns", "add", far])
            && ip(&["link", "add", here, "type", "veth", "peer", "name", there])
            && ip(&["link", "set", there, "netns", far])
            && names.address();
        let net = names.net(None);
        if is_made { Some(net) } else { no_right() }
    }

    /// A slow one that loses packets; what went over it is told in the file `counts`.
    pub fn slow(counts: &Path) -> Option<Self> {
        if !quiet("python3", &["--version"]) {
            eprintln!("skipped: the slow line needs python3");
            return None;
        }
        let names = Names::new();
        let (far, between) = (&names.far, &names.between);
        let (here, there) = (&names.here, &names.there);
        let is_made = ip(&["netns", "add", far])
            && ip(&["netns", "add", between])
            && ip(&[
                "link", "add", here, "type", "veth", "peer", "name", "near", "netns", between,
            ])
            && ip(&[
                "-n", far, "link", "add", there, "type", "veth", "peer", "name", "far", "netns", between,
            ])
            // One segment a packet, so that one that is lost is one.
            && ip(&["link", "set", here, "gso_max_segs", "1"])
            && ip(&["-n", far, "link", "set", there, "gso_max_segs", "1"])
            && ip(&["-n", between, "link", "set", "near", "up"])
            && ip(&["-n", between, "link", "set", "far", "up"])
            && names.address();
        let relay = is_made.then(|| relay(between, counts));
        let between = between.clone();
        let net = names.net(Some((between, relay)));
        if !is_made {
            return no_right();
        }
        wait_until("the relay runs", || counts.exists());
        Some(net)
    }

    pub fn cut(&self) {
        assert!(ip(&["link", "set", &self.here, "down"]));
    }

    pub fn heal(&self) {
        assert!(ip(&["link", "set", &self.here, "up"]));
    }
}

/// Ends when its input is closed, so with this process at the latest.
fn relay(between: &str, counts: &Path) -> Child {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/remote/slow_line.py");
    let one_of = LOST_ONE_OF.to_string();
    Command::new("ip")
        .args([
            "netns", "exec", between, "python3", program, "near", "far", SLOW_MS, &one_of, "7",
        ])
        .arg(counts)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Net {
    fn drop(&mut self) {
        if let Some((between, relay)) = self.between.take() {
            if let Some(mut relay) = relay {
                drop(relay.stdin.take());
                let _ = relay.wait();
            }
            ip(&["netns", "del", &between]);
        }
        ip(&["netns", "del", &self.name]);
        ip(&["link", "del", &self.here]);
    }
}
